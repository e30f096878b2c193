"""What `Client.run` takes by name is what a Run is made of."""

from typing import get_type_hints

from rollyard.client import Settings
from rollyard.messages import RunSettings


def test_every_setting_of_a_run_can_be_given_to_the_client() -> None:
    assert get_type_hints(Settings).keys() == get_type_hints(RunSettings).keys()
