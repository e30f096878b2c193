"""The hosts by which a service listens on every address of its machine."""

EVERY_ADDRESS = frozenset({"0.0.0.0", "::"})  # noqa: S104 - named to be recognised
