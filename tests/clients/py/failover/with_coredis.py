"""coredis, RedisCluster (it speaks RESP3 only)."""
import contextlib

import coredis
import life


class Adapter:
    def __init__(self, r):
        self.r = r

    async def add(self, key, fields):
        return await self.r.xadd(key, fields)

    async def range(self, key):
        return rows(await self.r.xrange(key))

    async def create_group(self, key, group):
        await self.r.xgroup_create(key, group, identifier="0")

    async def read_group(self, key, group, consumer, count):
        return only(await self.r.xreadgroup(group, consumer, {key: ">"}, count=count))

    async def blocking_read(self, key, ms):
        return only(await self.r.xread({key: "$"}, block=ms))

    async def ack(self, key, group, ids):
        return await self.r.xack(key, group, ids)

    async def pending(self, key, group):
        return (await self.r.xpending(key, group)).pending

    async def claim(self, key, group, consumer, count):
        return rows((await self.r.xautoclaim(key, group, consumer, 0, "0-0", count=count))[1])


def rows(reply):
    return [(e.identifier, life.fields(e.field_values)) for e in reply]


def only(reply):
    return rows(next(iter(reply.values()))) if reply else []


@contextlib.asynccontextmanager
async def connect(port, protocol):
    assert protocol == 3
    async with coredis.RedisCluster(host="127.0.0.1", port=port, decode_responses=True) as r:
        yield Adapter(r)


if __name__ == "__main__":
    life.main(connect)
