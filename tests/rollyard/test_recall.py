"""What was fed lately is fed again if the Run counts too few Jobs, and only then."""

from rollyard.messages import Prompt
from rollyard.recall import Recall


def prompts(*names: str) -> tuple[Prompt, ...]:
    return tuple(Prompt(prompt_id=name, instance={"data_source": "arithmetic"}) for name in names)


def test_nothing_is_fed_again_while_the_run_counts_every_group() -> None:
    recall = Recall()
    recall.fed(prompts("a", "b"), new=2)
    assert recall.forgotten(groups_fed=2) == ()
    assert recall.forgotten(groups_fed=5) == (), "an operator may requeue, which counts too"


def test_all_that_was_fed_lately_is_fed_again_when_a_group_is_missing() -> None:
    recall = Recall()
    recall.fed(prompts("a", "b"), new=2)
    assert recall.forgotten(groups_fed=1) == prompts("a", "b")
    assert recall.forgotten(groups_fed=2) == ()


def test_what_is_forgotten_while_it_is_fed_again_is_noticed() -> None:
    recall = Recall()
    recall.fed(prompts("a", "b", "c"), new=3)
    assert recall.forgotten(groups_fed=1) != ()
    assert recall.forgotten(groups_fed=2) != ()
    assert recall.forgotten(groups_fed=3) == ()


def test_what_was_trained_on_is_not_fed_again_and_not_missed_for_ever() -> None:
    recall = Recall()
    recall.fed(prompts("a", "b"), new=2)
    recall.done({"a"}, alive={"b"})
    assert recall.forgotten(groups_fed=1) == prompts("b")
    assert recall.forgotten(groups_fed=1) == prompts("b")
    assert recall.forgotten(groups_fed=1) == ()
    assert recall.forgotten(groups_fed=1) == ()


def test_what_was_fed_again_and_lost_again_is_fed_once_more() -> None:
    recall = Recall()
    recall.fed(prompts("a", "b"), new=2)
    assert recall.forgotten(groups_fed=1) == prompts("a", "b")
    assert recall.forgotten(groups_fed=1) == prompts("a", "b")
    assert recall.forgotten(groups_fed=2) == ()


def test_what_the_run_may_have_had_before_is_not_missed() -> None:
    recall = Recall()
    assert recall.forgotten(groups_fed=7) == ()
    recall.fed(prompts("a", "b"), new=0)
    assert recall.forgotten(groups_fed=7) == ()


def test_a_prompt_of_which_a_part_is_trained_on_is_remembered_while_the_run_has_it() -> None:
    recall = Recall()
    recall.fed(prompts("a", "b"), new=2)
    recall.done({"a"}, alive={"a", "b"})
    assert recall.prompts == prompts("a", "b")
    recall.done({"a"}, alive=())
    assert recall.prompts == prompts("b"), "it was filtered, or forgotten: the count tells which"
