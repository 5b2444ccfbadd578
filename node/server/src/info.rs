//! INFO and ROLE. One node leads some shards and follows others; where Redis has room for one role, the role of its
//! line in CLUSTER NODES is told (`cluster/lines.rs`).

use crate::cluster::lines;
use crate::meta::NodeEntry;
use crate::node::Node;
use crate::pubsub::hub::SubscriptionKind;
use crate::shard::ShardHandle;
use bytes::Bytes;
use std::fmt::Write;
use std::path::Path;
use weir_stream::Reply;

/// The newest Redis whose stream commands all pass here.
pub const REDIS_VERSION: &str = "8.10.0";
/// This program's version.
pub const WEIR_VERSION: &str = env!("CARGO_PKG_VERSION");

type Section = fn(&Node, &mut Fields);

/// In the order in which they are printed; `true` = part of a plain INFO.
const SECTIONS: [(&str, bool, Section); 13] = [
    ("Server", true, server),
    ("Clients", true, clients),
    ("Memory", true, memory),
    ("Persistence", true, persistence),
    ("Stats", true, stats),
    ("Replication", true, replication),
    ("CPU", true, cpu),
    ("Commandstats", false, commandstats),
    ("Latencystats", false, latencystats),
    ("Errorstats", true, errorstats),
    ("Cluster", true, cluster),
    ("Keyspace", true, keyspace),
    ("Weir", true, weir),
];

/// Refusal of commands that add data while [`out_of_memory`].
pub const OUT_OF_MEMORY: &str = "OOM command not allowed when used memory > 'maxmemory'.";

/// Whether data is over `maxmemory`.
pub fn out_of_memory(node: &Node) -> bool {
    let max = node.settings.maxmemory.get() as u64;
    max > 0 && data_bytes(node) > max
}

/// INFO with the named sections; none = the default ones. Unknown names are left out, as Redis does.
/// `whole`: for a client that knows no cluster.
pub fn info(node: &Node, wanted: &[Bytes], whole: bool) -> String {
    let named = |name: &str| wanted.iter().any(|w| w.eq_ignore_ascii_case(name.as_bytes()));
    let all = named("all") || named("everything");
    let default = wanted.is_empty() || named("default");
    let mut fields = Fields { text: String::new(), whole };
    for (name, by_default, fill) in SECTIONS {
        if all || named(name) || (default && by_default) {
            if !fields.text.is_empty() {
                fields.text.push_str("\r\n");
            }
            let _ = write!(fields.text, "# {name}\r\n");
            fill(node, &mut fields);
        }
    }
    fields.text
}

struct Fields {
    text: String,
    /// For a client that knows no cluster.
    whole: bool,
}

impl Fields {
    fn put(&mut self, name: impl std::fmt::Display, value: impl std::fmt::Display) {
        // Writing to a string cannot fail.
        let _ = write!(self.text, "{name}:{value}\r\n");
    }
}

fn server(node: &Node, out: &mut Fields) {
    let uptime = node.uptime().as_secs();
    out.put("redis_version", REDIS_VERSION);
    out.put("weir_version", WEIR_VERSION);
    out.put("redis_mode", if out.whole { "standalone" } else { "cluster" });
    out.put("redis_git_sha1", "00000000");
    out.put("redis_git_dirty", 0);
    out.put("os", std::env::consts::OS);
    out.put("arch_bits", usize::BITS);
    out.put("monotonic_clock", "POSIX clock_gettime");
    out.put("multiplexing_api", "epoll");
    out.put("process_supervised", "no");
    out.put("process_id", std::process::id());
    out.put("run_id", &node.run_id);
    out.put("tcp_port", node.config.port);
    out.put("server_time_usec", node.env.clock.wall_ms() * 1000);
    out.put("uptime_in_seconds", uptime);
    out.put("uptime_in_days", uptime / 86_400);
    out.put("hz", 10);
    out.put("config_file", "");
    let (bind, port, tls) = (&node.config.bind, node.config.port, node.config.tls_port);
    if tls != port {
        out.put("listener0", format_args!("name=tcp,bind={bind},port={port}"));
    }
    if tls != 0 {
        out.put("listener1", format_args!("name=tls,bind={bind},port={tls}"));
    }
}

