"""redis-py over TLS, with and without a certificate of its own, and with ones that are no good.
Usage: tls_life.py, with the weir program in WEIR_PROGRAM; it starts a node for itself."""
import contextlib
import datetime
import os
import pathlib
import secrets
import sys
import tempfile

import redis
import trustme
from checks import entries, main, test
from redis.cluster import RedisCluster

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "ops"))
from local_cluster import TLS, free_ports, start_weir, stop, wait_until_ready  # noqa: E402

HERE = "127.0.0.1"
DIRECTORY = tempfile.TemporaryDirectory(prefix="weir-tls-")
FILES = pathlib.Path(DIRECTORY.name)


def authority(name):
    ca = trustme.CA(organization_name=name)
    ca.cert_pem.write_to_path(FILES / f"{name}.crt")
    return ca


def sign(ca, name, **options):
    pair = ca.issue_cert(HERE, **options)
    pair.cert_chain_pems[0].write_to_path(FILES / f"{name}.crt")
    pair.private_key_pem.write_to_path(FILES / f"{name}.key")


OURS, OTHERS = authority("ca"), authority("other-ca")
sign(OURS, "node")
sign(OURS, "client")
sign(OURS, "expired", not_before=datetime.datetime(2019, 1, 1), not_after=datetime.datetime(2020, 1, 1))
sign(OTHERS, "stranger")


@contextlib.contextmanager
def node(authenticate):
    """The TLS port of a node that asks its clients for certificates, or does not."""
    with tempfile.TemporaryDirectory(prefix="weir-tls-") as directory:
        port = free_ports(1)
        nodes = start_weir(os.environ["WEIR_PROGRAM"], port, pathlib.Path(directory), [
            "--tls-port", str(port + TLS), "--tls-cert-file", str(FILES / "node.crt"),
            "--tls-key-file", str(FILES / "node.key"), "--tls-ca-cert-file", str(FILES / "ca.crt"), "--tls-auth-clients", authenticate], count=1)
        wait_until_ready(nodes)
        try:
            yield port + TLS
        finally:
            assert stop(nodes), "the node did not stop cleanly"


def options(certificate=None, ca="ca"):
    options = {"ssl": True, "ssl_ca_certs": str(FILES / f"{ca}.crt"), "decode_responses": True}
    if certificate:
        options |= {"ssl_certfile": str(FILES / f"{certificate}.crt"), "ssl_keyfile": str(FILES / f"{certificate}.key")}
    return options


def produce_and_consume(r):
    key = f"tls:{secrets.token_hex(4)}"
    r.xgroup_create(key, "g", id="0", mkstream=True)
    # Larger than a TLS record.
    added = [r.xadd(key, {"n": n, "large": "x" * 100_000}) for n in range(5)]
    got = entries(r.xreadgroup("g", "c", {key: ">"}, count=10, block=1000))
    assert [i for i, _ in got] == added and all(len(f["large"]) == 100_000 for _, f in got), got
    assert r.xack(key, "g", *added) == 5


def refused(port, why, *arguments, **more):
    try:
        redis.Redis(host=HERE, port=port, socket_timeout=5, **options(*arguments, **more)).ping()
    except redis.ConnectionError as e:
        assert why in str(e).lower().replace("_", " "), e
    else:
        raise AssertionError("let in")


@test
def without_client_certificates_the_node_alone_is_checked(_):
    with node("no") as port:
        for protocol in (2, 3):
            produce_and_consume(redis.Redis(host=HERE, port=port, protocol=protocol, **options()))
        refused(port, "certificate verify failed", ca="other-ca")


@test
def with_client_certificates_the_right_one_is_let_in_and_others_are_not(_):
    with node("yes") as port:
        for protocol in (2, 3):
            produce_and_consume(redis.Redis(host=HERE, port=port, protocol=protocol, **options("client")))
        refused(port, "unknown ca", "stranger")
        refused(port, "expired", "expired")
        refused(port, "certificate required")
        produce_and_consume(redis.Redis(host=HERE, port=port, **options("client")))


@test
def cluster_clients_are_told_tls_ports(_):
    with node("yes") as port:
        r = RedisCluster(host=HERE, port=port, **options("client"))
        assert [n.port for n in r.get_nodes()] == [port], r.get_nodes()
        produce_and_consume(r)
        r.close()


main("redis-py-tls", lambda: None)
