"""`rollyard show`: what people see of a trajectory, from a real orchestrator over HTTP."""

import msgspec
import pytest

from launch.show import decoder, described, ids_as_text, stretches
from rollyard import Client
from rollyard.messages import JobRecord, JobState, JobView, Lease, LLMNode, TokenArray, Turn
from tests.launch.test_operator_commands import OperatedQueues, deployment
from tests.llm_fixtures import POLICY
from tests.orchestrator.fake_agents import fake_agent
from tests.orchestrator.moves import completed

__all__ = ["deployment"]


def rows(count: int) -> list[dict[str, object]]:
    return [{"data_source": "arithmetic", "instance_id": f"p{n}"} for n in range(count)]


def test_a_job_that_is_accepted_is_shown_with_its_trajectory_until_its_batch_is_acknowledged(
    deployment: OperatedQueues,
) -> None:
    with fake_agent(deployment.url, lambda job: float(job.member), server_id="agent-1"):
        run = Client(deployment.url).run(rows(1), run_id="short", group_size=2)
        batch = run.rollout(1)
        (group,) = batch.groups
        name = f"short/{group.group_id}"
        shown = deployment.ask("show", f"{name}/1").stdout
        both = deployment.ask_json("show", name)
        run.ack(batch)
    assert "it has its result, with reward 1\n" in shown
    assert " on agent-1, accepted\n" in shown
    assert "init 0.00 s, run 0.00 s" in shown
    assert "4 tokens, 2 of them sampled:\n[0:2] given\n1 2\n" in shown
    assert "[2:4] sampled in turn 1 (stop); 2:4 by weights 0; mean logprob -0.375\n3 100\n" in shown
    assert [view["result"]["grade"]["reward"] for view in both["jobs"]] == [0.0, 1.0]
    gone = deployment.ask("show", name)
    assert gone.exit_code == 1
    assert f"nothing is left of '{name}': its batch was acknowledged" in str(gone.exception)


def test_a_job_that_waits_is_shown_with_what_it_waits_for(deployment: OperatedQueues) -> None:
    shown = deployment.ask("show", "train/p0").stdout
    assert "train/p0/0  its run is held: the trainer has not requested a batch" in shown
    assert "train/p0/1  " in shown
    assert "train/p0/1" not in deployment.ask("show", "train/p0", "--limit", "1").stdout


@pytest.mark.parametrize("name", ["train/none", "train/none/0", "other/p0/0"])
def test_what_never_was_is_said_so(deployment: OperatedQueues, name: str) -> None:
    answer = deployment.ask("show", name)
    assert answer.exit_code == 1
    assert "there is no " in str(answer.exception)


def test_tokens_are_text_where_the_model_s_tokenizer_is() -> None:
    here = LLMNode(node_id="n", url="http://h:1", servers=(), model=str(POLICY))
    elsewhere = LLMNode(node_id="n", url="http://h:1", servers=(), model="/no/such/model")
    ids = [ord(letter) for letter in "6*7"]
    assert decoder([elsewhere])(ids) == "54 42 55"
    assert len(decoder([elsewhere, here])(ids)) == 3


def test_every_sequence_of_a_split_trajectory_is_shown() -> None:
    lease = Lease(job_id="r/g/0", attempt=1, server_id="a", slot="a#0")
    result = completed(lease)
    assert result.trajectory is not None
    turn = Turn(start=1, end=2, finish_reason="stop")
    earlier = msgspec.structs.replace(result.trajectory, turns=(turn,))
    last = msgspec.structs.replace(earlier, earlier=(earlier,), truncated=True)
    record = JobRecord(job_id="r/g/0", state=JobState.ACCEPTED)
    view = JobView(job=record, reason="", result=msgspec.structs.replace(result, trajectory=last))
    shown = described(view, ids_as_text).plain
    first, _, second = shown.partition("then the chat template rewrote the conversation:")
    assert "2 tokens, 1 of them sampled, " in first
    assert "[1:2] sampled in turn 1 (stop)" in second
    assert "2 tokens, 1 of them sampled, cut off by a limit:" in second
    assert "[1:2] sampled in turn 2 (stop)" in second


def test_what_was_given_and_sampled_is_told_apart_by_the_mask() -> None:
    mask = TokenArray("b", [0, 0, 1, 0, 1, 1])
    assert list(stretches(mask)) == [(0, 2, False), (2, 3, True), (3, 4, False), (4, 6, True)]
