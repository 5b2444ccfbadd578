"""The life of a stream application on redis-py's RedisCluster, unmodified: produce, group, acknowledge, claim,
blocking read, pipeline, cluster topology. Usage: cluster_life.py PORT"""
import secrets
import sys
import threading
import time

import redis
from checks import entries, main, test
from redis.cluster import RedisCluster

PORT = int(sys.argv[1])
RUN = secrets.token_hex(4)


def connect(**options):
    return RedisCluster(host="127.0.0.1", port=PORT, decode_responses=True, **options)


def key(name, tag=None):
    return f"py:{RUN}:{{{tag or name}}}:{name}"


def keys_for_every_primary(r):
    """One new key per primary, so that each shard takes part."""
    found, n, label = {}, 0, secrets.token_hex(4)
    wanted = {node.name for node in r.get_primaries()}
    while set(found) != wanted:
        assert n < 10_000, f"no key reaches {wanted - set(found)}"
        k = key(f"{label}{n}")
        found.setdefault(r.get_node_from_key(k).name, k)
        n += 1
    return found


@test
def every_leader_is_found_as_a_primary(r):
    primaries = r.get_primaries()
    assert len({p.name for p in primaries}) == 3, primaries
    covered = set()
    for start_end in r.cluster_slots().keys():
        covered.update(range(start_end[0], start_end[1] + 1))
    assert len(covered) == 16384, len(covered)
    info = r.cluster_info(target_nodes=primaries[0])
    assert info["cluster_state"] == "ok" and info["cluster_slots_ok"] == "16384", info


@test
def what_is_added_is_read_back(r):
    for name, k in keys_for_every_primary(r).items():
        ids = [r.xadd(k, {"n": i, "node": name}) for i in range(20)]
        assert ids == sorted(ids, key=lambda i: tuple(map(int, i.split("-")))) and len(set(ids)) == 20
        assert r.xlen(k) == 20
        assert r.xrange(k) == [(i, {"n": str(n), "node": name}) for n, i in enumerate(ids)]
        assert [i for i, _ in r.xrevrange(k, count=3)] == ids[::-1][:3]
        later = entries(r.xread({k: ids[17]}, count=10))
        assert later == [(ids[18], {"n": "18", "node": name}), (ids[19], {"n": "19", "node": name})], later
        assert r.xtrim(k, maxlen=5, approximate=False) == 15
        assert r.xdel(k, ids[19]) == 1
        assert r.xinfo_stream(k)["length"] == 4
        assert r.type(k) == "stream" and r.delete(k) == 1 and r.exists(k) == 0


@test
def a_group_delivers_acknowledges_and_claims(r):
    for k in keys_for_every_primary(r).values():
        assert r.xgroup_create(k, "g", id="0", mkstream=True) is True
        try:
            r.xgroup_create(k, "g")
            raise AssertionError("a second XGROUP CREATE was accepted")
        except redis.ResponseError as e:
            assert str(e).startswith("BUSYGROUP"), e
        ids = [r.xadd(k, {"n": i}) for i in range(10)]
        first = entries(r.xreadgroup("g", "alice", {k: ">"}, count=6))
        second = entries(r.xreadgroup("g", "bob", {k: ">"}, count=6))
        assert [i for i, _ in first] == ids[:6] and [i for i, _ in second] == ids[6:], (first, second)
        assert r.xack(k, "g", *ids[:4]) == 4 and r.xack(k, "g", ids[0]) == 0
        pending = r.xpending(k, "g")
        assert pending["pending"] == 6 and pending["min"] == ids[4] and pending["max"] == ids[9], pending
        assert [p["message_id"] for p in r.xpending_range(k, "g", "-", "+", 10, "alice")] == ids[4:6]
        assert [i for i, _ in r.xclaim(k, "g", "carol", 0, [ids[4]])] == [ids[4]]
        cursor, claimed, gone = r.xautoclaim(k, "g", "carol", 0, "0-0", count=100)
        assert cursor == "0-0" and [i for i, _ in claimed] == ids[4:] and gone == [], (cursor, claimed, gone)
        own = entries(r.xreadgroup("g", "carol", {k: "0"}))
        assert [i for i, _ in own] == ids[4:]
        consumers = {c["name"]: c["pending"] for c in r.xinfo_consumers(k, "g")}
        assert consumers == {"alice": 0, "bob": 0, "carol": 6}, consumers
        group, = r.xinfo_groups(k)
        assert group["pending"] == 6 and group["lag"] == 0 and group["entries-read"] == 10, group
        assert r.xgroup_delconsumer(k, "g", "carol") == 6
        assert r.xgroup_destroy(k, "g") == 1


@test
def a_blocked_reader_is_woken(r):
    for k in keys_for_every_primary(r).values():
        got = []

        def reader():
            own = connect()
            got.append(entries(own.xread({k: "$"}, block=10_000)))
            own.close()

        r.xadd(k, {"n": "before"})
        thread = threading.Thread(target=reader)
        thread.start()
        # Entries are added until the reader, which may not have parked yet, has seen one.
        deadline = time.monotonic() + 10
        while thread.is_alive() and time.monotonic() < deadline:
            r.xadd(k, {"n": "after"})
            thread.join(0.05)
        thread.join()
        assert got[0] and got[0][0][1] == {"n": "after"}, got

        began = time.monotonic()
        assert not entries(r.xread({k: "$"}, block=200))
        assert time.monotonic() - began >= 0.19


