"""What of two replies has to be equal. Everything that is passed over has a name, and a line in docs/compatibility.md."""
import re

AUTO_ID = re.compile(rb"1[0-9]{12}-[0-9]+")
# How far two servers may be apart.
TIMES = {"TTL": 5, "EXPIRETIME": 5, "PTTL": 5000, "PEXPIRETIME": 5000}

# Name: since which version of Redis both behave alike, or None where Weir differs from all.
DIFFERENCES = {
    "clock": None,
    "blocks": None,
    "bytes-in-errors": None,
    "encoding": None,
    "lag": None,
    "memory": None,
    "payload": None,
    "order-of-keys": None,
    "producers": None,
    "references": None,
    "restored-activity": None,
    "unknown-command": (8, 10),
    "broken-exec": (8, 10),
    "plus-id": (7, 2),
    "unbalanced": (8, 10),
    "new-fields": (8, 8),
    "old-lag": (8, 0),
}


# Of XINFO, and since when.
NEW_FIELDS = {word: (8, 6) for word in (b"idmp-duration", b"idmp-maxsize", b"pids-tracked", b"iids-tracked", b"iids-added", b"iids-duplicates")}
NEW_FIELDS |= {b"nacked-count": (8, 8), b"inactive": (7, 2), b"active-time": (7, 2)}


class Comparison:
    def __init__(self, version):
        """The version of Redis, as a pair, that the other server is."""
        self.version = version
        self.seen = {}
        # Payloads went both ways since the keys were last flushed.
        self.crossed = False

    def note(self, name):
        self.seen[name] = self.seen.get(name, 0) + 1

    def may_see(self, name):
        """Whether the difference is one from this server."""
        return DIFFERENCES[name] is None or DIFFERENCES[name] > self.version

    def equal(self, args, ours, theirs):
        if args and args[0].upper() in TIMES and ours[0] == theirs[0] == ":" and min(ours[1], theirs[1]) > 0:
            self.note("clock")
            return abs(ours[1] - theirs[1]) <= TIMES[args[0].upper()]
        return self.plain(args, ours) == self.plain(args, theirs)

    def plain(self, args, reply):
        """The reply without what may differ."""
        name = args[0].upper() if args else ""
        sub = str(args[1]).upper() if len(args) > 1 else ""
        reply = self.anonymous(reply)
        if reply[0] in "-+":
            if "\ufffd" in reply[1]:
                self.note("bytes-in-errors")
            if reply[1].startswith("ERR The + ID is meaningless") and self.version < (7, 2):
                self.note("plus-id")
                return ("-", "ERR Invalid stream ID specified as stream command argument")
            if name == "EXEC" and self.version < (8, 10) and reply[1].startswith(("CROSSSLOT", "EXECABORT")):
                self.note("broken-exec")
                return ("-", "EXECABORT")
            if reply[1].startswith("ERR Unbalanced ") and self.version < (8, 10):
                self.note("unbalanced")
                return ("-", "ERR Unbalanced")
            if reply[1].endswith("', with args beginning with: "):
                self.note("unknown-command")
                return ("-", reply[1].removesuffix(", with args beginning with: "))
            return reply
        if name == "XINFO" and reply[0] in "*%":
            return self.info(sub, args, reply)
        if name == "XPENDING" and len(args) > 3 and reply[0] == "*":
            return ("*", [self.without(row, 2) for row in reply[1]])
        if name == "XREADGROUP" and reply[0] in "*%":
            return self.delivered(reply)
        if name == "KEYS" and reply[0] == "*":
            self.note("order-of-keys")
            return ("*", sorted(reply[1]))
        if name == "SCAN" and reply[0] == "*":
            self.note("order-of-keys")
            return ("*", [reply[1][0], ("*", sorted(reply[1][1][1]))])
        if name == "RANDOMKEY" and reply[0] == "$":
            self.note("order-of-keys")
            return ("$", b"a key")
        if name == "DUMP" and reply[0] == "$":
            self.note("payload")
            return ("$", b"a payload")
        if name == "MEMORY" and reply[0] == ":":
            self.note("memory")
            return (":", "bytes")
        if name == "OBJECT" and sub == "REFCOUNT" and reply[0] == ":":
            self.note("references")
            return (":", "references")
        if name == "OBJECT" and sub == "ENCODING" and reply in (("$", b"raw"), ("$", b"embstr"), ("$", b"int")):
            self.note("encoding")
            return ("$", b"a string's")
        return reply

    def anonymous(self, reply):
        """Ids made from clocks."""
        kind, value = reply
        if kind == "$" and AUTO_ID.fullmatch(value):
            self.note("clock")
            return ("$", b"auto")
        if kind == "*":
            return ("*", [self.anonymous(one) for one in value])
        if kind == "%":
            return ("%", [(self.anonymous(a), self.anonymous(b)) for a, b in value])
        return reply

    def without(self, row, at):
        """-1 says something; other times do not."""
        if row[0] != "*" or len(row[1]) <= at or row[1][at] == (":", -1):
            return row
        self.note("clock")
        return ("*", row[1][:at] + [(":", "time")] + row[1][at + 1:])

    def delivered(self, reply):
        """With CLAIM entries have an age."""
        streams = reply[1] if reply[0] == "%" else [tuple(one[1]) for one in reply[1]]
        return (reply[0], [(key, self.aged(entries)) for key, entries in streams])

    def aged(self, entries):
        if entries[0] != "*":
            return entries
        aged = [entry for entry in entries[1] if entry[0] == "*" and len(entry[1]) == 4]
        claimed = sorted(self.without(entry, 2) for entry in aged if entry[1][3] != (":", 0))
        return ("*", claimed + [self.without(entry, 2) if entry in aged else entry for entry in entries[1] if entry not in aged or entry[1][3] == (":", 0)])

    def info(self, sub, args, reply):
        if sub in ("GROUPS", "CONSUMERS"):
            return ("*", [self.fields(sub, one) for one in reply[1]])
        return self.fields("FULL" if len(args) > 3 else sub, reply)

    def fields(self, sub, reply):
        pairs = reply[1] if reply[0] == "%" else list(zip(reply[1][::2], reply[1][1::2]))
        kept = []
        for name, value in pairs:
            word = name[1]
            if word in NEW_FIELDS and NEW_FIELDS[word] > self.version:
                self.note("new-fields")
                continue
            if word in (b"radix-tree-keys", b"radix-tree-nodes"):
                self.note("blocks")
                continue
            if word == b"lag" and self.version < (8, 0):
                self.note("old-lag")
                continue
            if word == b"lag" and value[0] == ":" and value[1] < 0:
                self.note("lag")
                value = (":", 0)
            if word == b"pids-tracked":
                self.note("producers")
                continue
            if word in (b"idle", b"seen-time"):
                self.note("clock")
                continue
            if word in (b"inactive", b"active-time"):
                if self.crossed:
                    self.note("restored-activity")
                    continue
                self.note("clock")
                value = (":", value[1] if value[1] == -1 else "time")
            if sub == "FULL" and word == b"groups":
                value = ("*", [self.fields("FULL", group) for group in value[1]])
            if sub == "FULL" and word == b"consumers":
                value = ("*", [self.fields("CONSUMER", consumer) for consumer in value[1]])
            if word == b"pending" and value[0] == "*":
                value = ("*", [self.without(row, 1 if sub == "CONSUMER" else 2) for row in value[1]])
            kept.append((name, value))
        return (reply[0], kept)
