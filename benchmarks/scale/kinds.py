"""Queues with one and with many kinds of Jobs side by side: the cost of taking a Job.

A kind is an environment here, and one server can run all of them. What grows with the kinds are the
moves that find out anew which server can run what: one with other environments comes, and goes.
"""

import msgspec
import redis

from benchmarks.deployment import BODY, new_cluster
from benchmarks.scale.queued import Fed, Queue, take_costs
from rollyard.messages import AgentServer


class ManyKinds(msgspec.Struct):
    kinds: int
    jobs: int
    take_microseconds: float
    take_microseconds_of_one_kind: float
    script_microseconds: float
    script_microseconds_of_one_kind: float
    longest_call_milliseconds: float
    """The longest call of Redis while many kinds were fed and taken, and servers came and went."""

    @property
    def rate_ratio(self) -> float:
        """Jobs taken in a second among many kinds over those of one: in the whole round trip, or in
        Redis' own part of it, whichever is worse."""
        return min(
            self.take_microseconds_of_one_kind / self.take_microseconds,
            self.script_microseconds_of_one_kind / self.script_microseconds,
        )


def measure(kinds: int, jobs: int, fed: Fed) -> ManyKinds:
    names = [f"environment-{number:04d}" for number in range(kinds)]
    with new_cluster() as one, new_cluster() as other, redis.Redis(port=other.ports.redis) as store:
        few, many = Queue(one), Queue(other, names)
        store.config_set("slowlog-log-slower-than", 1000)
        store.slowlog_reset()
        for queue in (few, many):
            queue.fill(jobs, BODY, fed)
            queue.settle()
        of_few, of_many = take_costs((few, many))
        _come_and_go(many)
        slow = [each["duration"] / 1e3 for each in store.slowlog_get(128)]
    return ManyKinds(
        kinds=kinds,
        jobs=jobs,
        take_microseconds=of_many.microseconds,
        take_microseconds_of_one_kind=of_few.microseconds,
        script_microseconds=of_many.script_microseconds,
        script_microseconds_of_one_kind=of_few.script_microseconds,
        longest_call_milliseconds=round(max(slow, default=1.0), 2),
    )


def _come_and_go(queue: Queue) -> None:
    """Servers that can run half of the kinds, or none, come and leave."""
    servers = queue.queues.servers
    for environments in (queue.environments[::2], ("another",), queue.environments[1::2]):
        servers.register(
            AgentServer(
                server_id=environments[0],
                url="http://127.0.0.1:9",
                slots=1,
                environments=environments,
            )
        )
        servers.leave(environments[0])
