"""Every example of ../bad-input.txt, with every argument left out, doubled, swapped and replaced by every kind of nonsense."""
import pathlib

EXAMPLES = pathlib.Path(__file__).parents[1] / "bad-input.txt"
SETUP = [
    "XADD {d}s 1-0 f v", "XADD {d}s 2-0 f v", "XADD {d}s 3-0 f v", "XGROUP CREATE {d}s g 0",
    "XREADGROUP GROUP g c COUNT 3 STREAMS {d}s >", "SET {d}t text", "SET {d}n 10",
]
NONSENSE = ["", "x", "-1", "0", "00", "+5", " 1", "1 ", "1.5", "nan", "inf", "0x10", "9223372036854775807", "9223372036854775808",
            "-9223372036854775808", "-9223372036854775809", "18446744073709551615", "18446744073709551616", "99999999999999999999999",
            "\xff\xfe\x00z", "*", "$", ">", "+", "-", "~", "(1-1", "1-1-1", "1-", "-1-1", "18446744073709551615-18446744073709551615",
            "18446744073709551616-1", "a\r\nb", "NX", "COUNT", "STREAMS", "GROUP", "IDS", "MAXLEN", "FORCE"]
STRINGS, STREAM = ("{d}t", "{d}n"), "{d}s"


# Words that an older server does not know; of SCAN, how it reads its cursor.
SINCE = {"SCAN": (8, 10), "KEEPREF": (8, 2), "DELREF": (8, 2), "ACKED": (8, 2), "IFEQ": (8, 4), "IFNE": (8, 4), "IFDEQ": (8, 4),
         "IFDNE": (8, 4), "CLAIM": (8, 4), "IDMP": (8, 6),
         "IDMPAUTO": (8, 6), "MAXCOUNT": (8, 10), "MAXSIZE": (8, 10)}


def lines(version=(99, 0)):
    examples = [line.split(" ") for line in EXAMPLES.read_text().splitlines() if line]
    return [example for example in examples if all(SINCE.get(word, (0, 0)) <= version for word in example)]


def spoiled(args):
    """Variants of one command, itself first."""
    yield list(args)
    head = 2 if args[0] in ("XGROUP", "XINFO", "OBJECT", "MEMORY") else 1
    for at in range(head, len(args)):
        yield args[:at] + args[at + 1:]
        yield args[:at] + [args[at]] + args[at:]
        yield args[:at + 1]
        if not args[at].startswith("{d}"):
            for other in NONSENSE:
                yield args[:at] + [other] + args[at + 1:]
            if at + 1 < len(args) and not args[at + 1].startswith("{d}"):
                yield args[:at] + [args[at + 1], args[at]] + args[at + 2:]
                # An option twice, with its value.
                yield args + args[at:at + 2]
            if args[at].isalpha():
                yield args[:at] + [args[at].lower()] + args[at + 1:]
        else:
            # Another type, and nothing.
            yield args[:at] + [STREAM if args[at] in STRINGS else STRINGS[0]] + args[at + 1:]
            yield args[:at] + ["{d}none"] + args[at + 1:]
    yield args[:1]
    for other in NONSENSE[:4]:
        yield args + [other]
