"""redis-py, RedisCluster: the synchronous client, called from threads."""
import asyncio
import contextlib

import life
from redis.cluster import RedisCluster


class Adapter:
    def __init__(self, r):
        self.r = r

    async def call(self, function, *args, **options):
        return await asyncio.to_thread(function, *args, **options)

    async def add(self, key, fields):
        return await self.call(self.r.xadd, key, fields)

    async def range(self, key):
        return rows(await self.call(self.r.xrange, key))

    async def create_group(self, key, group):
        await self.call(self.r.xgroup_create, key, group, id="0")

    async def read_group(self, key, group, consumer, count):
        return first(await self.call(self.r.xreadgroup, group, consumer, {key: ">"}, count=count))

    async def blocking_read(self, key, ms):
        return first(await self.call(self.r.xread, {key: "$"}, block=ms))

    async def ack(self, key, group, ids):
        return await self.call(self.r.xack, key, group, *ids)

    async def pending(self, key, group):
        return (await self.call(self.r.xpending, key, group))["pending"]

    async def claim(self, key, group, consumer, count):
        return rows((await self.call(self.r.xautoclaim, key, group, consumer, 0, count=count))[1])


def rows(reply):
    return [(life.text(i), life.fields(f)) for i, f in reply]


def first(reply):
    """The entries of the only stream of XREAD and XREADGROUP: a list of pairs in RESP2, a map in RESP3."""
    if not reply:
        return []
    inner = next(iter(reply.values())) if isinstance(reply, dict) else reply[0][1]
    return rows(inner[0] if inner and isinstance(inner[0], list) else inner)


@contextlib.asynccontextmanager
async def connect(port, protocol):
    r = await asyncio.to_thread(RedisCluster, host="127.0.0.1", port=port, protocol=protocol, decode_responses=True)
    yield Adapter(r)
    await asyncio.to_thread(r.close)


if __name__ == "__main__":
    life.main(connect)
