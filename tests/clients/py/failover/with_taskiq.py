"""taskiq with taskiq-redis' RedisStreamClusterBroker: tasks are kicked and worked on through a failover."""
import asyncio
import sys

import life
from taskiq.receiver import Receiver
from taskiq_redis import RedisStreamClusterBroker

TASKS = 100


async def run(broker, redis, reclaim):
    """`reclaim` goes on until it is cancelled."""
    done = set()

    @broker.task
    async def work(n: int) -> None:
        done.add(n)

    async def goes_on():
        # RedisStreamBroker reclaims after it has read something new: an application goes on kicking.
        while True:
            await kick(work, [-1])
            await asyncio.sleep(0.3)

    await broker.startup()
    finish = asyncio.Event()

    async def worker():
        # What a process supervisor does: a worker that died of the outage is started again.
        while not finish.is_set():
            try:
                await Receiver(broker, run_startup=False).listen(finish)
            except Exception:
                await asyncio.sleep(0.1)

    working = [asyncio.ensure_future(task) for task in (worker(), reclaim(broker))]
    await kick(work, range(TASKS))
    await until(lambda: done >= set(range(TASKS)))
    life.say("ok tasks")
    killing = asyncio.ensure_future(life.kill_the_leader_of(broker.queue_name))
    await kick(work, range(TASKS, 2 * TASKS))
    await killing
    await kick(work, range(2 * TASKS, 3 * TASKS))
    working.append(asyncio.ensure_future(goes_on()))
    await until(lambda: done >= set(range(3 * TASKS)))
    async with asyncio.timeout(life.OUTAGE_SECONDS):
        while (await life.insist(lambda: redis(broker).xpending(broker.queue_name, "taskiq")))["pending"]:
            await asyncio.sleep(0.03)
    life.say("ok failover: every task done")
    finish.set()
    for task in working:
        task.cancel()
    await broker.shutdown()


async def kick(task, numbers):
    for n in numbers:
        await life.insist(lambda n=n: task.kiq(n))


async def reclaim_by_hand(broker):
    """Entries whose reply was lost with the leader stay pending with the consumer: taskiq has no recovery for clusters,
    so this is done by hand as its users do."""
    while True:
        await asyncio.sleep(0.1)
        claimed = await life.insist(
            lambda: broker.redis.xautoclaim(broker.queue_name, "taskiq", "janitor", 1000, "0-0", count=1000)
        )
        for entry_id, fields in claimed[1]:
            await life.insist(lambda: broker.redis.xadd(broker.queue_name, fields))
            await life.insist(lambda: broker.redis.xack(broker.queue_name, "taskiq", entry_id))


async def until(condition):
    async with asyncio.timeout(life.OUTAGE_SECONDS):
        while not condition():
            await asyncio.sleep(0.02)


def main(new_broker, redis, reclaim, **options):
    port, protocol = int(sys.argv[1]), int(sys.argv[2])
    broker = new_broker(f"redis://127.0.0.1:{port}", queue_name=life.key_of("tasks"), consumer_id="0", xread_block=500,
                        protocol=protocol, **options)
    asyncio.run(run(broker, redis, reclaim))


if __name__ == "__main__":
    main(RedisStreamClusterBroker, lambda broker: broker.redis, reclaim_by_hand)
