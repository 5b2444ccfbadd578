#!/usr/bin/env python3
"""Random commands against Weir and another server, one connection each; every reply has to be the same.

    differential --commands N [--seed S] [--weir PATH] [--reference PATH ...]

A session of 2,000 commands starts with no keys; sessions alternate between RESP2 and RESP3. The first reply that differs
ends the run with the commands before it that touched the same keys, and the line that runs the session again. What may
differ is named in `compare.py` and told in docs/compatibility.md.
"""
import argparse
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

from commands import Commands, Id
from compare import DIFFERENCES, Comparison
from wire import Connection, encoded

ROOT = pathlib.Path(__file__).resolve().parents[3]
SESSION = 2000
CHUNK = 24


def free_port(near):
    for _ in range(200):
        port = random.Random(time.time_ns()).randrange(near, near + 1500)
        ports = [port + n + offset for n in range(3) for offset in (0, 10000, 20000)]
        if all(port < 65536 and is_free(port) for port in ports):
            return port
    sys.exit("differential: no free ports")


def is_free(port):
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            s.bind(("127.0.0.1", port))
            return True
        except OSError:
            return False


class Server:
    """A process with an empty data directory."""

    def __init__(self, command, port, environment):
        self.port, self.directory = port, command[-1]
        self.log = open(pathlib.Path(self.directory) / "log", "wb")
        self.process = subprocess.Popen(command[:-1], stdout=self.log, stderr=self.log, cwd=self.directory, start_new_session=True,
                                        env=environment)

    def connect(self, ready):
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            try:
                connection = Connection(self.port)
                answer = ready(connection)
                if answer is True:
                    return connection
                if type(answer) is int:
                    self.port = answer
            except OSError:
                pass
            if self.process.poll() is not None:
                break
            time.sleep(0.1)
        sys.exit(f"differential: {self.process.args[0]} did not come up:\n" + (pathlib.Path(self.directory) / "log").read_text()[-2000:])

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.process.kill()


def start_weir(path, directory):
    directory.mkdir()
    port = free_port(7300)
    environment = {k: v for k, v in os.environ.items() if not k.startswith("WEIR_")}
    # One shard, or commands over several keys would be refused that the other server takes. Nothing here asks a disk.
    environment |= {"WEIR_SHARDS": "1", "WEIR_DURABILITY": "os"}
    server = Server([path, "dev", "--port", str(port), "--dir", str(directory / "data"), directory], port, environment)

    def ready(connection):
        kind, text = connection.call("SET", "{d}probe", "x")
        if kind == "-" and text.startswith("MOVED "):
            return int(text.rsplit(":", 1)[1])
        return kind == "+" and connection.call("FLUSHALL") == ("+", "OK")

    return server, server.connect(ready)


