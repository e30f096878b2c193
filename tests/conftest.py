"""What every test may use: LLM servers, and whole yards as a user starts them."""

from hypothesis import settings

pytest_plugins = ["tests.llm_fixtures", "tests.yard_fixtures"]

settings.register_profile("long", max_examples=2500)
