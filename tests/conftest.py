"""What every test may use: LLM servers, queues, and whole yards as a user starts them."""

from importlib.util import find_spec

import pytest
from hypothesis import Phase, settings

pytest_plugins = ["tests.llm_fixtures", "tests.yard_fixtures"]
if find_spec("redis"):  # the trainer's environment has no Redis client, and its tests no queues
    pytest_plugins.append("tests.queue_fixtures")

settings.register_profile("long", max_examples=7500)
settings.register_profile("unshrunk", max_examples=300, phases=(Phase.explicit, Phase.generate))


SHARED_BY_ALL = ("vllm_llm",)
"""Fixtures that cost most of a minute and 3 GB: the tests that use one run in one process."""


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for name in SHARED_BY_ALL:
            if name in getattr(item, "fixturenames", ()):
                item.add_marker(pytest.mark.xdist_group(name))
