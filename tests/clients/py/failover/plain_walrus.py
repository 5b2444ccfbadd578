"""walrus, its Stream and ConsumerGroup, on the plain port. It reads RESP2 alone."""
import asyncio
import contextlib

import life
import walrus


class Adapter:
    def __init__(self, db):
        self.db = db

    def group(self, key, group, consumer):
        return self.db.consumer_group(group, [key], consumer=consumer).streams[key]

    async def add(self, key, fields):
        return life.text(await asyncio.to_thread(self.db.Stream(key).add, fields))

    async def range(self, key):
        return rows(await asyncio.to_thread(self.db.Stream(key).range))

    async def create_group(self, key, group):
        await asyncio.to_thread(self.db.consumer_group(group, {key: "0"}).create)

    async def read_group(self, key, group, consumer, count):
        return rows(await asyncio.to_thread(self.group(key, group, consumer).read, count=count))

    async def blocking_read(self, key, ms):
        return rows(await asyncio.to_thread(self.db.Stream(key).read, block=ms, last_id="$"))

    async def ack(self, key, group, ids):
        return await asyncio.to_thread(self.group(key, group, None).ack, *ids)

    async def pending(self, key, group):
        return (await asyncio.to_thread(self.db.xpending_summary, key, group))["pending"]

    async def claim(self, key, group, consumer, count):
        stream = self.group(key, group, consumer)
        return rows((await asyncio.to_thread(stream.autoclaim, consumer, 0, "0-0", count=count))[1])


def rows(reply):
    return [(life.text(i), life.fields(f)) for i, f in reply]


@contextlib.asynccontextmanager
async def connect(port, protocol):
    assert protocol == 2
    db = walrus.Database(host="127.0.0.1", port=port, protocol=2)
    yield Adapter(db)
    await asyncio.to_thread(db.close)


if __name__ == "__main__":
    life.main(connect)
