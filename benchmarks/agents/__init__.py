"""What agents cost beside their LLM servers: sandboxes, commands, conversations, rewards."""
