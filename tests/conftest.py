"""What every test may use: LLM servers, queues, and whole deployments as a user starts them."""

import signal
from importlib.util import find_spec

import pytest
from hypothesis import Phase, settings
from xdist.remote import Producer

from tests.scheduling import VLLM, Scheduling, scope_of, turn_of

pytest_plugins = ["tests.llm_fixtures", "tests.deployment_fixtures"]
if find_spec("redis"):  # the trainer's environment has no Redis client, and its tests no queues
    pytest_plugins.append("tests.queue_fixtures")

settings.register_profile("short", max_examples=10)
settings.register_profile("long", max_examples=2500)
settings.register_profile("unshrunk", max_examples=100, phases=(Phase.explicit, Phase.generate))


def pytest_configure() -> None:
    """Let SIGINT be heard."""
    # As a script's `&` leaves it: nothing in a sandbox could be interrupted.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "started_vllm" in getattr(item, "fixturenames", ()) and scope_of(item.nodeid) != VLLM:
            raise pytest.UsageError(f"{item.nodeid} needs the real vLLM: name it after it")
    items.sort(key=lambda item: turn_of(item.nodeid))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling:
    return Scheduling(config, log)
