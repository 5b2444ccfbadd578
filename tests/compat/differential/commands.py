"""Random commands over a few keys of one slot, so that they meet; some of them wrong."""

KEYS = [f"{{d}}s{n}" for n in range(5)] + [f"{{d}}t{n}" for n in range(3)]
AUTO = KEYS[4]
STRINGS = [f"{{d}}t{n}" for n in range(4)]
GROUPS = ["g", "h", "grüppe"]
CONSUMERS = ["alice", "bob", "c"]
FIELDS = ["f", "name", "a-longer-field", ""]
VALUES = ["", "v", "1", "-1", "4095", "99999999999", "1.5", " 7", "x" * 50, "y" * 300, "\xff\r\n\0", "12345678901234567890"]
GARBAGE = ["", "x", "-1", "0", "1", "9223372036854775807", "9223372036854775808", "-9223372036854775808", "1.5", "nan", "inf",
           "*", "$", ">", "+", "-", "(", "1-1", "1-", "-1-1", "1-1-1", "0-0", "18446744073709551615-18446744073709551615",
           "18446744073709551616", "\xff\xfe", "NX", "XX", "GET", "EX", "PX", "COUNT", "LIMIT", "MAXLEN", "~", "=", "MINID", "KEEPREF",
           "ACKED", "IDS", "FORCE", "JUSTID", "BLOCK", "STREAMS", "GROUP", "NOACK", "REPLACE", "REF"]
ENDS = ("SET", "SETEX", "PSETEX", "GETEX", "EXPIRE", "PEXPIRE", "RESTORE")
MAKES_CONSUMERS = ("XREADGROUP", "XCLAIM", "XAUTOCLAIM")
FAR = 10_000_000


class Id:
    """What each server answered to an earlier XADD with `*`: another id on each."""

    def __init__(self, number):
        self.number = number


