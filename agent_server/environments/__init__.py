"""Environments, the tasks that agents are trained on, found by a dataset row's `data_source`."""