fn clients(node: &Node, out: &mut Fields) {
    let parked: usize = node.shards.all().iter().map(|s| s.parked()).sum();
    out.put("connected_clients", node.metrics.connections_open.get());
    out.put("cluster_connections", 2 * node.topology.map().nodes.len().saturating_sub(1));
    out.put("maxclients", node.settings.maxclients.get());
    out.put("client_recent_max_output_buffer", node.clients.largest_backlog());
    out.put("blocked_clients", parked);
    out.put("tracking_clients", 0);
    out.put("clients_in_timeout_table", parked);
    out.put("pubsub_clients", node.pubsub.clients());
    out.put("held_commands", node.held.commands());
}

/// Bytes of data in all replicas of this node.
pub fn data_bytes(node: &Node) -> u64 {
    node.shards.all().iter().map(|s| s.machine(|m| m.stats().memory_bytes)).sum()
}

fn memory(node: &Node, out: &mut Fields) {
    let data = data_bytes(node);
    let resident = resident_bytes(node).unwrap_or(data);
    node.metrics.memory_peak.raise(resident);
    let peak = node.metrics.memory_peak.get();
    let max = node.settings.maxmemory.get() as u64;
    let total = memory_total(node).unwrap_or(0);
    let waiting = node.clients.backlog_bytes();
    let sized = |out: &mut Fields, name: &str, bytes: u64| {
        out.put(name, bytes);
        out.put(format_args!("{name}_human"), human(bytes));
    };
    sized(out, "used_memory", data);
    sized(out, "used_memory_rss", resident);
    sized(out, "used_memory_peak", peak);
    out.put("used_memory_peak_perc", format_args!("{:.2}%", 100.0 * data as f64 / peak.max(1) as f64));
    out.put("used_memory_overhead", resident.saturating_sub(data));
    out.put("used_memory_dataset", data);
    out.put("used_memory_dataset_perc", format_args!("{:.2}%", 100.0 * data as f64 / resident.max(1) as f64));
    sized(out, "total_system_memory", total);
    sized(out, "maxmemory", max);
    out.put("maxmemory_policy", "noeviction");
    out.put("mem_fragmentation_ratio", format_args!("{:.2}", resident as f64 / data.max(1) as f64));
    out.put("mem_fragmentation_bytes", resident.saturating_sub(data));
    out.put("mem_clients_normal", waiting);
    out.put("mem_allocator", "jemalloc");
    out.put("active_defrag_running", 0);
    out.put("lazyfree_pending_objects", 0);
}

