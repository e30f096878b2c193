"""What was fed lately is fed again if the Run counts too few Jobs, and only then."""

from rollyard.messages import Prompt
from rollyard.recall import Recall


def prompts(*names: str) -> tuple[Prompt, ...]:
    return tuple(Prompt(prompt_id=name, instance={"data_source": "arithmetic"}) for name in names)


def test_nothing_is_fed_again_while_the_run_counts_every_job() -> None:
    recall = Recall(group_size=2)
    recall.fed(prompts("a", "b"))
    assert recall.forgotten(jobs_submitted=4) == ()
    assert recall.forgotten(jobs_submitted=10) == (), "an operator may requeue, which counts too"


def test_all_that_was_fed_lately_is_fed_again_when_a_job_is_missing() -> None:
    recall = Recall(group_size=2)
    recall.fed(prompts("a", "b"))
    assert recall.forgotten(jobs_submitted=3) == prompts("a", "b")
    assert recall.forgotten(jobs_submitted=4) == ()


def test_what_is_forgotten_while_it_is_fed_again_is_noticed() -> None:
    recall = Recall(group_size=1)
    recall.fed(prompts("a", "b", "c"))
    assert recall.forgotten(jobs_submitted=1) != ()
    assert recall.forgotten(jobs_submitted=2) != ()
    assert recall.forgotten(jobs_submitted=3) == ()


def test_what_was_trained_on_is_not_fed_again_and_not_missed_for_ever() -> None:
    recall = Recall(group_size=1)
    recall.fed(prompts("a", "b"))
    recall.done({"a"})
    assert recall.forgotten(jobs_submitted=1) == prompts("b")
    assert recall.forgotten(jobs_submitted=1) == ()
    assert recall.forgotten(jobs_submitted=1) == ()
