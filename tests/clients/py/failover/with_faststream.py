"""FastStream's RedisClusterBroker: a stream subscriber in a group that takes over what was left pending, through a
failover."""
import asyncio
import logging
import sys

import life
from faststream.redis import RedisClusterBroker, StreamSub

MESSAGES = 100


async def run(new_broker, port, protocol):
    stream = life.key_of("events")
    logging.getLogger("quiet").setLevel(logging.CRITICAL)
    broker = new_broker(f"redis://127.0.0.1:{port}", protocol=protocol, logger=logging.getLogger("quiet"))
    got = set()

    # What was delivered, and whose reply was lost with the leader, is claimed by a later read.
    @broker.subscriber(
        stream=StreamSub(stream, group="g", consumer="c1", polling_interval=200, claim_min_idle_time=1000)
    )
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
        await until(lambda: got >= set(range(3 * MESSAGES)))
        redis = await broker.connect()
        async with asyncio.timeout(life.OUTAGE_SECONDS):
            while (await life.insist(lambda: redis.xpending(stream, "g")))["pending"]:
                await asyncio.sleep(0.1)
        life.say("ok failover: every message handled and acknowledged")


async def publish(broker, stream, values):
    for n in values:
        await life.insist(lambda n=n: broker.publish(n, stream=stream))


async def until(condition):
    async with asyncio.timeout(life.OUTAGE_SECONDS):
        while not condition():
            await asyncio.sleep(0.02)


def main(new_broker):
    asyncio.run(run(new_broker, int(sys.argv[1]), int(sys.argv[2])))


if __name__ == "__main__":
    main(RedisClusterBroker)
