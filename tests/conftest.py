"""What every test may use: LLM servers, queues, and whole yards as a user starts them."""

from hypothesis import Phase, settings

pytest_plugins = ["tests.llm_fixtures", "tests.queue_fixtures", "tests.yard_fixtures"]

settings.register_profile("long", max_examples=2500)
settings.register_profile("unshrunk", phases=(Phase.explicit, Phase.generate))
