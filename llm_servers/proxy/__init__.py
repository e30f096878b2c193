"""The proxy in front of a node's LLM servers, which alone is reached from outside the node."""
