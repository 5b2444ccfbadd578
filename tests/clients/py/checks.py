"""What the lives of redis-py share: the list of tests, the shapes of its replies, the summary."""
import sys
import traceback

import redis

TESTS = []


def test(function):
    """Adds a function of one connected client; its name is what it shows."""
    TESTS.append(function)
    return function


def entries(reply):
    """The entries of the one stream in an XREAD(GROUP) reply, whichever shape this redis-py gives it."""
    if not reply:
        return []
    if isinstance(reply, dict):
        (inner,) = reply.values()
        return [e for part in inner for e in part] if inner and isinstance(inner[0], list) else inner
    return reply[0][1]


def main(name, connect):
    """Runs all tests over one client and ends the program."""
    client = connect()
    failed = 0
    for function in TESTS:
        title = function.__name__.replace("_", " ")
        try:
            function(client)
            print(f"  ok    {title}")
        except Exception as e:
            failed += 1
            traceback.print_exc()
            print(f"  FAIL  {title}: {type(e).__name__}: {e}")
    print(f"{name} {redis.__version__}: {len(TESTS) - failed} passed, {failed} failed")
    sys.exit(1 if failed else 0)
