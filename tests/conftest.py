"""What every test may use: LLM servers, and whole yards as a user starts them."""

pytest_plugins = ["tests.llm_fixtures", "tests.yard_fixtures"]