/// Memory of this machine, where the system tells it.
fn memory_total(node: &Node) -> Option<u64> {
    let text = String::from_utf8(node.env.disk.read(Path::new("/proc/meminfo")).ok()?).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// MEMORY STATS: what is known here, under the names of Redis.
pub fn memory_stats(node: &Node) -> Reply {
    let bulk = |text: &str| Reply::Bulk(Bytes::copy_from_slice(text.as_bytes()));
    let data = data_bytes(node);
    let resident = resident_bytes(node).unwrap_or(data);
    node.metrics.memory_peak.raise(resident);
    let peak = node.metrics.memory_peak.get();
    let keys: u64 = node.shards.all().iter().map(|s| s.machine(|m| m.stats().keys)).sum();
    let number = |name: &str, n: u64| (bulk(name), Reply::Int(n as i64));
    let ratio = |name: &str, of: u64, whole: u64, unit: f64| {
        (bulk(name), Reply::Double(unit * of as f64 / whole.max(1) as f64))
    };
    Reply::Map(vec![
        number("peak.allocated", peak),
        number("total.allocated", data),
        number("clients.normal", node.clients.backlog_bytes() as u64),
        number("overhead.total", resident.saturating_sub(data)),
        number("keys.count", keys),
        number("keys.bytes-per-key", data / keys.max(1)),
        number("dataset.bytes", data),
        ratio("dataset.percentage", data, resident, 100.0),
        ratio("peak.percentage", data, peak, 100.0),
        number("allocator.resident", resident),
        ratio("fragmentation", resident, data, 1.0),
        number("fragmentation.bytes", resident.saturating_sub(data)),
    ])
}

/// MEMORY DOCTOR.
pub fn memory_doctor(node: &Node) -> String {
    /// Below this nothing can be told from what the process itself needs.
    const LITTLE_BYTES: u64 = 5 << 20;
    let data = data_bytes(node);
    let resident = resident_bytes(node).unwrap_or(data);
    let (max, total) = (node.settings.maxmemory.get() as u64, memory_total(node).unwrap_or(u64::MAX));
    if data < LITTLE_BYTES {
        return "This node holds too little data to tell anything about its memory.\n".to_owned();
    }
    let mut advice = Vec::new();
    if max > 0 && data >= max - max / 10 {
        advice.push("Data is within a tenth of maxmemory: writes that add will be answered -OOM.");
    }
    if max == 0 && resident >= total / 2 {
        advice.push("Half of the machine's memory is used and maxmemory is not set: set it before the system runs out.");
    }
    if resident > 4 * data {
        advice.push("The process needs four times what its data needs: look at wal-cache-bytes and at slow clients (omem in CLIENT LIST).");
    }
    match advice.is_empty() {
        true => "Nothing is wrong with the memory of this node.\n".to_owned(),
        false => advice.join("\n") + "\n",
    }
}

fn human(bytes: u64) -> String {
    const UNITS: [(u64, &str); 3] = [(1 << 30, "G"), (1 << 20, "M"), (1 << 10, "K")];
    match UNITS.iter().find(|(unit, _)| bytes >= *unit) {
        Some((unit, name)) => format!("{:.2}{name}", bytes as f64 / *unit as f64),
        None => format!("{bytes}B"),
    }
}

/// Resident memory of this process, where the system tells it.
pub fn resident_bytes(node: &Node) -> Option<u64> {
    let text = node.env.disk.read(Path::new("/proc/self/statm")).ok()?;
    let pages: u64 = String::from_utf8(text).ok()?.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * 4096)
}

/// Seconds of processor time of this process: user, system.
fn cpu_seconds(node: &Node) -> Option<(f64, f64)> {
    let text = String::from_utf8(node.env.disk.read(Path::new("/proc/self/stat")).ok()?).ok()?;
    // The name in parentheses may hold spaces.
    let mut fields = text.rsplit_once(')')?.1.split_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<f64>().ok();
    Some((ticks()? / 100.0, ticks()? / 100.0))
}

fn persistence(node: &Node, out: &mut Fields) {
    let wal = node.wal.stats();
    out.put("loading", 0);
    out.put("async_loading", 0);
    let saves = &node.observe.saves;
    out.put("rdb_changes_since_last_save", unsaved(node));
    out.put("rdb_bgsave_in_progress", u8::from(saves.running()));
    out.put("rdb_last_save_time", saves.last_s().max(node.started_s()));
    out.put("rdb_last_bgsave_status", "ok");
    out.put("rdb_last_bgsave_time_sec", -1);
    out.put("rdb_current_bgsave_time_sec", -1);
    let taken = |shard: &ShardHandle| node.metrics.shard(shard.id()).snapshots.get();
    out.put("rdb_saves", node.shards.all().iter().map(taken).sum::<u64>());
    out.put("aof_enabled", 1);
    out.put("aof_rewrite_in_progress", 0);
    out.put("aof_rewrite_scheduled", 0);
    out.put("aof_last_bgrewrite_status", "ok");
    out.put("aof_last_write_status", "ok");
    out.put("aof_current_size", wal.segment_bytes);
    out.put("wal_durability", node.config.durability.name());
    out.put("wal_segments", wal.segments);
    out.put("wal_live_bytes", wal.live_bytes);
    out.put("wal_batches", wal.batches);
    out.put("wal_entries", wal.entries);
    out.put("wal_syncs", wal.sync.count);
    out.put("wal_sync_us_p50", wal.sync.quantile_us(0.5));
    out.put("wal_sync_us_p99", wal.sync.quantile_us(0.99));
    out.put("wal_sync_us_max", wal.sync.max_us);
}

