"""redis-py, the asyncio RedisCluster."""
import contextlib

import life
from redis.asyncio.cluster import RedisCluster
from with_redis_py import Adapter


class AsyncAdapter(Adapter):
    async def call(self, function, *args, **options):
        return await function(*args, **options)


@contextlib.asynccontextmanager
async def connect(port, protocol):
    async with RedisCluster(host="127.0.0.1", port=port, protocol=protocol, decode_responses=True) as r:
        yield AsyncAdapter(r)


if __name__ == "__main__":
    life.main(connect)
