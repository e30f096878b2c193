"""The benchmark of agents, on a few samples."""

from benchmarks.agents.sandboxes import SandboxTimes, measure, summary


def test_every_time_of_a_sandbox_is_measured_as_often_as_asked() -> None:
    times = measure(starts=2, commands=4)
    counts = {name: len(getattr(times, name)) for name in SandboxTimes.__struct_fields__}
    expected = dict.fromkeys(SandboxTimes.__struct_fields__, 2)
    assert counts == expected | {"bash": 3, "closing": 4}
    assert all(sample > 0 for name in counts for sample in getattr(times, name))
    assert set(summary(times)) == set(counts)