/// Entries of the logs that are in no snapshot yet.
fn unsaved(node: &Node) -> u64 {
    let each = |shard: &ShardHandle| {
        let status = shard.group().status();
        let status = status.borrow();
        status.applied.saturating_sub(status.snapshot)
    };
    node.shards.all().iter().map(each).sum()
}

/// Numbers that only rise, by their names here. CONFIG RESETSTAT lets them start again.
pub fn totals(node: &Node) -> Vec<(&'static str, u64)> {
    let metrics = &node.metrics;
    let expired = |shard: &ShardHandle| metrics.shard(shard.id()).expired.get();
    vec![
        ("total_connections_received", metrics.connections_accepted.get()),
        ("total_commands_processed", metrics.commands().iter().map(|(_, c)| c.latency.count()).sum()),
        ("total_net_input_bytes", metrics.input_bytes.get()),
        ("total_net_output_bytes", metrics.output_bytes.get()),
        ("rejected_connections", metrics.connections_rejected.get()),
        ("expired_keys", node.shards.all().iter().map(expired).sum()),
        ("client_output_buffer_limit_disconnections", metrics.pubsub_disconnected.get()),
        ("acl_access_denied_auth", metrics.acl_denied_auth.get()),
        ("acl_access_denied_cmd", metrics.acl_denied_cmd.get()),
        ("acl_access_denied_key", metrics.acl_denied_key.get()),
        ("acl_access_denied_channel", metrics.acl_denied_channel.get()),
        ("total_error_replies", metrics.errors().values().sum()),
    ]
}

fn stats(node: &Node, out: &mut Fields) {
    for (name, total) in totals(node) {
        out.put(name, node.observe.baseline.since(name, total));
    }
    let [commands, input, output] = node.observe.rates.get();
    out.put("instantaneous_ops_per_sec", commands.round() as u64);
    out.put("instantaneous_input_kbps", format_args!("{:.2}", input / 1024.0));
    out.put("instantaneous_output_kbps", format_args!("{:.2}", output / 1024.0));
    out.put("evicted_keys", 0);
    out.put("evicted_clients", 0);
    out.put("pubsub_channels", node.pubsub.count(SubscriptionKind::Channel));
    out.put("pubsub_patterns", node.pubsub.count(SubscriptionKind::Pattern));
    out.put("pubsubshard_channels", node.pubsub.count(SubscriptionKind::ShardChannel));
    out.put("latest_fork_usec", 0);
    out.put("total_forks", 0);
    let (calls, us, us_max) = node.observe.slow.totals();
    out.put("slowlog_commands_count", calls);
    out.put("slowlog_commands_time_ms_max", format_args!("{:.2}", us_max as f64 / 1000.0));
    out.put("slowlog_commands_time_ms_sum", format_args!("{:.2}", us as f64 / 1000.0));
}