class Commands:
    """`since`: (8, 10) for everything, lower to leave out what the other server does not have."""

    def __init__(self, random, since, crosses, nests):
        """`crosses`: payloads go both ways. With them go ids, so that these sessions make none from clocks. `nests`:
        MULTI and WATCH inside MULTI leave the transaction as it is; in Valkey 9 they abort it."""
        self.random, self.since, self.crosses, self.nests = random, since, crosses, nests
        self.auto_ids = []
        self.queueing = False
        self.waiting = []
        self.kinds = [(weight, make) for weight, needed, make in self.table() if needed <= since]
        self.weights = [weight for weight, _ in self.kinds]

    def table(self):
        everywhere = (5, 0)
        return [
            (24, everywhere, self.xadd), (5, everywhere, self.xdel), (5, everywhere, self.xtrim), (3, (7, 2), self.xsetid),
            (3, everywhere, self.xlen), (8, everywhere, self.xrange), (8, everywhere, self.xread), (9, everywhere, self.xgroup),
            (14, everywhere, self.xreadgroup), (6, everywhere, self.xack), (6, everywhere, self.xclaim),
            (5, everywhere, self.xautoclaim), (6, everywhere, self.xpending), (9, everywhere, self.xinfo),
            (6, everywhere, self.string), (6, everywhere, self.keyspace), (6, everywhere, self.expire), (2, everywhere, self.dump),
            (5, everywhere, self.transaction), (2, everywhere, self.connection), (2, everywhere, self.nonsense),
            (4, (8, 2), self.xdelex), (4, (8, 2), self.xackdel), (5, (8, 8), self.xnack), (4, (8, 6), self.idempotent),
        ]

    def next(self):
        """One command; some of them are spoiled."""
        if self.waiting:
            return self.waiting.pop()
        make = self.random.choices(self.kinds, self.weights)[0][1]
        args = list(make())
        if self.random.random() < 0.06 and (args[0] not in MAKES_CONSUMERS or self.since >= (7, 2)):
            self.spoil(args)
        return self.after_consumers(args) if self.since < (7, 2) else args

    def after_consumers(self, args):
        """Redis 7.0 makes a consumer only when it gets something, so here it is made before."""
        if args[0] not in MAKES_CONSUMERS:
            return args
        words = [arg for arg in args if isinstance(arg, str)]
        keys = [word for word in words if word.startswith("{d}")]
        groups = [word for word in words if word in GROUPS]
        consumers = [word for word in words if word in CONSUMERS]
        if not groups or not consumers:
            return args
        first, *more = [["XGROUP", "CREATECONSUMER", key, groups[0], consumers[0]] for key in keys]
        self.waiting = [args, *more]
        return first

    # What commands are made of.

    def one_of(self, *choices):
        return self.random.choice(choices)

    def maybe(self, chance, *args):
        return list(args) if self.random.random() < chance else []

    def key(self):
        return self.random.choice(KEYS)

    def group(self):
        return self.random.choice(GROUPS[:2] if self.random.random() < 0.95 else GROUPS)

    def consumer(self):
        return self.random.choice(CONSUMERS)

    def id(self):
        chance = self.random.random()
        if chance < 0.1 and self.auto_ids:
            return Id(self.random.choice(self.auto_ids[-20:]))
        if chance < 0.15:
            return self.one_of("0", "0-0", "5", "007-003", "18446744073709551615-18446744073709551615", "18446744073709551614-9")
        return f"{self.random.randrange(1, 90)}-{self.random.randrange(0, 3)}"

    def ids(self, most=4):
        return [self.id() for _ in range(self.random.randrange(1, most + 1))]

    def refs(self, chance=0.3):
        return self.maybe(chance, self.one_of("KEEPREF", "DELREF", "ACKED")) if self.since >= (8, 2) else []

    def trim(self):
        exact = self.one_of([], ["="], ["~"])
        if exact == ["~"]:
            # Where runs end is each server's own affair, so nothing is cut.
            to = self.one_of(["MAXLEN", "~", 10_000], ["MINID", "~", "0-1"])
            return to + self.maybe(0.4, "LIMIT", self.one_of(0, 1, 10, 1000))
        return self.one_of(["MAXLEN", *exact, self.random.randrange(0, 40)], ["MINID", *exact, self.id()])

    def fields(self):
        pairs = []
        for _ in range(self.one_of(1, 1, 1, 2, 3)):
            pairs += [self.random.choice(FIELDS), self.random.choice(VALUES)]
        return pairs

    def idle(self):
        """Either way whatever the clocks say."""
        return self.one_of(0, 0, FAR // 2)

    # Streams.

    def xadd(self):
        if self.random.random() < 0.05 and not self.crosses:
            # One stream for these: behind such an id the small ones are refused.
            self.auto_ids.append(len(self.auto_ids))
            return ["XADD", AUTO, "*", *self.fields()]
        at = self.one_of(self.id(), self.id(), f"{self.random.randrange(0, 90)}-*")
        return ["XADD", self.key(), *self.maybe(0.1, "NOMKSTREAM"), *self.refs(0.1),
                *(self.trim() if self.random.random() < 0.1 else []), at, *self.fields()]

    def idempotent(self):
        kind = self.random.random()
        if kind < 0.15:
            return ["XCFGSET", AUTO, *self.maybe(0.7, "IDMP-DURATION", self.one_of(1000, 86400)),
                    *self.maybe(0.7, "IDMP-MAXSIZE", self.one_of(1, 3, 100))]
        if kind < 0.3:
            return ["XIDMPRECORD", AUTO, self.consumer(), self.one_of("i", "j"), self.id()]
        if self.crosses:
            return ["XCFGSET", self.key(), "IDMP-MAXSIZE", 7]
        self.auto_ids.append(len(self.auto_ids))
        how = self.one_of(["IDMP", self.consumer(), self.one_of("i", "j", "k")], ["IDMPAUTO", self.consumer()])
        return ["XADD", AUTO, *how, "*", "f", self.one_of(1, 2)]

    def xdel(self):
        return ["XDEL", self.key(), *self.ids()]

    def xdelex(self):
        ids = self.ids()
        return ["XDELEX", self.key(), *self.refs(0.7), "IDS", len(ids), *ids]

    def xackdel(self):
        ids = self.ids()
        return ["XACKDEL", self.key(), self.group(), *self.refs(0.7), "IDS", len(ids), *ids]

    def xnack(self):
        ids = self.ids()
        return ["XNACK", self.key(), self.group(), self.one_of("SILENT", "FAIL", "FATAL"), "IDS", len(ids), *ids,
                *self.maybe(0.2, "RETRYCOUNT", self.random.randrange(0, 9)), *self.maybe(0.2, "FORCE")]

    def xtrim(self):
        return ["XTRIM", self.key(), *self.trim(), *self.refs()]

    def xsetid(self):
        return ["XSETID", self.key(), self.one_of("200-0", self.id()),
                *self.maybe(0.3, "ENTRIESADDED", self.random.randrange(0, 300), "MAXDELETEDID", self.id())]

    def xlen(self):
        return ["XLEN", self.key()]

    def bound(self):
        return self.one_of("-", "+", self.id(), self.id(), f"({self.random.randrange(1, 90)}-1", self.random.randrange(0, 90))

    def xrange(self):
        return [self.one_of("XRANGE", "XREVRANGE"), self.key(), *self.one_of(("-", "+"), ("+", "-"), (self.bound(), self.bound())),
                *self.maybe(0.4, "COUNT", self.random.randrange(-1, 12))]

    def limits(self):
        if self.since < (8, 10):
            return []
        # Bytes are estimated, so only what cuts after the first entry or never is the same everywhere.
        return self.maybe(0.2, "MAXCOUNT", self.random.randrange(1, 9)) + self.maybe(0.1, "MAXSIZE", self.one_of(1, 10_000_000))

    def xread(self):
        keys = [self.key() for _ in range(self.one_of(1, 1, 2, 3))]
        ids = [self.one_of(self.id(), self.id(), "0", "$", *(["+"] if self.since >= (7, 4) else [])) for _ in keys]
        return ["XREAD", *self.maybe(0.5, "COUNT", self.random.randrange(0, 9)), *self.limits(), *self.maybe(0.05, "BLOCK", 1),
                "STREAMS", *keys, *ids]

    def xgroup(self):
        key, group = self.key(), self.group()
        at = self.one_of("$", "0", self.id(), self.id())
        # Before 8.2 a number above that of all entries was kept.
        read = self.maybe(0.3, "ENTRIESREAD", self.random.randrange(-1, 60) if self.since >= (8, 2) else -1)
        return ["XGROUP", *self.one_of(
            ("CREATE", key, group, at, *self.maybe(0.7, "MKSTREAM"), *read), ("CREATE", key, group, "0"),
            ("SETID", key, group, at, *read), ("DESTROY", key, self.one_of(group, "h")), ("CREATECONSUMER", key, group, self.consumer()),
            ("DELCONSUMER", key, group, self.consumer()))]

    def xreadgroup(self):
        keys = [self.key() for _ in range(self.one_of(1, 1, 1, 2))]
        ids = [self.one_of(">", ">", ">", "0", self.id()) for _ in keys]
        if self.since >= (8, 4) and self.random.random() < 0.2:
            # All that is old enough: what is delivered in one millisecond is claimed in an order of each server's own.
            return ["XREADGROUP", "GROUP", self.group(), self.consumer(), "CLAIM", self.idle(), "STREAMS", *keys, *ids]
        return ["XREADGROUP", "GROUP", self.group(), self.consumer(), *self.maybe(0.7, "COUNT", self.random.randrange(0, 7)),
                *self.limits(), *self.maybe(0.05, "BLOCK", 1), *self.maybe(0.1, "NOACK"), "STREAMS", *keys, *ids]

    def xack(self):
        return ["XACK", self.key(), self.group(), *self.ids()]

    def xclaim(self):
        return ["XCLAIM", self.key(), self.group(), self.consumer(), self.idle(), *self.ids(),
                *self.maybe(0.5, *self.one_of(("IDLE", FAR), ("IDLE", 0), ("TIME", 1_000_000_000_000))),
                *self.maybe(0.3, "RETRYCOUNT", self.random.randrange(0, 20)), *self.maybe(0.3, "FORCE"), *self.maybe(0.3, "JUSTID"),
                *self.maybe(0.1, "LASTID", self.id())]

    def xautoclaim(self):
        return ["XAUTOCLAIM", self.key(), self.group(), self.consumer(), self.idle(), self.one_of("0", "-", self.id()),
                *self.maybe(0.6, "COUNT", self.random.randrange(1, 6)), *self.maybe(0.4, "JUSTID")]

    def xpending(self):
        if self.random.random() < 0.4:
            return ["XPENDING", self.key(), self.group()]
        return ["XPENDING", self.key(), self.group(), *self.maybe(0.3, "IDLE", self.idle()), self.one_of("-", self.bound()),
                self.one_of("+", self.bound()), self.random.randrange(0, 12), *self.maybe(0.4, self.consumer())]

    def xinfo(self):
        key = self.key()
        return ["XINFO", *self.one_of(("STREAM", key), ("STREAM", key, "FULL", *self.maybe(0.6, "COUNT", self.one_of(-1, 0, 1, 5))),
                                      ("GROUPS", key), ("GROUPS", key), ("CONSUMERS", key, self.group()))]

    # Keys and strings.

    def string(self):
        key, value = self.random.choice(STRINGS), self.random.choice(VALUES)
        number = self.one_of(1, -1, 0, 7, 9223372036854775807, -9223372036854775808)
        at = self.one_of(0, 1, 5, -1, -3, 100)
        return list(self.one_of(
            ("GET", key), ("GET", self.key()),
            ("SET", key, value, *self.maybe(0.2, self.one_of("NX", "XX")), *self.maybe(0.2, "GET"),
             *self.maybe(0.3, *self.one_of(("EX", 1000), ("PX", 1_000_000), ("KEEPTTL",), ("EXAT", 32503680000), ("PXAT", 1))),),
            ("SETNX", key, value), ("SETEX", key, self.one_of(1000, 0, -1), value), ("PSETEX", key, self.one_of(1_000_000, 0), value),
            ("GETSET", key, value), ("GETDEL", key), ("GETEX", key, *self.maybe(0.7, *self.one_of(("EX", 1000), ("PERSIST",), ("PXAT", 1)))),
            ("MGET", key, self.key(), key), ("MSET", key, value, self.random.choice(STRINGS), value),
            ("MSETNX", key, value, self.random.choice(STRINGS), value), ("INCR", key), ("DECR", key), ("INCRBY", key, number),
            ("DECRBY", key, number), ("APPEND", key, value), ("STRLEN", key), ("GETRANGE", key, at, self.one_of(-1, 0, 3, -2, 100)),
            ("SUBSTR", key, at, 2), ("SETRANGE", key, self.one_of(0, 3, 20, -1), value),
            ("SET", key, self.one_of(1, 41, -7, 9223372036854775806)),
            *((("SET", key, value, self.one_of("IFEQ", "IFNE"), self.random.choice(VALUES), *self.maybe(0.3, "GET")),)
              if self.since >= (8, 4) else ())))

    def keyspace(self):
        key, other = self.key(), self.key()
        return list(self.one_of(
            ("DEL", key, *self.maybe(0.3, other)), ("UNLINK", key), ("EXISTS", key, other, key), ("TOUCH", key, other), ("TYPE", key),
            ("RENAME", key, other), ("RENAMENX", key, other), ("COPY", key, other, *self.maybe(0.5, "REPLACE")),
            ("OBJECT", "ENCODING", key), ("OBJECT", "REFCOUNT", key), ("MEMORY", "USAGE", key, *self.maybe(0.3, "SAMPLES", 5)),
            ("OBJECT", "FREQ", key), *(() if self.queueing else self.whole())))

    def whole(self):
        """Of all keys: Weir takes none of these in a transaction."""
        all_keys = [("KEYS", self.one_of("*", "{d}s[0-2]", "{d}?1", "nothing")), ("RANDOMKEY",), ("DBSIZE",)]
        return all_keys + ([("FLUSHALL",), ("FLUSHDB", "ASYNC")] if self.random.random() < 0.1 else [])

    def expire(self):
        key = self.key()
        option = self.maybe(0.4, self.one_of("NX", "XX", "GT", "LT")) + self.maybe(0.05, self.one_of("NX", "XX", "GT", "LT"))
        return list(self.one_of(
            # Never the same twice, or the clocks would decide which is later.
            ("EXPIRE", key, self.one_of(self.random.randrange(1000, 1_000_000), -1), *option),
            ("PEXPIRE", key, self.random.randrange(1_000_000, 1_000_000_000), *option),
            ("EXPIREAT", key, self.one_of(32503680000, 32503690000), *option), ("PEXPIREAT", key, self.one_of(32503680000123, 1), *option),
            ("TTL", key), ("PTTL", key), ("EXPIRETIME", key), ("PEXPIRETIME", key), ("PERSIST", key)))

    def dump(self):
        may = self.crosses and not self.queueing
        cross = ("CROSS", self.key(), self.key()) if may else ("DUMP", self.key())
        return list(self.one_of(("DUMP", self.key()), cross, ("RESTORE", self.key(), 0, "garbage"),
                                ("RESTORE", self.key(), -1, "x"), ("RESTORE", self.key(), 0, "x", self.one_of("REPLACE", "FREQ", "IDLETIME"))))

    # The rest.

    def transaction(self):
        if not self.queueing:
            # Watched keys are there: one that was missing, was made and went again counts as unchanged in Weir.
            key = self.key()
            self.waiting = [["WATCH", key]] if self.random.random() < 0.2 else []
            if self.waiting:
                return ["XGROUP", "CREATE", key, "g", "0", "MKSTREAM"]
            return list(self.one_of(("MULTI",), ("MULTI",), ("UNWATCH",), ("EXEC",), ("DISCARD",)))
        nested = (("MULTI",), ("WATCH", self.key())) if self.nests else ()
        return list(self.one_of(("EXEC",), ("EXEC",), ("EXEC",), ("DISCARD",), *nested))

    def connection(self):
        return list(self.one_of(("PING",), ("PING", "hello"), ("ECHO", "hello"), ("SELECT", 0), ("COMMAND", "GETKEYS", *self.xreadgroup())))

    def nonsense(self):
        return [self.one_of("NOSUCH", "XNOSUCH", "GETT", ""), *[self.random.choice(VALUES) for _ in range(self.random.randrange(0, 4))]]

    def spoil(self, args):
        if args[0] in ("COMMAND", "CROSS", "FLUSHALL", "FLUSHDB"):
            return
        at = self.random.randrange(1, len(args)) if len(args) > 1 else 0
        # Other keys would be left behind where nothing looks at them.
        if at == 0 or (isinstance(args[at], str) and args[at].startswith("{d}")):
            return
        # Nothing may end in the next moment: the two servers would disagree whether it is over.
        garbage = [word for word in GARBAGE if word != "1"] if args[0] in ENDS else GARBAGE
        if self.since < (8, 2):
            garbage = [word for word in garbage if word not in ("KEEPREF", "ACKED")]
        kind = self.random.random()
        if kind < 0.35:
            del args[at]
        elif kind < 0.5:
            args.insert(at, args[at])
        elif kind < 0.8:
            args[at] = self.random.choice(garbage)
        elif kind < 0.9:
            args.append(self.random.choice(garbage))
        elif isinstance(args[at], str):
            args[at] = args[at].swapcase()
