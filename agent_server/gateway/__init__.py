"""The recording gateway: agents that speak somebody else's protocol, recorded token by token."""