@test
def a_pipeline_keeps_its_order(r):
    ks = list(keys_for_every_primary(r).values())
    pipe = r.pipeline()
    for n in range(100):
        for k in ks:
            pipe.xadd(k, {"n": n})
    replies = pipe.execute()
    assert len(replies) == 100 * len(ks)
    for at, k in enumerate(ks):
        assert [i for i, _ in r.xrange(k)] == replies[at::len(ks)]
        assert [f["n"] for _, f in r.xrange(k)] == [str(n) for n in range(100)]


@test
def a_transaction_on_one_tag_is_one_unit(r):
    a, b = key("a", "both"), key("b", "both")
    pipe = r.pipeline(transaction=True)
    pipe.xadd(a, {"n": 1})
    pipe.xadd(b, {"n": 2})
    pipe.xlen(a)
    replies = pipe.execute()
    assert replies[2] == 1 and r.xlen(b) == 1, replies


@test
def other_slots_in_one_command_are_refused(r):
    a, b = list(keys_for_every_primary(r).values())[:2]
    node = r.get_node_from_key(a)
    try:
        r.execute_command("XREAD", "COUNT", "1", "STREAMS", a, b, "0", "0", target_nodes=node)
        raise AssertionError("two slots in one XREAD were accepted")
    except redis.ResponseError as e:
        assert "hash to the same slot" in str(e) or "CROSSSLOT" in str(e), e


@test
def wait_counts_the_other_replicas(r):
    k = key("wait")
    node = r.get_node_from_key(k)
    r.xadd(k, {"n": 1})
    answered = r.execute_command("WAIT", 0, 100, target_nodes=node)
    answered = list(answered.values())[0] if isinstance(answered, dict) else answered
    assert 0 <= int(answered) <= 2, answered


@test
def replicas_serve_reads(r):
    k = key("replica")
    last = [r.xadd(k, {"n": n}) for n in range(5)][-1]
    follower_reader = connect(load_balancing_strategy=redis.cluster.LoadBalancingStrategy.ROUND_ROBIN)
    deadline = time.monotonic() + 10
    for _ in range(6):
        while True:
            rows = follower_reader.xrange(k)
            assert [f["n"] for _, f in rows] == [str(n) for n in range(len(rows))], rows
            if rows and rows[-1][0] == last:
                break
            assert time.monotonic() < deadline, rows
    follower_reader.close()


@test
def both_protocols_are_spoken(r):
    for protocol in (2, 3):
        own = connect(protocol=protocol)
        k = key(f"resp{protocol}")
        own.xgroup_create(k, "g", id="0", mkstream=True)
        own.xadd(k, {"f": "v"})
        assert entries(own.xreadgroup("g", "c", {k: ">"}))[0][1] == {"f": "v"}
        assert own.xinfo_stream(k)["groups"] == 1
        own.close()


def messages(listener, count, wait=10):
    """The next messages, confirmations left out."""
    found, deadline = [], time.time() + wait
    while len(found) < count:
        assert time.time() < deadline, found
        message = listener.get_message(ignore_subscribe_messages=True, timeout=0.2)
        if message:
            found.append((message["type"], message["channel"], message["data"]))
    return found


@test
def messages_reach_subscribers_of_every_node(r):
    for protocol in (2, 3):
        channel = f"py:{RUN}:news{protocol}"
        own = [connect(protocol=protocol) for _ in range(3)]
        ears = [c.pubsub(node=node) for c, node in zip(own, sorted(r.get_primaries(), key=lambda n: n.name))]
        for ear in ears:
            ear.subscribe(channel)
            ear.psubscribe(f"{channel}*")
            for wanted in ("subscribe", "psubscribe"):
                assert ear.get_message(timeout=5)["type"] == wanted
        for n in range(50):
            r.publish(channel, n)
        for ear in ears:
            got = messages(ear, 100)
            for kind in ("message", "pmessage"):
                assert [d for k, _, d in got if k == kind] == [str(n) for n in range(50)], got
            ear.unsubscribe(channel)
            ear.punsubscribe(f"{channel}*")
            ear.close()
        for c in own:
            c.close()


@test
def shard_channels_find_their_leader(r):
    ear = r.pubsub()
    channels = list(keys_for_every_primary(r).values())
    for channel in channels:
        ear.ssubscribe(channel)
    for channel in channels:
        deadline = time.time() + 10
        while r.spublish(channel, f"to {channel}") != 1:
            assert time.time() < deadline, channel
    got, deadline = set(), time.time() + 10
    while len(got) < len(channels):
        assert time.time() < deadline, got
        message = ear.get_sharded_message(ignore_subscribe_messages=True, timeout=0.1)
        if message:
            assert message["type"] == "smessage" and message["data"] == f"to {message['channel']}", message
            got.add(message["channel"])
    for channel in channels:
        ear.sunsubscribe(channel)
    ear.close()


main("redis-py", connect)
