"""How each trainer is driven in the contract suite, a file for each: see `contract.py`."""
