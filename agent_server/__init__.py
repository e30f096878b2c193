"""The agent server: takes Leases, runs agents against LLM servers, and reports one Result each."""
