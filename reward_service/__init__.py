"""The reward service: graders behind HTTP, in as many workers as there is work for."""
