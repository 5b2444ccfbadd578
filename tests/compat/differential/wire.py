"""A connection that pipelines, and replies with their types: ('+', text), (':', n), ('$', bytes), ('*', [..]), ('%', [(k, v)..]),
('-', text), ('null', kind)."""
import socket


class Connection:
    def __init__(self, port, timeout=60):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=timeout)
        self.file = self.socket.makefile("rb", buffering=1 << 16)

    def send(self, commands):
        out = bytearray()
        for args in commands:
            out += b"*%d\r\n" % len(args)
            for arg in args:
                out += b"$%d\r\n%s\r\n" % (len(arg), arg)
        self.socket.sendall(out)

    def call(self, *args):
        self.send([tuple(encoded(arg) for arg in args)])
        return self.read()

    def read(self):
        line = self.file.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError("closed")
        kind, rest = line[:1].decode(), line[1:-2]
        if kind == "$":
            length = int(rest)
            return ("null", "$") if length < 0 else ("$", self.file.read(length + 2)[:-2])
        if kind in "*~>":
            length = int(rest)
            return ("null", "*") if length < 0 else ("*", [self.read() for _ in range(length)])
        if kind == "%":
            return ("%", [(self.read(), self.read()) for _ in range(int(rest))])
        if kind == "_":
            return ("null", "_")
        if kind == ":":
            return (":", int(rest))
        if kind == ",":
            return (",", rest.decode())
        if kind == "#":
            return ("#", rest.decode())
        if kind == "=":
            return ("$", self.file.read(int(rest) + 2)[4:-2])
        return (kind, rest.decode("utf-8", "replace"))


def encoded(arg):
    return arg if isinstance(arg, bytes) else str(arg).encode()
