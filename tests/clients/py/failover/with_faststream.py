"""FastStream's RedisClusterBroker: a stream subscriber in a group, through a failover."""
import asyncio
import logging
import re
import secrets
import sys

import life
from faststream.redis import RedisClusterBroker, StreamSub

MESSAGES = 100


async def run(port, protocol):
    stream = f"life:{secrets.token_hex(4)}:events"
    broker = RedisClusterBroker(f"redis://127.0.0.1:{port}", protocol=protocol, logger=logging.getLogger("quiet"))
    logging.getLogger("quiet").setLevel(logging.CRITICAL)
    got = set()

    @broker.subscriber(stream=StreamSub(stream, group="g", consumer="c1", polling_interval=200))
    async def handle(n: int) -> None:
        got.add(n)

    async with broker:
        await broker.start()
        await publish(broker, stream, range(MESSAGES))
        await until(lambda: got >= set(range(MESSAGES)))
        life.say("ok messages")
        killing = asyncio.ensure_future(life.kill_the_leader_of(stream))
        await publish(broker, stream, range(MESSAGES, 2 * MESSAGES))
        await killing
        await publish(broker, stream, range(2 * MESSAGES, 3 * MESSAGES))
        redis = await broker.connect()
        # What was delivered, and whose reply was lost with the leader, waits under the consumer's name.
        lost = await life.insist(lambda: redis.xreadgroup("g", "c1", {stream: "0"}, count=1000))
        await until(lambda: got | numbers(lost) >= set(range(3 * MESSAGES)))
        life.say("ok failover: every message handled or pending")


def numbers(reply):
    rows = [] if not reply else (next(iter(reply.values())) if isinstance(reply, dict) else reply[0][1])
    rows = rows[0] if rows and isinstance(rows[0], list) and rows[0] and isinstance(rows[0][0], (list, tuple)) else rows
    found = set()
    for _, fields in rows:
        # The body stands last in FastStream's binary envelope.
        found.add(int(re.search(rb"\d+$", fields[b"__data__"])[0]))
    return found


async def publish(broker, stream, values):
    for n in values:
        await life.insist(lambda n=n: broker.publish(n, stream=stream))


async def until(condition):
    async with asyncio.timeout(life.OUTAGE_SECONDS):
        while not condition():
            await asyncio.sleep(0.02)


if __name__ == "__main__":
    asyncio.run(run(int(sys.argv[1]), int(sys.argv[2])))
