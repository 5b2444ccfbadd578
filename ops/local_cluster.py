"""Server processes on this machine, for the scripts beside this file: free ports, three weir nodes that form a cluster and
come back when they are killed, a TCP balancer in front of them."""
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time

NODES = 3
PLAIN = 9000  # a node's plain port lies this far above its client port
TLS = 8000  # and its TLS port, where it has one, this far
READY_SECONDS = 60
STOP_SECONDS = 15


def free(port):
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            s.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def free_ports(nodes=NODES):
    """A first port P such that P.. and their TLS, plain, peer (+10000) and admin (+20000) ports are free."""
    for _ in range(200):
        port = random.randrange(8000, 12000)
        if all(free(port + i + offset) for i in range(nodes) for offset in (0, TLS, PLAIN, 10000, 20000)):
            return port
    sys.exit("cluster: no free ports")


class Node:
    """A process with a log. `start` begins it, and begins it again."""

    def __init__(self, name, port, command, directory):
        self.name, self.port, self.command, self.directory = name, port, command, directory
        self.log_path = directory / f"{name}.log"
        self.out_path = directory / f"{name}.out"
        self.start()

    def start(self):
        with open(self.log_path, "ab") as log, open(self.out_path, "wb") as out:
            self.process = subprocess.Popen(self.command, stdout=out, stderr=log, cwd=self.directory, start_new_session=True,
                                            env={k: v for k, v in os.environ.items() if not k.startswith("WEIR_")})

    def ready(self):
        return any(line.startswith("ready ") for line in self.out_path.read_text(errors="replace").splitlines())

    def was_killed(self):
        return self.process.poll() == -signal.SIGKILL

    def tail(self):
        lines = (self.out_path.read_text(errors="replace") + self.log_path.read_text(errors="replace")).splitlines()
        return "\n".join(f"  {self.name}: {line}" for line in lines[-15:])


class Keeper:
    """Starts nodes again, some seconds after a SIGKILL. A node that ended in another way stays as it is."""

    def __init__(self, nodes, seconds):
        self.nodes, self.seconds = nodes, seconds
        self.ending = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        due = {}
        while not self.ending.wait(0.05):
            for node in self.nodes:
                if not node.was_killed():
                    continue
                if time.monotonic() >= due.setdefault(node.name, time.monotonic() + self.seconds):
                    del due[node.name]
                    node.start()

    def end(self):
        self.ending.set()
        self.thread.join()


def start_weir(weir, port, directory, extra=(), count=NODES):
    """So many nodes of one cluster from this client port on."""
    members = ",".join(f"n{i + 1}=127.0.0.1:{port + i}" for i in range(count))
    return [
        Node(f"n{i + 1}", port + i,
             [os.path.abspath(weir), "start", "--name", f"n{i + 1}", "--dir", str(directory / f"n{i + 1}"),
              "--port", str(port + i), "--plain-port", str(port + i + PLAIN), "--cluster", members, *extra],
             directory)
        for i in range(count)
    ]


def wait_until(condition, seconds, nodes, keeper=None):
    """Until it holds; ends the program, with the last lines of the logs, when it does not in time or a node ended."""
    deadline = time.monotonic() + seconds
    while not condition():
        dead = [n for n in nodes if n.process.poll() is not None and not (keeper and n.was_killed())]
        if dead or time.monotonic() > deadline:
            what = f"{dead[0].name} ended with {dead[0].process.returncode}" if dead else f"not ready in {seconds} s"
            print(f"cluster: {what}", file=sys.stderr)
            for n in dead or nodes:
                print(n.tail(), file=sys.stderr)
            stop(nodes, keeper)
            sys.exit(1)
        time.sleep(0.05)


def wait_until_ready(nodes):
    wait_until(lambda: all(n.ready() for n in nodes), READY_SECONDS, nodes)


def stop(nodes, keeper=None):
    """SIGTERM to all; True when each exits 0 in time."""
    if keeper:
        keeper.end()
    for n in nodes:
        if n.process.poll() is None:
            n.process.send_signal(signal.SIGTERM)
    clean = True
    deadline = time.monotonic() + STOP_SECONDS
    for n in nodes:
        try:
            code = n.process.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            n.process.kill()
            code = n.process.wait()
        if code != 0:
            print(f"cluster: {n.name} ended with {code}\n{n.tail()}", file=sys.stderr)
            clean = False
    return clean


def ask(port, *words):
    """One command in RESP2; a simple or bulk reply as text, errors included."""
    with socket.create_connection(("127.0.0.1", port), timeout=5) as s, s.makefile("rb") as reply:
        words = [str(w).encode() for w in words]
        s.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words))
        head = reply.readline().decode().rstrip("\r\n")
        if not head:
            raise ConnectionError("closed without an answer")
        return reply.read(int(head[1:])).decode() if head.startswith("$") else head


def all_serve(nodes):
    """Every node answers, knows a whole cluster, and as many lead as there are nodes."""
    try:
        infos = [ask(n.port, "CLUSTER", "INFO") for n in nodes]
    except OSError:
        return False
    return all("cluster_state:ok" in i and f"cluster_size:{len(nodes)}" in i for i in infos)


def leader_of(nodes, key):
    """The node that leads the key's slot."""
    for node in nodes:
        try:
            if ask(node.port, "XLEN", key).startswith(":"):
                return node
        except OSError:
            pass
    raise RuntimeError(f"nobody leads {key}")


class Balancer:
    """A TCP port that passes each connection on to the first of these ports that accepts it, as a balancer of users does."""

    def __init__(self, ports):
        self.ports = ports
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    def serve(self, client):
        for port in self.ports:
            try:
                server = socket.create_connection(("127.0.0.1", port), timeout=1)
                break
            except OSError:
                continue
        else:
            client.close()
            return
        for end in (client, server):
            end.settimeout(None)
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        back = threading.Thread(target=self.pump, args=(server, client), daemon=True)
        back.start()
        self.pump(client, server)
        back.join()
        client.close()
        server.close()

    @staticmethod
    def pump(source, sink):
        try:
            while data := source.recv(65536):
                sink.sendall(data)
        except OSError:
            pass
        for end in (source, sink):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def close(self):
        self.listener.close()
