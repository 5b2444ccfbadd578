"""valkey-glide, GlideClusterClient."""
import contextlib

import life
from glide import (
    GlideClusterClient,
    GlideClusterClientConfiguration,
    MaxId,
    MinId,
    NodeAddress,
    ProtocolVersion,
    StreamReadGroupOptions,
    StreamReadOptions,
)


class Adapter:
    def __init__(self, r, blocking):
        self.r, self.blocking = r, blocking

    async def add(self, key, fields):
        return life.text(await self.r.xadd(key, list(fields.items())))

    async def range(self, key):
        return rows(await self.r.xrange(key, MinId(), MaxId()))

    async def create_group(self, key, group):
        await self.r.xgroup_create(key, group, "0")

    async def read_group(self, key, group, consumer, count):
        return only(await self.r.xreadgroup({key: ">"}, group, consumer, StreamReadGroupOptions(count=count)))

    async def blocking_read(self, key, ms):
        return only(await self.blocking.xread({key: "$"}, StreamReadOptions(block_ms=ms)))

    async def ack(self, key, group, ids):
        return await self.r.xack(key, group, ids)

    async def pending(self, key, group):
        return (await self.r.xpending(key, group))[0]

    async def claim(self, key, group, consumer, count):
        return rows((await self.r.xautoclaim(key, group, consumer, 0, "0-0", count=count))[1])


def rows(reply):
    return [(life.text(i), life.fields(f)) for i, f in (reply or {}).items()]


def only(reply):
    return rows(next(iter(reply.values()))) if reply else []


@contextlib.asynccontextmanager
async def connect(port, protocol):
    def configuration():
        return GlideClusterClientConfiguration(
            [NodeAddress("127.0.0.1", port)],
            protocol=ProtocolVersion.RESP2 if protocol == 2 else ProtocolVersion.RESP3,
            request_timeout=5000,
        )

    r = await GlideClusterClient.create(configuration())
    # One connection a node: a blocking read needs a client of its own.
    blocking = await GlideClusterClient.create(configuration())
    yield Adapter(r, blocking)
    await r.close()
    await blocking.close()


if __name__ == "__main__":
    life.main(connect)
