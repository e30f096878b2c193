"""The package brings what is asked of it, and nothing that was not."""

import subprocess
import sys

import pytest

import rollyard


def test_a_process_that_needs_the_messages_alone_loads_no_client() -> None:
    program = "import sys, rollyard.messages; sys.exit('requests' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], timeout=60).returncode == 0


@pytest.mark.parametrize("name", rollyard.__all__)
def test_each_name_is_there_once_it_is_asked_for(name: str) -> None:
    assert getattr(rollyard, name).__name__ == name
    assert name in dir(rollyard)


def test_another_name_is_not_there() -> None:
    misspelt = "Cleint"
    with pytest.raises(AttributeError, match="no attribute 'Cleint'"):
        getattr(rollyard, misspelt)