def start_reference(path, directory):
    directory.mkdir()
    port = free_port(9400)
    server = Server([path, "--port", str(port), "--cluster-enabled", "yes", "--save", "", "--dir", str(directory), directory], port, dict(os.environ))

    def ready(connection):
        connection.call("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        return connection.call("SET", "{d}probe", "x") == ("+", "OK") and connection.call("FLUSHALL") == ("+", "OK")

    connection = server.connect(ready)
    info = connection.call("INFO", "server")[1].decode()
    found = re.search(r"^valkey_version:(\S+)", info, re.M) or re.search(r"^redis_version:(\S+)", info, re.M)
    name = "valkey" if "valkey_version" in info else "redis"
    return server, connection, name, tuple(int(part) for part in found[1].split(".")[:2])


class Differs(Exception):
    pass


class Run:
    def __init__(self, weir, other, comparison):
        self.weir, self.other, self.comparison = weir, other, comparison
        self.done = 0

    def session(self, seed, commands_wanted, since, nests):
        self.ids, self.log = {}, []
        self.comparison.crossed = False
        # Of this command alone the clusters answer different things inside a transaction.
        self.both([["RESET"], ["FLUSHALL"]] + ([["HELLO", "3"]] if seed % 2 else []), compare=False)
        commands = Commands(random.Random(seed), since, crosses=seed % 4 >= 2, nests=nests)
        left = commands_wanted
        self.transaction = False
        while left > 0:
            chunk = []
            while len(chunk) < min(CHUNK, left):
                args = commands.next()
                commands.queueing = {"MULTI": True, "EXEC": False, "DISCARD": False}.get(args[0], commands.queueing)
                if args[0] == "CROSS":
                    self.both(chunk)
                    chunk = []
                    self.cross(args[1], args[2])
                    left -= 1
                else:
                    chunk.append(args)
            self.both(chunk)
            left -= len(chunk)
        self.both([["DISCARD"]])

    def bad_input(self, words):
        """One example in all its variants. What is refused changes nothing."""
        import bad_input
        self.ids, self.log = {}, []
        self.comparison.crossed = True
        failures = 0
        state = [["DUMP", key] for key in ("{d}s", "{d}t", "{d}n", "{d}new", "{d}none")] + [["PTTL", "{d}s"]]
        for args in bad_input.spoiled(words):
            setup = [["RESET"], ["FLUSHALL"]] + [line.split(" ") for line in bad_input.SETUP]
            self.transaction = False
            self.both(setup, compare=False)
            self.weir.send([tuple(encoded(arg) for arg in look) for look in state])
            before = [self.weir.read() for _ in state]
            del self.log[:]
            try:
                self.both([args])
            except Differs:
                failures += 1
                print(self.told(), flush=True)
                if failures >= 5:
                    break
                continue
            refused = self.log[-1][1][0] == "-"
            self.weir.send([tuple(encoded(arg) for arg in look) for look in state])
            after = [self.weir.read() for _ in state]
            if refused and before != after and args[0].upper() != "MULTI":
                print(f"{shown(args)} was refused and changed something", flush=True)
                failures += 1
        if failures:
            raise Differs

    def both(self, chunk, compare=True):
        for connection, side in ((self.weir, 0), (self.other, 1)):
            connection.send([tuple(encoded(self.resolve(arg, side)) for arg in args) for args in chunk])
        queued = []
        for args in chunk:
            ours, theirs = self.weir.read(), self.other.read()
            self.done += 1
            self.log.append((args, ours, theirs))
            if args[0] == "XADD" and "*" in args and ours[0] == theirs[0] == "$":
                self.ids[len(self.ids)] = (ours[1], theirs[1])
            if args[0] == "MULTI" and ours == ("+", "OK"):
                self.transaction, queued = True, []
            elif args[0].upper() in ("EXEC", "DISCARD", "RESET"):
                self.transaction = False
            if compare and not self.same(args, ours, theirs):
                raise Differs

    def same(self, args, ours, theirs):
        if args[0].upper() == "EXEC" and ours[0] == theirs[0] == "*" and len(ours[1]) == len(theirs[1]):
            queued = [args for args, ours, _ in self.since_multi() if ours == ("+", "QUEUED")]
            return all(self.comparison.equal(args, *pair) for args, *pair in zip(queued, ours[1], theirs[1]))
        return self.comparison.equal(args, ours, theirs)

    def since_multi(self):
        at = max((at for at, (args, ours, _) in enumerate(self.log) if args[0].upper() == "MULTI" and ours == ("+", "OK")), default=0)
        return self.log[at:]

    def resolve(self, arg, side):
        if not isinstance(arg, Id):
            return arg.encode("latin-1", "replace") if isinstance(arg, str) and any(ord(c) > 255 for c in arg) is False else arg
        return self.ids.get(arg.number, (b"1-1", b"1-1"))[side]

    def cross(self, key, to):
        """What each dumps the other restores."""
        if self.transaction:
            return
        self.comparison.crossed = True
        ours, theirs = self.weir.call("DUMP", key), self.other.call("DUMP", key)
        if (ours[0], theirs[0]) == ("$", "$"):
            answers = [connection.call("RESTORE", to, 0, payload, "REPLACE")
                       for connection, payload in ((self.weir, theirs[1]), (self.other, ours[1]))]
            self.log.append((["CROSS", key, to], *answers))
            self.done += 1
            if answers != [("+", "OK"), ("+", "OK")]:
                print(f"weir's payload:  {ours[1].hex()}\nother's payload: {theirs[1].hex()}")
                raise Differs

    def told(self):
        """The commands before the last that named one of its keys."""
        args, ours, theirs = self.log[-1]
        if args[0].upper() == "EXEC" and ours[0] == theirs[0] == "*":
            queued = [args for args, ours, _ in self.since_multi() if ours == ("+", "QUEUED")]
            for queued_args, *pair in zip(queued, ours[1], theirs[1]):
                if not self.comparison.equal(queued_args, *pair):
                    args, (ours, theirs) = queued_args, pair
                    break
        keys = {arg for arg in args if isinstance(arg, str) and arg.startswith("{d}")}
        if args[0].upper() == "EXEC":
            ended = [at for at, (before, *_) in enumerate(self.log[:-1]) if before[0].upper() in ("EXEC", "DISCARD", "UNWATCH")]
            since = self.log[ended[-1] + 1 if ended else 0:]
            keys = {arg for before, *_ in since if before[0].upper() == "WATCH" for arg in before[1:]}
        lines = []
        for at, (before, *_) in enumerate(self.log):
            if before[0].upper() in ("RESET", "FLUSHALL", "FLUSHDB", "MULTI", "EXEC", "HELLO") or keys & {a for a in before if isinstance(a, str)}:
                lines.append(f"  {at:5} {shown(before)} -> {self.log[at][1]!r}"[:400])
        return "\n".join(lines[-45:]) + f"\n\n{shown(args)}\n  weir:  {ours!r}\n  other: {theirs!r}"


def bad_input_examples(ours, theirs, version, valkey):
    """Those that both know. Valkey 9 has databases in clusters. Every command of the families that the other server shares must have one."""
    import bad_input
    examples = bad_input.lines()
    named = {example[0].lower() for example in examples}
    without = set()
    for row in ours.call("COMMAND")[1]:
        name, categories = row[1][0][1].decode(), str(row[1][6])
        if any(family in categories for family in ("@stream", "@string", "@keyspace")) and name not in named:
            without.add(name)
    without -= {"migrate", "flushall", "flushdb"}
    if without:
        sys.exit(f"differential: bad-input.txt has no example of {', '.join(sorted(without))}")
    known = lambda example: theirs.call("COMMAND", "INFO", example[0])[1][0][0] != "null"
    databases = ("SELECT", "MOVE") if valkey else ()
    return [example for example in bad_input.lines(version) if known(example) and example[0] not in databases]


def shown(args):
    return " ".join(repr(arg) if isinstance(arg, str) and (not arg or " " in arg or not arg.isprintable()) else str(arg) for arg in args)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--commands", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--weir", default=str(ROOT / "target/release/weir"))
    parser.add_argument("--reference", action="append", help="a server's program (default: redis-server)")
    parser.add_argument("--bad-input", action="store_true", help="the variants of bad-input.txt instead of random commands")
    parser.add_argument("--keep-going", type=int, default=1, help="end after so many differences")
    options = parser.parse_args()
    page = (ROOT / "docs/compatibility.md").read_text()
    if untold := [name for name in DIFFERENCES if f"| {name} |" not in page]:
        sys.exit(f"differential: docs/compatibility.md does not tell of {', '.join(untold)}")
    failed = 0
    for path in options.reference or ["redis-server"]:
        failed += compare_with(path, options)
    sys.exit(1 if failed else 0)


