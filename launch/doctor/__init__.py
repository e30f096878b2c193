"""`rollyard doctor`: named checks of this machine and of a deployment, each with its fix."""
