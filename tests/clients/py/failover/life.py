"""What every client lives through here: produce, group, acknowledge, blocking read, a leader killed while it produces,
reclaim what the dead consumer held. An adapter says each step in its client's own words.

Talks to `ops/client-lives` over stdin and stdout: `failover KEY` asks it to kill the leader of that key's slot, and one
line comes back once that is done.
"""
import asyncio
import os
import secrets
import sys
import time

# While a leader is replaced a client may see errors for about a second; more than this is a fault.
OUTAGE_SECONDS = 20
ENTRIES = 200
# All keys of a life share a slot; behind a plain port it says which node leads it.
TAG = os.environ.get("WEIR_LIFE_TAG") or secrets.token_hex(4)


def key_of(name):
    return f"life:{{{TAG}}}:{name}"


def say(line):
    print(line, flush=True)


async def kill_the_leader_of(key):
    say(f"failover {key}")
    answer = await asyncio.to_thread(sys.stdin.readline)
    assert answer.strip() == "killed", answer


async def insist(call):
    """What an application does: repeats a call that failed. An append that failed may have happened all the same."""
    deadline = time.monotonic() + OUTAGE_SECONDS
    while True:
        try:
            return await call()
        except AssertionError:
            raise
        except Exception:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.02)


async def live(c):
    key, quiet = key_of("jobs"), key_of("quiet")
    added = [await c.add(key, {"n": str(n), "bytes": "\u00e9\r\n"}) for n in range(ENTRIES)]
    assert added == sorted(set(added), key=order), added
    rows = await c.range(key)
    assert [i for i, _ in rows] == added and rows[7][1] == {"n": "7", "bytes": "\u00e9\r\n"}, rows[7]
    say("ok produce")

    await c.create_group(key, "g")
    alice = [i for i, _ in await c.read_group(key, "g", "alice", ENTRIES // 2)]
    bob = [i for i, _ in await c.read_group(key, "g", "bob", ENTRIES)]
    assert alice == added[: len(alice)] and alice + bob == added
    assert await c.ack(key, "g", bob) == len(bob)
    assert await c.pending(key, "g") == len(alice)
    say("ok group")

    reading = asyncio.ensure_future(c.blocking_read(quiet, 10_000))
    while not reading.done():
        # The reader may not wait yet.
        await c.add(quiet, {"n": "wake"})
        await asyncio.sleep(0.05)
    woken = await reading
    assert woken and woken[0][1] == {"n": "wake"}, woken
    say("ok blocking read")

    killing = asyncio.ensure_future(kill_the_leader_of(key))
    before, gap, last = len(added), 0.0, time.monotonic()
    after_kill = 0
    while after_kill < ENTRIES:
        added.append(await insist(lambda: c.add(key, {"n": "during"})))
        gap, last = max(gap, time.monotonic() - last), time.monotonic()
        after_kill += killing.done()
        await asyncio.sleep(0.001)
    await killing
    ids = {i for i, _ in await insist(lambda: c.range(key))}
    lost = [i for i in added if i not in ids]
    assert not lost, f"answered, and lost: {lost}"
    say(f"gap {gap:.2f}")
    say(f"ok failover: {len(added) - before} appended meanwhile, none lost")

    claimed = [i for i, _ in await insist(lambda: c.claim(key, "g", "carol", ENTRIES))]
    assert claimed == alice, (claimed, alice)
    assert await c.ack(key, "g", claimed) == len(claimed)
    rest = await c.read_group(key, "g", "carol", 100 * ENTRIES)
    assert {i for i, _ in rest} == ids - set(alice) - set(bob)
    assert await c.ack(key, "g", [i for i, _ in rest]) == len(rest)
    assert await c.pending(key, "g") == 0
    say("ok reclaim")


def order(entry_id):
    return tuple(map(int, entry_id.split("-")))


def text(value):
    return value.decode() if isinstance(value, bytes) else value


def fields(pairs):
    """A dict of strings, of a mapping or of pairs."""
    pairs = pairs.items() if isinstance(pairs, dict) else pairs
    return {text(k): text(v) for k, v in pairs}


def main(adapter):
    """Runs `python3 FILE PORT PROTOCOL`."""
    port, protocol = int(sys.argv[1]), int(sys.argv[2])

    async def run():
        async with adapter(port, protocol) as c:
            await live(c)

    asyncio.run(run())
