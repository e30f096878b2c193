"""Small messages for tests: a trajectory from a list of (text role, tokens) pieces."""

from array import array

from rollyard.messages import (
    Batch,
    ChatMessage,
    Counters,
    Grade,
    Group,
    Lease,
    Outcome,
    Prompt,
    Result,
    Trajectory,
    Turn,
    WeightSpan,
)


def trajectory(
    *pieces: tuple[str, list[int]], logprob: float = -1.0, versions: tuple[int, ...] = ()
) -> Trajectory:
    """`pieces` are ("given" | "sampled", token ids); one weight version a sampled piece."""
    ids: list[int] = []
    mask: list[int] = []
    turns: list[Turn] = []
    for kind, tokens in pieces:
        if kind == "sampled":
            end = len(ids) + len(tokens)
            turns.append(Turn(start=len(ids), end=end, finish_reason="stop"))
        ids += tokens
        mask += [int(kind == "sampled")] * len(tokens)
    return Trajectory(
        token_ids=array("i", ids),
        loss_mask=array("b", mask),
        logprobs=array("f", [logprob * sampled for sampled in mask]),
        weight_spans=tuple(
            WeightSpan(version=version, start=turn.start, end=turn.end)
            for turn, version in zip(turns, versions or (0,) * len(turns), strict=True)
        ),
        turns=tuple(turns),
        messages=(ChatMessage(role="user", content="1*1"),),
    )


def group(name: str, *members: tuple[float, Trajectory]) -> Group:
    """`members` are (reward, trajectory)."""
    results = tuple(
        Result(
            lease=Lease(job_id=f"{name}-{index}", attempt=1, server_id="agent-1", slot="slot-1"),
            outcome=Outcome.COMPLETED,
            grade=Grade(reward=reward),
            trajectory=tokens,
        )
        for index, (reward, tokens) in enumerate(members)
    )
    prompt = Prompt(prompt_id=name, instance={"data_source": "arithmetic"})
    return Group(group_id=name, prompt=prompt, results=results)


def batch(*groups: Group, counters: Counters | None = None) -> Batch:
    return Batch(batch_id="batch-1", run_id="run-1", groups=groups, counters=counters or Counters())
