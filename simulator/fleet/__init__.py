"""The machines of a simulation, CPUs and LLM servers, placed and routed as in production."""
