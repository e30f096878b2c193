"""What the recording gateway costs its clients, beside the LLM server itself."""
