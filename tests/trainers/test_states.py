"""The Run's state in a trainer's checkpoint."""

import pytest

from rollyard.errors import InvalidMessage
from rollyard.trainers.states import from_json, packed, to_json, unpacked


def test_a_state_is_the_same_again_whatever_its_rows_hold() -> None:
    row = {"data_source": "x", "image": b"\x89PNG", "sizes": [1, 2.5, None], "nested": {"a": b""}}
    state = {
        "session": "s",
        "rows": {"items_drawn": 2, "waiting": [row], "dataloader": None},
        "prompts": [{"prompt_id": "s-0", "instance": row}],
        "trained": [],
    }
    assert from_json(to_json(state)) == state
    assert unpacked(packed(state)) == state


def test_what_no_message_can_hold_is_an_error_that_says_so() -> None:
    with pytest.raises(InvalidMessage, match=r"state cannot be saved: .*object.*; let the rows"):
        to_json({"dataloader": object()})
