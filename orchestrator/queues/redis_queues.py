"""The three queues in Redis.

Every move is one script of `orchestrator/scripts` (keys are documented in `_common.lua`), so that
a kill -9 anywhere leaves it done or not done. Works with one Redis or Valkey from 7.0 on, not with
a cluster. Safe to share between threads.
"""

from orchestrator.queues.redis_jobs import RedisJobs
from orchestrator.queues.redis_operations import RedisOperations
from orchestrator.queues.redis_servers import RedisServers
from orchestrator.queues.redis_storage import RedisStorage
from orchestrator.queues.redis_weights import RedisWeights


class Queues(RedisJobs, RedisServers, RedisWeights, RedisOperations, RedisStorage):
    """What they promise is in `contract.py`; each part is in its own module."""
