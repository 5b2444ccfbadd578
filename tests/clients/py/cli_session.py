"""redis-cli at a terminal: prompts, redirects, a transaction, RESP3, help and hints that come from COMMAND DOCS, messages.
Usage: cli_session.py PORT"""
import fcntl
import os
import pty
import re
import secrets
import select
import struct
import subprocess
import sys
import termios
import time

PORT = int(sys.argv[1])
RUN = secrets.token_hex(4)
NODES = 3
ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Session:
    """A pseudo-terminal with redis-cli in it."""

    def __init__(self):
        self.terminal, inside = pty.openpty()
        fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 200, 0, 0))
        self.process = subprocess.Popen(["redis-cli", "-c", "-p", str(PORT)], stdin=inside, stdout=inside, stderr=inside,
                                        start_new_session=True,
                                        env={"PATH": os.environ["PATH"], "TERM": "xterm", "HOME": "/nonexistent"})
        os.close(inside)
        self.seen = ""

    def type(self, text):
        os.write(self.terminal, text.encode())

    def expect(self, pattern, seconds=10):
        """The match of a pattern in what was printed since the last one."""
        deadline = time.monotonic() + seconds
        while True:
            shown = re.sub(r"\r+\n", "\n", ANSI.sub("", self.seen))
            if found := re.search(pattern, shown):
                self.seen = shown[found.end():]
                return found
            assert time.monotonic() < deadline, f"no {pattern!r} in {shown!r}"
            if select.select([self.terminal], [], [], 0.1)[0]:
                self.seen += os.read(self.terminal, 65536).decode(errors="replace")

    def ask(self, line, pattern):
        """Types a command; what its answer matches, and the prompt after it."""
        self.type(line + "\r")
        found = self.expect(r"\n" + pattern)
        prompt = self.expect(r"127\.0\.0\.1:(\d+)(\(TX\))?> ")
        return found, int(prompt[1]), bool(prompt[2])

    def end(self):
        self.process.kill()
        self.process.wait()
        os.close(self.terminal)


def steps(session):
    """Yields what was shown, one after the other."""
    session.expect(rf"127\.0\.0\.1:{PORT}> ")
    yield "a prompt"
    at = {}
    for n in range(40):
        key = f"cli:{RUN}:{n}"
        _, port, _ = session.ask(f"XADD {key} * a {n}", r'"\d+-\d+"\n')
        at.setdefault(port, key)
    assert sorted(at) == [PORT + n for n in range(NODES)], at
    yield "redirects are followed to every node"
    key = at[PORT]
    _, port, _ = session.ask(f"XRANGE {key} - +", r'(?:.*\n)*?1\) 1\) "\d+-\d+"\n   2\) 1\) "a"\n      2\) "\d+"\n')
    assert port == PORT, port
    yield "entries are laid out"
    assert session.ask("MULTI", r"OK\n")[2]
    assert session.ask(f"XADD {key} * a tx", r"QUEUED\n")[2]
    assert not session.ask("EXEC", r'1\) "\d+-\d+"\n')[2]
    yield "a transaction shows in the prompt"
    session.ask("NOSUCHCOMMAND", r"\(error\) ERR unknown command")
    yield "an unknown command is refused"
    session.ask("help xadd", r"(?:.*\n)*?  XADD key \[NOMKSTREAM.*\n  summary: \S.*\n  since: 5\.0\.0\n  group: stream\n")
    yield "help knows the command"
    session.type("XSETID ")
    session.expect(r"XSETID key last-id")
    session.type("\x15")  # Ctrl-U
    yield "hints come while one types"
    session.ask("HELLO 3", r'(?:.*\n)*?\d+# "proto" => \(integer\) 3\n')
    session.ask(f"XINFO STREAM {key}", r' *1# "length" => \(integer\) 2\n')
    yield "RESP3 maps are laid out"
    session.type(f"SUBSCRIBE {RUN}\r")
    session.expect(rf'\n1\) "subscribe"\n2\) "{RUN}"\n')
    subprocess.run(["redis-cli", "-p", str(PORT + 1), "PUBLISH", RUN, "news"], check=True, stdout=subprocess.DEVNULL)
    session.expect(rf'1\) "message"\n2\) "{RUN}"\n3\) "news"\n')
    yield "messages are shown"


def main():
    session, passed, failed = Session(), 0, 0
    try:
        for shown in steps(session):
            passed += 1
            print(f"  ok    {shown}")
    except Exception as e:
        failed = 1
        print(f"  FAIL  {type(e).__name__}: {e}")
    finally:
        session.end()
    print(f"redis-cli-session: {passed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


main()
