# The two front doors are `make demo` and `make test`; on a fresh machine they do their own set-up.

.PHONY: demo test fast tests-of-faults tests-of-examples examples-at-once trainers-at-once faults real-model real-environments real-doors real-slurm real-ray real-trainers real-nemo-rl wheel chaos soak machine interleavings fuzz mutants bench-dispatch bench-scale bench-dapo bench-agents bench-fairness bench-gateway bench-weights bench-peers check \
	types-of-torch types style layers environments lock slurm nemo-gym clean help

SOURCES = rollyard serving orchestrator agent_server llm_servers simulator reward_service launch chaos benchmarks
SEED := $(shell date +%s)
CASES = 1000
# Test processes for two cores: most tests wait for processes of ours more than they compute. Faults
# run after all others, as what they measure are leases of seconds, which they mostly wait out.
WORKERS = 5
FAULT_WORKERS = 6
PYTEST = .venv/bin/python -m pytest --no-loadscope-reorder
FAULTS = tests/faults
# Needs 93 MB from the registry, 4 GB of memory and five minutes of both cores: not for every change.
REAL_MODEL = tests/real_model
# Needs 3 GB of other people's packages, and a Python 3.12 for one of them.
REAL_ENVIRONMENTS = tests/real_environments
# Needs vLLM and the packages of others: minutes of both cores, and 4 GB of memory.
REAL_DOORS = tests/real_doors
# Needs two vLLMs at once: minutes of both cores, and 6 GB of memory.
REAL_SLURM = tests/real_slurm
# Needs Ray, in an environment of its own, and 2 GB of memory for three nodes of it.
REAL_RAY = tests/real_ray
# Needs verl and SkyRL, in an environment of their own, and a small cluster of Ray.
REAL_TRAINERS = tests/real_trainers
TESTS = $(filter-out tests/examples tests/trainers tests/real_trainers tests/real_nemo_rl tests/__pycache__,$(patsubst %/,%,$(wildcard tests/*/)))
# What needs no process but a Redis: about 100 s of CPU.
FAST = tests/access tests/architecture tests/rollyard tests/simulator tests/orchestrator \
	$(patsubst %,tests/agent_server/test_%.py,chat_template parking routing slots tool_loop trajectory)
EXAMPLES = examples/swe examples/agents  # those that torch is no part of
TORCH_SOURCES = examples/minimal.py examples/arithmetic examples/chatterer examples/smollm2 tests/examples
TRL_SOURCES = examples/trl examples/lora.py tests/trainers tests/real_trainers tests/real_nemo_rl
# Where Python may not keep what it compiled, each process compiles all of ours that it imports.
unexport PYTHONDONTWRITEBYTECODE

help: ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

demo: ## train a tiny tool-using policy on this machine until it has learned (about 5 minutes); OPTIONS=--tensorboard
	@started=$$(date +%s) && sh launch/environment.sh services llm && \
		.venv/bin/rollyard demo --started-at $$started $(OPTIONS)

test: check slurm nemo-gym ## everything CI runs: the checks, then all tests with the real parts
	sh tests/once_more.sh tests $(PYTEST) -n $(WORKERS) $(filter-out $(FAULTS) $(REAL_MODEL) $(REAL_ENVIRONMENTS) $(REAL_DOORS) $(REAL_SLURM) $(REAL_RAY),$(TESTS))
	@$(MAKE) --no-print-directory --jobs 2 tests-of-faults tests-of-examples

tests-of-faults:
	sh tests/once_more.sh faults $(PYTEST) -n $(FAULT_WORKERS) $(FAULTS)

# Shown when it ends: two reports at once nobody can read.
tests-of-examples:
	@$(MAKE) --no-print-directory --output-sync=target examples-at-once trainers-at-once

examples-at-once:
	sh tests/once_more.sh examples .venv-llm/bin/python -m pytest tests/examples

trainers-at-once:
	sh tests/once_more.sh trainers .venv-trl/bin/python -m pytest tests/trainers

fast: ## a verdict in a minute and a half: style, layers, and what needs no process but a Redis
	@sh launch/environment.sh services
	@$(MAKE) --no-print-directory style layers
	$(PYTEST) -n $(WORKERS) --hypothesis-profile=short $(FAST)

faults: environments ## every fault of docs/reliability.md with all its seeds (25 minutes)
	ROLLYARD_FAULTS=full .venv/bin/python -m pytest tests/faults

real-model: environments ## a real small model does mathematics on vLLM, beside torch; LoRA and TRL's asynchronous trainer learn
	.venv/bin/python -m pytest -s $(REAL_MODEL)

real-environments: ## other people's environments, as they are published, in environments of their own (3 GB)
	@sh launch/environment.sh services textarena openenv nemo-gym verifiers
	.venv/bin/python -m pytest $(REAL_ENVIRONMENTS)

real-doors: environments ## agents, environments and collectors of others, real vLLM: each token scored again by torch
	@sh launch/environment.sh textarena openenv nemo-gym verifiers
	.venv/bin/python -m pytest -s $(REAL_DOORS)

real-slurm: environments slurm ## a job on the emulated Slurm cluster with real vLLM, and its figures (5 minutes)
	.venv/bin/python -m pytest -s $(REAL_SLURM)

real-ray: ## a fleet on a real cluster of Ray, of three nodes on this machine (a minute)
	@sh launch/environment.sh services ray
	.venv-ray/bin/python -m pytest -s $(REAL_RAY)

real-trainers: ## verl and SkyRL as published, as far as they run on a CPU: their data paths and losses on our batches
	@sh launch/environment.sh trainers
	.venv-trainers/bin/python -m pytest $(REAL_TRAINERS)

# NEMO_RL_PATH is a checkout of NeMo-RL, and NEMO_RL_PYTHON has what it imports: docs/trainers.md.
real-nemo-rl: ## NeMo-RL's own GRPO on Rollyard's batches, beside the plain loop's numbers, and on vLLM (7 minutes)
	@sh launch/environment.sh services llm
	NEMO_RL_PATH="$(NEMO_RL_PATH)" "$(NEMO_RL_PYTHON)" -m pytest -p no:warnings \
		--confcutdir tests/real_nemo_rl tests/real_nemo_rl

wheel: environments ## the wheel in clean environments of Python 3.11, 3.12 and 3.13, away from any checkout
	ROLLYARD_WHEEL_PYTHONS="3.11 3.12 3.13" .venv/bin/python -m pytest tests/e2e/test_wheel.py

chaos: environments ## 10,000 jobs while processes are killed and replies lost; SEED=n replays (2 minutes)
	@.venv/bin/python -m chaos --jobs 10000 --seed $(SEED)

soak: environments ## the same with 400,000 jobs, and whether memory grows (30 minutes)
	@.venv/bin/python -m chaos --jobs 400000 --seed $(SEED) --deadline-seconds 7200 --again "make soak"

machine: environments ## the queues against their model, with 25 times the examples of make test
	.venv/bin/python -m pytest --hypothesis-profile=long tests/orchestrator/test_queue_machine.py

interleavings: environments ## 10,000 seeded orders of everything that can happen to a sampler (half an hour)
	ROLLYARD_INTERLEAVINGS=10000 .venv/bin/python -m pytest --timeout 1800 tests/orchestrator/sampling/test_interleavings.py

fuzz: environments ## 1,000 cases for each operation of every door and service; SEED=n replays (an hour)
	@echo "seed $(SEED)"
	ROLLYARD_FUZZ_CASES=$(CASES) ROLLYARD_FUZZ_SEED=$(SEED) .venv/bin/python -m pytest -v --timeout 3600 \
		tests/fuzz tests/e2e/test_api_contract.py

mutants: environments ## remove each guard once: the tests must fail each time (8 minutes); GUARD=words picks some
	@.venv/bin/python -m tests.guards "$(GUARD)"

check: environments ## style, types and layers
	@$(MAKE) --no-print-directory --jobs 2 types-of-torch types style layers

# The slowest first: two processes share them.
types-of-torch:
	MYPYPATH=examples/arithmetic:tests/examples .venv/bin/mypy --cache-dir .mypy_cache/torch \
		--explicit-package-bases --python-executable .venv-llm/bin/python $(TORCH_SOURCES)
	MYPYPATH=examples/arithmetic:examples/trl .venv/bin/mypy --cache-dir .mypy_cache/trl \
		--explicit-package-bases --python-executable .venv-trl/bin/python $(TRL_SOURCES)

types:
	.venv/bin/mypy $(SOURCES) $(EXAMPLES) tests/*.py $(TESTS)

style:
	.venv/bin/ruff format --check .
	.venv/bin/ruff check .

layers:
	.venv/bin/lint-imports

bench-dispatch: ## jobs per second and the time between two jobs, beside Ray, RQ, Celery, aiohttp
	@sh launch/environment.sh services bench
	@.venv/bin/python -m benchmarks.dispatch

bench-scale: ## what a million queued jobs, 10,000 running ones, many runs and a long result cost
	@sh launch/environment.sh services
	@.venv/bin/python -m benchmarks.scale

bench-dapo: ## what dynamic sampling costs a step, beside batch by batch and the bounds (7 minutes)
	@sh launch/environment.sh services
	@.venv/bin/python -m benchmarks.dapo

bench-agents: ## sandboxes, commands in them, 256 agents and 1,024 jobs on one server, rewards in bursts
	@sh launch/environment.sh services
	@.venv/bin/python -m benchmarks.agents

bench-fairness: ## shares of runs by their weights, a small run beside a large one, and 64 runs beside one
	@sh launch/environment.sh services
	@.venv/bin/python -m benchmarks.fairness

bench-gateway: ## what the recording gateway adds to 64 clients at once, whole answers and streams
	@sh launch/environment.sh services
	@.venv/bin/python -m benchmarks.gateway

bench-weights: ## an update of the weights with 64 responses under way, and what the proxy of a node adds (5 minutes)
	@sh launch/environment.sh services llm
	@.venv/bin/python -m benchmarks.weights

bench-peers: ## 256 conversations beside verifiers, NeMo-Gym and Agent Lightning, and 96 under each fault (12 minutes)
	@sh launch/environment.sh services peers
	@.venv/bin/python -m benchmarks.peers

slurm: ## have Debian's Slurm, for the tests on an emulated cluster
	@sh launch/environment.sh slurm

nemo-gym: # its environment, where there is the Python that it needs
	@! command -v python3.12 >/dev/null || sh launch/environment.sh nemo-gym

environments: ## make .venv, .venv-llm, .venv-trl and .venv-tools
	@sh launch/environment.sh services llm trl tools agents

lock: ## resolve uv.lock anew after a change of pyproject.toml; UPGRADE=1 takes new versions of all
	@sh launch/environment.sh lock

clean: ## remove the environments and what runs left behind
	rm -rf .venv .venv-* .venv*.log .slurm.log .venv.failed demo rollyard-data
