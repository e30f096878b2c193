"""Criteria by which Groups and trajectories are effective, that is, worth a place in a Batch."""

from collections.abc import Callable, Sequence

from rollyard.messages import Criterion, RunSettings


def is_effective(settings: RunSettings, rewards: Sequence[float]) -> bool:
    """Whether a Group with these rewards, or a single trajectory with its own, is effective."""
    return _CRITERIA[settings.criterion](rewards, settings.solved_at)


def solved(settings: RunSettings, rewards: Sequence[float]) -> int:
    """Number of trajectories with these rewards that are solved."""
    return sum(reward >= settings.solved_at for reward in rewards)


def _spread(rewards: Sequence[float], _: float) -> bool:
    return any(reward != rewards[0] for reward in rewards)


def _partly(rewards: Sequence[float], solved_at: float) -> bool:
    return bool(rewards) and min(rewards) < solved_at <= max(rewards)


def _any(rewards: Sequence[float], solved_at: float) -> bool:
    return bool(rewards) and max(rewards) >= solved_at


_CRITERIA: dict[Criterion, Callable[[Sequence[float], float], bool]] = {
    Criterion.REWARD_SPREAD: _spread,
    Criterion.PARTLY_SOLVED: _partly,
    Criterion.ANY_SOLVED: _any,
    Criterion.COMPLETE: lambda rewards, solved_at: True,
}
