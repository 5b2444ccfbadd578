#!/usr/bin/env bash
# redis-cli and redis-benchmark against the cluster at PORT, three nodes on ports in a row, and its plain port.
# Usage: redis-cli.sh PORT PLAIN_PORT
set -uo pipefail
port=$1 plain=$2
run=$RANDOM$RANDOM
passed=0 failed=0

expect() { # what, pattern of the whole output, command...
    local what=$1 pattern=$2 out; shift 2
    out=$("$@" 2>&1)
    if [[ $out =~ $pattern ]]; then
        passed=$((passed + 1)); echo "  ok    $what"
    else
        failed=$((failed + 1)); echo "  FAIL  $what: '$*' printed:"; sed 's/^/          /' <<<"$out"
    fi
}
cli() { redis-cli -c -p "$port" "$@"; }

for n in 1 2 3 4 5 6; do
    expect "XADD follows redirects (key $n)" '^[0-9]+-[0-9]+$' cli XADD "cli:$run:$n" '*' a 1
    expect "XLEN (key $n)" '^1$' cli XLEN "cli:$run:$n"
done
expect "XGROUP CREATE" '^OK$' cli XGROUP CREATE "cli:$run:1" g 0
expect "XREADGROUP" "cli:$run:1" cli XREADGROUP GROUP g c STREAMS "cli:$run:1" '>'
expect "XPENDING" '^1$' bash -c "redis-cli -c -p $port XPENDING cli:$run:1 g | head -n 1"
expect "an unknown command is refused" '^ERR unknown command' cli NOSUCHCOMMAND
expect "cluster info" 'cluster_state:ok' cli CLUSTER INFO
expect "cluster check: slots" 'All 16384 slots covered' redis-cli --cluster check "127.0.0.1:$port"
expect "cluster check: agreement" 'All nodes agree about slots configuration' redis-cli --cluster check "127.0.0.1:$port"
if redis-cli --cluster check "127.0.0.1:$port" >/dev/null 2>&1; then
    passed=$((passed + 1)); echo "  ok    cluster check exits 0"
else
    failed=$((failed + 1)); echo "  FAIL  cluster check exits $?"; redis-cli --cluster check "127.0.0.1:$port" 2>&1 | sed 's/^/          /'
fi
expect "cluster info (--cluster)" '3 (masters|primaries)' redis-cli --cluster info "127.0.0.1:$port"

scanned() { # ports...: how many of this run's keys a scan of all of them names, each once
    for p in "$@"; do timeout 10 redis-cli -p "$p" --scan --pattern "cli:$run:*"; done | sort | uniq -c | awk '$1 == 1' | wc -l
}
expect "--scan of every node" '^6$' scanned "$port" $((port + 1)) $((port + 2))
expect "--scan of the plain port" '^6$' scanned "$plain"
expect "--latency" '^[0-9]+ [0-9]+ [0-9.]+ [1-9][0-9]*$' timeout 10 redis-cli -p "$port" --raw --latency -i 1
expect "-3: the protocol" '"proto" => \(integer\) 3' redis-cli -3 -p "$port" --no-raw HELLO
expect "-3: a map of streams" "^1# \"cli:$run:1\" => " redis-cli -3 -c -p "$port" --no-raw XREAD STREAMS "cli:$run:1" 0
expect "-3 on the plain port" "^1# \"cli:$run:1\" => " redis-cli -3 -p "$plain" --no-raw XREAD STREAMS "cli:$run:1" 0

appends=600
expect "redis-benchmark --cluster" 'requests per second' timeout 60 redis-benchmark --cluster -p "$port" -n $appends -c 12 -q XADD "cli:bench:$run:{tag}" '*' a 1
benched() { # nodes that were written to, entries in all
    timeout 10 redis-cli -p "$plain" --scan --pattern "cli:bench:$run:*" | sed 's/^/XLEN /' | redis-cli -p "$plain" |
        awk '{ n += $1 } END { print NR, n }'
}
expect "redis-benchmark --cluster: every append is there" "^3 $appends$" benched
echo "redis-cli: $passed passed, $failed failed"
[ "$failed" = 0 ]