def compare_with(path, options):
    directory = pathlib.Path(tempfile.mkdtemp(prefix="weir-differential-"))
    began, failures, sessions = time.monotonic(), 0, 0
    weir, ours = start_weir(options.weir, directory / "weir")
    reference, theirs, name, version = start_reference(shutil.which(path) or path, directory / "reference")
    title = f"{name} {'.'.join(map(str, version))}"
    # What Valkey has of this is what Redis 7.2 had.
    since = (7, 2) if name == "valkey" else version
    comparison = Comparison(since)
    run = Run(ours, theirs, comparison)
    try:
        seed = options.seed
        examples = bad_input_examples(ours, theirs, since, name == "valkey") if options.bad_input else None
        while examples if options.bad_input else run.done < options.commands:
            sessions += 1
            try:
                if options.bad_input:
                    run.bad_input(examples.pop(0))
                else:
                    run.session(seed, min(SESSION, options.commands - run.done), since, nests=name != "valkey")
            except Differs:
                failures += 1
                if options.bad_input:
                    continue
                print(f"session {seed} against {title}:\n{run.told()}\n  again: --seed {seed} --commands {SESSION}\n", flush=True)
                if failures >= options.keep_going:
                    break
                # What is left of the chunk.
                run.weir, run.other = Connection(weir.port), Connection(reference.port)
            seed += 1
    finally:
        for server in (weir, reference):
            server.stop()
        if not failures:
            shutil.rmtree(directory, ignore_errors=True)
    passed_over = ", ".join(f"{name} {count}" for name, count in sorted(comparison.seen.items()))
    print(f"{title}: {run.done} commands in {time.monotonic() - began:.0f} s, {failures} differences; passed over: {passed_over}")
    unused = [name for name in DIFFERENCES if comparison.may_see(name) and name not in comparison.seen]
    print(f"differential: {sessions - failures} passed, {failures} failed", flush=True)
    if unused and run.done >= 100_000 and not failures and not options.bad_input:
        print(f"{title}: no longer different: {', '.join(unused)}")
        failures += 1
    return failures


if __name__ == "__main__":
    main()
