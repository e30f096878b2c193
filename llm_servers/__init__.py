"""The LLM servers of one node: starting, watching and updating them."""