fn replication(node: &Node, out: &mut Fields) {
    let view = node.topology.view();
    let shard = lines::shard_of(&view, view.me).and_then(|s| node.shards.get(s.id));
    let status = shard.as_ref().map(|s| s.group().status().borrow().clone()).unwrap_or_default();
    if out.whole {
        out.put("role", "master");
        out.put("connected_slaves", view.map.nodes.len().saturating_sub(1));
    } else if lines::is_master(&view, view.me) {
        out.put("role", "master");
        let matched = shard.map(|s| s.group().matched()).unwrap_or_default();
        let followers: Vec<(&NodeEntry, u64)> =
            matched.iter().filter_map(|(n, at)| Some((view.map.node(*n)?, *at))).collect();
        out.put("connected_slaves", followers.len());
        for (i, (follower, at)) in followers.iter().enumerate() {
            let state = if view.reachable(follower.number) { "online" } else { "wait_bgsave" };
            let (host, port) = (&follower.host, follower.port);
            out.put(
                format_args!("slave{i}"),
                format_args!("ip={host},port={port},state={state},offset={at},lag=0"),
            );
        }
    } else {
        let master = lines::master_of(&view, view.me).and_then(|n| view.map.node(n));
        out.put("role", "slave");
        out.put("master_host", master.map_or("?", |m| m.host.as_str()));
        out.put("master_port", master.map_or(0, |m| m.port));
        let up = master.is_some_and(|m| view.reachable(m.number));
        out.put("master_link_status", if up { "up" } else { "down" });
        out.put("slave_read_repl_offset", status.last_index);
        out.put("slave_repl_offset", status.applied);
        out.put("slave_read_only", 1);
        out.put("connected_slaves", 0);
    }
    out.put("master_failover_state", "no-failover");
    out.put("master_replid", lines::shard_hex(&view, view.me));
    out.put("master_replid2", "0".repeat(40));
    out.put("master_repl_offset", status.committed);
    out.put("second_repl_offset", -1);
    out.put("repl_backlog_active", 1);
    out.put("repl_backlog_size", node.config.wal_cache_bytes);
    out.put("repl_backlog_first_byte_offset", status.snapshot);
    out.put("repl_backlog_histlen", status.committed.saturating_sub(status.snapshot));
}

fn cpu(node: &Node, out: &mut Fields) {
    let (user, system) = cpu_seconds(node).unwrap_or_default();
    out.put("used_cpu_sys", format_args!("{system:.6}"));
    out.put("used_cpu_user", format_args!("{user:.6}"));
    out.put("used_cpu_sys_children", "0.000000");
    out.put("used_cpu_user_children", "0.000000");
}

fn commandstats(node: &Node, out: &mut Fields) {
    for (name, [calls, us, failed, rejected]) in node.observe.baseline.commands(&node.metrics) {
        let each = us as f64 / calls.max(1) as f64;
        out.put(
            format_args!("cmdstat_{name}"),
            format_args!(
                "calls={calls},usec={us},usec_per_call={each:.2},rejected_calls={rejected},failed_calls={failed}"
            ),
        );
    }
}

/// From the buckets of the histograms, so that each is a bucket's upper end.
fn latencystats(node: &Node, out: &mut Fields) {
    for (name, command) in node.metrics.commands() {
        if command.latency.count() > 0 {
            let [p50, p99, p999] = [0.5, 0.99, 0.999].map(|share| command.latency.quantile(share));
            out.put(
                format_args!("latency_percentiles_usec_{name}"),
                format_args!("p50={p50}.000,p99={p99}.000,p99.9={p999}.000"),
            );
        }
    }
}

fn errorstats(node: &Node, out: &mut Fields) {
    for (kind, count) in node.observe.baseline.errors(&node.metrics) {
        out.put(format_args!("errorstat_{kind}"), format_args!("count={count}"));
    }
}

fn cluster(_: &Node, out: &mut Fields) {
    out.put("cluster_enabled", u8::from(!out.whole));
}

fn keyspace(node: &Node, out: &mut Fields) {
    let keys: u64 = node.shards.led().iter().map(|s| s.machine(|m| m.stats().keys)).sum();
    if keys > 0 {
        let expires: u64 = node.shards.led().iter().map(|s| s.machine(|m| m.keys_with_deadline())).sum();
        out.put("db0", format_args!("keys={keys},expires={expires},avg_ttl=0,subexpiry=0"));
    }
}

