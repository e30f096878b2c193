"""`rollyard env`: make, prove and try environments, without a deployment."""
