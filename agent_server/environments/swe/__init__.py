"""Software engineering: a repository with a bug, and tests that tell whether it is gone."""