fn weir(node: &Node, out: &mut Fields) {
    let view = node.topology.view();
    let durability = node.config.durability;
    out.put("weir_version", WEIR_VERSION);
    out.put("node_name", &node.identity.name);
    out.put("node_id", &node.identity.id);
    out.put("node_number", node.number());
    out.put("cluster_id", node.identity.cluster_id());
    out.put("map_epoch", view.map.epoch);
    out.put("durability", durability.name());
    out.put("durability_can_lose", durability.can_lose());
    let wait = match durability {
        crate::config::Durability::Always => "replicas with the write on disk",
        _ => "replicas with the write in memory",
    };
    out.put("wait_counts", wait);
    out.put("clock_offset_ms", node.stamp_clock.median_offset_ms());
    out.put("pubsub_published", node.metrics.pubsub_published.get());
    out.put("pubsub_dropped", node.metrics.pubsub_dropped.get());
    out.put("pubsub_peer_bytes", node.pubsub.outbox_bytes());
    out.put("shards_led", node.shards.led().len());
    for shard in node.shards.all() {
        let status = shard.group().status().borrow().clone();
        let leader = status.leader.and_then(|n| view.map.node(n)).map_or("?", |n| n.name.as_str());
        let role = if status.is_leader { "leader" } else { "follower" };
        out.put(
            format_args!("shard{}", shard.id().0),
            format_args!(
                "role={role},serving={},term={},leader={leader},last={},committed={},applied={},durable={},snapshot={}",
                u8::from(shard.serving()),
                status.term,
                status.last_index,
                status.committed,
                status.applied,
                shard.group().durable_index(),
                status.snapshot,
            ),
        );
    }
    let meta = node.meta.status().borrow().clone();
    let leader = meta.leader.and_then(|n| view.map.node(n)).map_or("?", |n| n.name.as_str());
    out.put("meta", format_args!("term={},leader={leader},applied={}", meta.term, meta.applied));
}

/// `master` or `replica`, as HELLO says it.
pub fn role_name(node: &Node) -> &'static str {
    let view = node.topology.view();
    if lines::is_master(&view, view.me) { "master" } else { "replica" }
}

/// ROLE for a client that knows no cluster.
pub fn whole_role() -> Reply {
    Reply::Array(vec![Reply::Bulk(Bytes::from_static(b"master")), Reply::Int(0), Reply::Array(Vec::new())])
}

/// ROLE.
pub fn role(node: &Node) -> Reply {
    let view = node.topology.view();
    let text = |text: &str| Reply::Bulk(Bytes::copy_from_slice(text.as_bytes()));
    let shard = lines::shard_of(&view, view.me).and_then(|s| node.shards.get(s.id));
    let status = shard.as_ref().map(|s| s.group().status().borrow().clone()).unwrap_or_default();
    if lines::is_master(&view, view.me) {
        let matched = shard.map(|s| s.group().matched()).unwrap_or_default();
        let follower = |(n, at): &(u64, u64)| {
            let node = view.map.node(*n)?;
            Some(Reply::Array(vec![text(&node.host), text(&node.port.to_string()), text(&at.to_string())]))
        };
        let followers = matched.iter().filter_map(follower).collect();
        return Reply::Array(vec![
            text("master"),
            Reply::Int(status.committed as i64),
            Reply::Array(followers),
        ]);
    }
    let master = lines::master_of(&view, view.me).and_then(|n| view.map.node(n));
    Reply::Array(vec![
        text("slave"),
        text(master.map_or("", |m| &m.host)),
        Reply::Int(master.map_or(0, |m| i64::from(m.port))),
        text(if master.is_some() { "connected" } else { "connect" }),
        Reply::Int(status.applied as i64),
    ])
}

#[cfg(test)]
mod tests {
    #[test]
    fn sizes_are_shown_as_redis_shows_them() {
        assert_eq!(super::human(512), "512B");
        assert_eq!(super::human(1536), "1.50K");
        assert_eq!(super::human(3 << 30), "3.00G");
    }
}
