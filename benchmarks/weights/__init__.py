"""What an update of the weights costs the responses under way, and what the proxy costs each."""
