#!/usr/bin/env bash
# redis-cli -c and redis-cli --cluster check against the cluster at PORT.
set -uo pipefail
port=$1
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
echo "redis-cli: $passed passed, $failed failed"
[ "$failed" = 0 ]
