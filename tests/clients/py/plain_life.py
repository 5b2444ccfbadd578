"""redis-py's plain Redis, unmodified and without any idea of a cluster, on the plain port: strings, streams, groups,
blocking reads, pipelines, transactions, scans, errors. Usage: plain_life.py PORT"""
import secrets
import sys
import threading
import time

import redis
from checks import entries, main, test

PORT = int(sys.argv[1])
RUN = secrets.token_hex(4)


def connect(**options):
    return redis.Redis(host="127.0.0.1", port=PORT, decode_responses=True, **options)


def keys(count):
    """Keys of many slots."""
    return [f"plain:{RUN}:{secrets.token_hex(4)}" for _ in range(count)]


@test
def it_looks_like_a_server_of_its_own(r):
    info = r.info()
    assert info["cluster_enabled"] == 0 and info["role"] == "master", info
    assert r.ping() is True and r.echo("x") == "x"


@test
def strings_and_streams_live_in_all_slots(r):
    for k in keys(50):
        assert r.set(k, "v") is True and r.get(k) == "v" and r.delete(k) == 1
        ids = [r.xadd(k, {"n": n}) for n in range(5)]
        assert [i for i, _ in r.xrange(k)] == ids
        assert r.xlen(k) == 5 and r.type(k) == "stream"


@test
def groups_deliver_acknowledge_and_claim(r):
    for k in keys(10):
        r.xgroup_create(k, "g", id="0", mkstream=True)
        ids = [r.xadd(k, {"n": n}) for n in range(4)]
        got = entries(r.xreadgroup("g", "a", {k: ">"}, count=3))
        assert [i for i, _ in got] == ids[:3]
        assert r.xack(k, "g", ids[0]) == 1
        assert r.xpending(k, "g")["pending"] == 2
        _, claimed, _ = r.xautoclaim(k, "g", "b", 0, "0-0")
        assert [i for i, _ in claimed] == ids[1:3]


@test
def a_blocked_reader_is_woken(r):
    for k in keys(6):
        got = []

        def reader():
            own = connect()
            got.append(entries(own.xread({k: "0"}, block=10_000)))
            own.close()

        thread = threading.Thread(target=reader)
        thread.start()
        time.sleep(0.05)
        added = r.xadd(k, {"n": "1"})
        thread.join(10)
        assert got and got[0][0][0] == added, got


@test
def a_pipeline_keeps_its_order_over_all_slots(r):
    ks = keys(20)
    pipe = r.pipeline(transaction=False)
    for n in range(20):
        for k in ks:
            pipe.xadd(k, {"n": n})
    replies = pipe.execute()
    for at, k in enumerate(ks):
        assert [i for i, _ in r.xrange(k)] == replies[at::len(ks)]


@test
def a_transaction_on_one_tag_is_one_unit(r):
    tag = f"{{plain:{RUN}}}"
    with r.pipeline(transaction=True) as pipe:
        pipe.watch(tag + "w")
        pipe.multi()
        pipe.set(tag + "w", 1).xadd(tag + "s", {"n": 1}).xlen(tag + "s")
        replies = pipe.execute()
    assert replies[0] is True and replies[2] == 1, replies


@test
def errors_are_the_errors_of_redis(r):
    k, = keys(1)
    r.set(k, "v")
    for call, text in [
        (lambda: r.xadd(k, {"a": 1}), "WRONGTYPE"),
        (lambda: r.execute_command("NOSUCH"), "unknown command"),
        (lambda: r.execute_command("GET"), "wrong number of arguments"),
        (lambda: r.execute_command("CLUSTER", "SLOTS"), "cluster support disabled"),
    ]:
        try:
            call()
            raise AssertionError(f"no error, wanted {text}")
        except redis.ResponseError as e:
            assert text in str(e), e


@test
def scans_see_every_key(r):
    ks = keys(60)
    for k in ks:
        r.set(k, 1)
    assert set(ks) <= set(r.scan_iter(match=f"plain:{RUN}:*", count=20))
    assert set(ks) <= set(r.keys(f"plain:{RUN}:*"))
    assert r.dbsize() >= 60


main("redis-py-plain", connect)
