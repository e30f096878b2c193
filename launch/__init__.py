"""Start and stop everything: the local launcher, the demo, the `rollyard` command."""
