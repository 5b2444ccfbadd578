"""taskiq with taskiq-redis' RedisStreamClusterBroker: tasks are kicked and worked on through a failover."""
import asyncio
import secrets
import sys

import life
from taskiq.receiver import Receiver
from taskiq_redis import RedisStreamClusterBroker

TASKS = 100


async def run(port, protocol):
    queue = f"life:{secrets.token_hex(4)}:tasks"
    broker = RedisStreamClusterBroker(
        f"redis://127.0.0.1:{port}", queue_name=queue, consumer_id="0", xread_block=500, protocol=protocol
    )
    done = set()

    @broker.task
    async def work(n: int) -> None:
        done.add(n)

    await broker.startup()
    finish = asyncio.Event()

    async def worker():
        # What a process supervisor does: a worker that died of the outage is started again.
        while not finish.is_set():
            try:
                await Receiver(broker, run_startup=False).listen(finish)
            except Exception:
                await asyncio.sleep(0.1)

    working = asyncio.ensure_future(worker())
    await until(lambda: done >= set(range(TASKS)), kick(work, range(TASKS)))
    life.say("ok tasks")
    killing = asyncio.ensure_future(life.kill_the_leader_of(queue))
    await kick(work, range(TASKS, 2 * TASKS))
    await killing
    await until(lambda: done >= set(range(3 * TASKS)), kick(work, range(2 * TASKS, 3 * TASKS)), reclaim(broker))
    pending = (await life.insist(lambda: broker.redis.xpending(queue, "taskiq")))["pending"]
    assert pending == 0, pending
    life.say("ok failover: every task done")
    finish.set()
    working.cancel()
    await broker.shutdown()


async def kick(task, numbers):
    for n in numbers:
        await life.insist(lambda n=n: task.kiq(n))


async def reclaim(broker):
    """Entries whose reply was lost with the leader stay pending with the consumer: taskiq has no recovery for clusters,
    so this is done by hand as its users do."""
    for _ in range(20):
        await asyncio.sleep(0.1)
        claimed = await life.insist(
            lambda: broker.redis.xautoclaim(broker.queue_name, "taskiq", "janitor", 300, "0-0", count=1000)
        )
        for entry_id, fields in claimed[1]:
            await life.insist(lambda: broker.redis.xadd(broker.queue_name, fields))
            await life.insist(lambda: broker.redis.xack(broker.queue_name, "taskiq", entry_id))


async def until(condition, *working):
    await asyncio.gather(*working)
    async with asyncio.timeout(life.OUTAGE_SECONDS):
        while not condition():
            await asyncio.sleep(0.02)


if __name__ == "__main__":
    asyncio.run(run(int(sys.argv[1]), int(sys.argv[2])))
