"""The tree of errors is as it is drawn, and names what crosses the wire."""

import re

from rollyard import errors
from rollyard.errors import KINDS, Conflict, RollyardError

BRANCH = re.compile(r"^([│ ]*)[├└]── (\w+) *(\d*)", re.MULTILINE)


def drawn() -> dict[str, tuple[str, str]]:
    """Name -> the name above it, and its status if it says one."""
    found, above = {}, ["RollyardError"]
    for branch, name, status in BRANCH.findall(errors.__doc__ or ""):
        above[len(branch) // 4 + 1 :] = [name]
        found[name] = (above[-2], status)
    return found


def test_every_error_is_drawn_below_the_one_that_it_refines() -> None:
    bases = {name: kind.__base__ for name, kind in KINDS.items() if kind is not RollyardError}
    assert {name: base.__name__ for name, base in bases.items() if base} == {
        name: above for name, (above, _) in drawn().items()
    }


def test_every_status_is_the_one_that_is_drawn() -> None:
    for name, (above, status) in drawn().items():
        assert KINDS[name].status == (int(status) if status else KINDS[above].status)


def test_an_error_refined_elsewhere_crosses_the_wire_as_the_one_that_it_refines() -> None:
    class Quarrel(Conflict):
        pass

    assert Quarrel("two at once").code == "Conflict"
