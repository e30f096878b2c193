"""Rollyard on Kubernetes."""
