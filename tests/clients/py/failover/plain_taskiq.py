"""taskiq with taskiq-redis' RedisStreamBroker on the plain port.

It reclaims under a lock of redis-py, which is given back by a Lua script; Weir has no scripts. So the lock is one that is
given back by DEL, and this is the one thing here that is not as its users have it. The name of the lock holds that of the
queue: queues need a hash tag, for both are changed in one transaction.
"""
import asyncio

import with_taskiq
from redis.asyncio import Redis
from redis.asyncio.client import Pipeline
from taskiq_redis import RedisStreamBroker


class Lock:
    """Both steps are queued in the pipeline, as those of redis-py's Lock are there."""

    def __init__(self, pipeline, name, timeout=None):
        self.pipeline, self.name, self.timeout = pipeline, name, timeout

    async def acquire(self):
        self.pipeline.set(self.name, "held", nx=True, ex=self.timeout)

    async def release(self):
        self.pipeline.delete(self.name)


async def itself(_broker):
    """RedisStreamBroker reclaims without help."""
    await asyncio.Event().wait()


if __name__ == "__main__":
    Pipeline.lock = Lock
    with_taskiq.main(RedisStreamBroker, lambda broker: Redis(connection_pool=broker.connection_pool), itself,
                     idle_timeout=1000, unacknowledged_lock_timeout=5)
