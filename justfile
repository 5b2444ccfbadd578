# The front door. `ops/setup` installs what these recipes need; CI calls the same recipes.

set shell := ["bash", "-euo", "pipefail", "-c"]
export PATH := justfile_directory() / ".venv/bin:" + env("PATH")

# cargo profile of the binaries the recipes run: dev, ci (optimised, with assertions) or release
profile := env("WEIR_PROFILE", "release")
target := justfile_directory() / "target" / (if profile == "dev" { "debug" } else { profile })

# what can be done here
list:
    @just --list --unsorted

# a whole local cluster in one process on ports 7001-7003
dev *args: build
    {{target}}/weir dev {{args}}

# three separate processes on this machine, until Ctrl-C
cluster *args: build
    ops/cluster run --weir {{target}}/weir {{args}}

# the programs (weir, weir-sim, process-test, chaos, weir-bench)
build:
    cargo build --profile {{profile}} --workspace --bins

# format everything
fmt:
    cargo fmt --all

# format check, clippy without warnings
lint:
    cargo fmt --all --check
    cargo clippy --profile {{ if profile == "release" { "dev" } else { profile } }} --workspace --all-targets -- -D warnings

# unit and integration tests (nextest if installed), then doc tests
test *args:
    ops/cargo-test {{args}}

# one simulated run: just sim smoke --seed 1
sim scenario="smoke" *args="--seed 1":
    cargo run --profile {{profile}} -p weir-sim --bin weir-sim -- run {{scenario}} {{args}}

# the same seed twice gives the same bytes
meta seed="1":
    ops/same-bytes {{profile}} {{seed}}

# the same seeds in two builds (release and ci) give the same bytes
meta-builds scenario="mixed" seeds="1..4":
    cargo build --release -p weir-sim --bin weir-sim
    cargo build --profile ci -p weir-sim --bin weir-sim
    target/release/weir-sim meta --scenario {{scenario}} --seeds {{seeds}} --other target/ci/weir-sim

# what a cluster would do under faults: just report sim/examples/three-zones.toml --html report.html
report *args:
    cargo run --profile {{profile}} -p weir-sim --bin weir-sim -- report {{args}}

# how long a sync and a round trip take here, for a report's file
probe *args:
    cargo run --profile {{profile}} -p weir-sim --bin weir-sim -- probe {{args}}

# many simulated runs: just sim-seeds all 1..11, stops at the first that fails
sim-seeds scenario="all" seeds="1..4" *args="": build
    {{target}}/weir-sim explore {{scenario}} --seeds {{seeds}} {{args}}

# every bug that can be planted, and what catches it (bugs are compiled out of release builds)
planted *args:
    cargo run --profile {{ if profile == "release" { "ci" } else { profile } }} -p weir-sim --bin weir-sim -- planted {{args}}

# the conformance corpus against three processes
compat: build
    ops/cluster run --weir {{target}}/weir --quiet -- ops/compat

# redis-py, ioredis, redis-cli against three processes
clients: build
    ops/cluster run --weir {{target}}/weir --quiet -- ops/clients

# other people's clients, each through a kill -9 of the leader they write to: just client-lives ioredis plain fred
client-lives *args: build
    ops/client-lives --weir {{target}}/weir {{args}}

# corpus and clients over one cluster
compat-and-clients: build
    ops/cluster run --weir {{target}}/weir --quiet -- bash -c 'ops/compat && ops/clients'

# random commands to Weir and another server, every answer the same: just differential --commands 20000 --seed 7
differential *args: build
    python3 tests/compat/differential --weir {{target}}/weir {{args}}

# every wrong input that bad-input.txt gives rise to, in the words of redis-server
bad-input *args: build
    python3 tests/compat/differential --bad-input --weir {{target}}/weir {{args}}

# a million random commands in all, against Redis 8.10, Valkey 9.1 and the system's Redis
differential-night: build
    python3 tests/compat/differential --weir {{target}}/weir --commands 350000 --seed $RANDOM $(ops/references | sed 's/^/--reference /')
    python3 tests/compat/differential --bad-input --weir {{target}}/weir $(ops/references | sed 's/^/--reference /')

# faults against three processes, checked from what clients saw
process-test seconds="60" *args: build
    {{target}}/process-test --seconds {{seconds}} {{args}}

# rounds of faults against processes in network namespaces (--rounds N --seed S, --planted BUG; as root for partitions)
chaos *args:
    cargo build --profile {{ if profile == "release" { "ci" } else { profile } }} -p weir-server -p weir-tests --bin weir --bin chaos
    {{justfile_directory()}}/target/{{ if profile == "dev" { "debug" } else if profile == "release" { "ci" } else { profile } }}/chaos {{args}}

# a million exactly-once appends through twenty failovers (--appends N --failovers N)
exactly-once *args: build
    {{target}}/exactly-once {{args}}

# numbers beside redis-server, valkey, NATS and the machine's own limit (--quick, --only PART, --against PEER, --json FILE, --large)
bench *args:
    ops/setup bench
    cargo build --release --workspace --bin weir --bin weir-bench
    target/release/weir-bench {{args}}

# what CI runs
ci:
    ops/ci

# everything, long: for the night
nightly:
    ops/ci --night

# everything CI checks; changes no file
verify: ci

# the one recipe that edits
fix:
    cargo fmt --all
    cargo clippy --workspace --all-targets --fix --allow-dirty --allow-staged

# licences, bans, sources (needs cargo-deny)
deny:
    cargo deny check bans licenses sources
