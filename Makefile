# The two front doors are `make demo` and `make test`; on a fresh machine they do their own set-up.

.PHONY: demo test check environments clean help

help: ## this list
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

demo: ## train a tiny tool-using policy on this machine until it has learned (about 5 minutes)
	@started=$$(date +%s) && sh launch/environment.sh services llm && \
		.venv/bin/rollyard demo --started-at $$started

test: environments check ## everything CI runs: checks, then all tests with the real parts
	.venv/bin/python -m pytest --ignore tests/examples
	.venv-llm/bin/python -m pytest tests/examples

check: ## style, types and layers
	@sh launch/environment.sh services
	.venv/bin/ruff format --check .
	.venv/bin/ruff check .
	.venv/bin/mypy
	.venv/bin/lint-imports

environments: ## make .venv and .venv-llm
	@sh launch/environment.sh services llm

clean: ## remove the environments and what runs left behind
	rm -rf .venv .venv-llm .venv*.log .venv*.failed demo rollyard-data
