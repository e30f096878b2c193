"""What every test may use: LLM servers, queues, and whole yards as a user starts them."""

from importlib.util import find_spec

from hypothesis import Phase, settings

pytest_plugins = ["tests.llm_fixtures", "tests.yard_fixtures"]
if find_spec("redis"):  # the trainer's environment has no Redis client, and its tests no queues
    pytest_plugins.append("tests.queue_fixtures")

settings.register_profile("long", max_examples=2500)
settings.register_profile("unshrunk", phases=(Phase.explicit, Phase.generate))
