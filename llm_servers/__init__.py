"""The LLM servers of one node: how they are started, watched and given new weights."""
