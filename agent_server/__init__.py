"""The agent server: it takes Leases, runs agents against LLM servers, and reports Results."""
