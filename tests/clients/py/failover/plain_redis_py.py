"""redis-py's plain Redis, which knows no cluster, on the plain port: called from threads."""
import asyncio
import contextlib

import life
import redis
from with_redis_py import Adapter


@contextlib.asynccontextmanager
async def connect(port, protocol):
    r = redis.Redis(host="127.0.0.1", port=port, protocol=protocol, decode_responses=True)
    yield Adapter(r)
    await asyncio.to_thread(r.close)


if __name__ == "__main__":
    life.main(connect)
