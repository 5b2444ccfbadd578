//! The admin port: is the process alive, does it serve, and its numbers for Prometheus. Plain HTTP, loopback unless
//! `bind` says otherwise. Costs O(shards + listed streams), never a walk over data.

use crate::info;
use crate::metrics::Histogram;
use crate::node::Node;
use crate::shard::ShardHandle;
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::collections::BTreeSet;
use std::convert::Infallible;
use std::fmt::{Display, Write};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use weir_env::{BoxStream, Env, Listener};

/// Most admin connections at once; more wait to be accepted.
const CONNECTIONS_MAX: usize = 64;
/// A caller that sends no whole request within this time is cut off.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// What the admin port shows: nothing of the node until it has joined its cluster.
#[derive(Clone, Default)]
pub struct Site(Arc<OnceLock<Arc<Node>>>);

impl Site {
    /// From now on the node's numbers are shown.
    pub fn open(&self, node: &Arc<Node>) {
        let _ = self.0.set(node.clone());
    }
}

/// Serves until `shutdown` ends.
pub async fn serve(
    env: Env,
    listener: Box<dyn Listener>,
    site: Site,
    shutdown: impl Future<Output = ()> + Send,
) {
    let places = Arc::new(tokio::sync::Semaphore::new(CONNECTIONS_MAX));
    tokio::pin!(shutdown);
    loop {
        let accept = async {
            let place = places.clone().acquire_owned().await;
            (place, listener.accept().await)
        };
        let (place, accepted) = tokio::select! {
            biased;
            () = &mut shutdown => return,
            accepted = accept => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                let site = site.clone();
                env.spawn.spawn(
                    "admin connection",
                    Box::pin(async move {
                        connection(stream, site).await;
                        drop(place);
                    }),
                );
            }
            Err(e) => {
                tracing::warn!(error = %e, "cannot accept an admin connection");
                weir_env::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn connection(stream: BoxStream, site: Site) {
    let service = hyper::service::service_fn(move |request: Request<Incoming>| {
        let site = site.clone();
        async move { Ok::<_, Infallible>(answer(&site, request.uri().path())) }
    });
    let served = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(REQUEST_TIMEOUT)
        .serve_connection(TokioIo::new(stream), service)
        .await;
    if let Err(e) = served {
        tracing::debug!(error = %e, "admin connection ended");
    }
}

fn answer(site: &Site, path: &str) -> Response<Full<Bytes>> {
    let (status, text) = match (path, site.0.get()) {
        ("/healthz", _) => (StatusCode::OK, "ok\n".to_owned()),
        ("/readyz", None) => (StatusCode::SERVICE_UNAVAILABLE, "waiting for the cluster\n".to_owned()),
        ("/readyz", Some(node)) => readiness(node),
        ("/metrics", None) => (StatusCode::OK, build_info()),
        ("/metrics", Some(node)) => (StatusCode::OK, metrics(node)),
        ("/", _) => (StatusCode::OK, "weir admin: /healthz /readyz /metrics\n".to_owned()),
        _ => (StatusCode::NOT_FOUND, "no such page; there are /healthz, /readyz and /metrics\n".to_owned()),
    };
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    let kind = http::HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(http::header::CONTENT_TYPE, kind);
    response
}

fn readiness(node: &Node) -> (StatusCode, String) {
    let view = node.topology.view();
    if view.all_served() {
        return (StatusCode::OK, "ready\n".to_owned());
    }
    let missing = view.map.shards.iter().filter(|s| view.live_leader(s.id).is_none());
    let missing: Vec<String> = missing.map(|s| s.id.0.to_string()).collect();
    let text = match missing.is_empty() {
        true => "leaders are not serving yet\n".to_owned(),
        false => format!("no live leader for shard {}\n", missing.join(", ")),
    };
    (StatusCode::SERVICE_UNAVAILABLE, text)
}

/// Prometheus' text format. `help` and `type` are printed once a name.
#[derive(Default)]
struct Page {
    text: String,
    named: BTreeSet<&'static str>,
}

impl Page {
    fn head(&mut self, name: &'static str, kind: &str, help: &str) {
        if self.named.insert(name) {
            let _ = write!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
        }
    }

    fn put(
        &mut self,
        name: &'static str,
        kind: &str,
        help: &str,
        labels: &[(&str, &dyn Display)],
        value: impl Display,
    ) {
        self.head(name, kind, help);
        self.text.push_str(name);
        self.labels(labels, None);
        let _ = writeln!(self.text, " {value}");
    }

    fn gauge(
        &mut self,
        name: &'static str,
        help: &str,
        labels: &[(&str, &dyn Display)],
        value: impl Display,
    ) {
        self.put(name, "gauge", help, labels, value);
    }

    fn counter(
        &mut self,
        name: &'static str,
        help: &str,
        labels: &[(&str, &dyn Display)],
        value: impl Display,
    ) {
        self.put(name, "counter", help, labels, value);
    }

    /// `rows`: upper bound (`None` = +Inf) and the count at or below it.
    fn buckets(
        &mut self,
        name: &'static str,
        help: &str,
        labels: &[(&str, &dyn Display)],
        rows: impl Iterator<Item = (Option<f64>, u64)>,
        sum: f64,
        count: u64,
    ) {
        self.head(name, "histogram", help);
        for (bound, below) in rows {
            let bound = bound.map_or_else(|| "+Inf".to_owned(), |b| b.to_string());
            let _ = write!(self.text, "{name}_bucket");
            self.labels(labels, Some(&bound));
            let _ = writeln!(self.text, " {below}");
        }
        for (suffix, value) in [("sum", sum.to_string()), ("count", count.to_string())] {
            let _ = write!(self.text, "{name}_{suffix}");
            self.labels(labels, None);
            let _ = writeln!(self.text, " {value}");
        }
    }

    fn histogram(
        &mut self,
        name: &'static str,
        help: &str,
        labels: &[(&str, &dyn Display)],
        values: &Histogram,
    ) {
        let unit = if values.is_time() { 1e-6 } else { 1.0 };
        let rows = values.cumulative();
        let count = rows.last().map_or(0, |(_, n)| *n);
        let scaled = rows.into_iter().map(|(bound, below)| (bound.map(|b| b as f64 * unit), below));
        self.buckets(name, help, labels, scaled, values.sum() as f64 * unit, count);
    }

    fn labels(&mut self, labels: &[(&str, &dyn Display)], bound: Option<&str>) {
        let all = labels.iter().map(|(k, v)| (*k, v.to_string())).chain(bound.map(|b| ("le", b.to_owned())));
        let mut open = false;
        for (name, value) in all {
            let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let _ = write!(self.text, "{}{name}=\"{value}\"", if open { "," } else { "{" });
            open = true;
        }
        if open {
            self.text.push('}');
        }
    }
}

fn build_info() -> String {
    let mut page = Page::default();
    page.gauge("weir_build_info", "Version of this program.", &[("version", &info::WEIR_VERSION)], 1);
    page.text
}

fn metrics(node: &Node) -> String {
    let mut page = Page { text: build_info(), named: BTreeSet::from(["weir_build_info"]) };
    process(node, &mut page);
    commands(node, &mut page);
    log(node, &mut page);
    for shard in node.shards.all() {
        raft(node, &mut page, &shard.id().0, shard.group(), shard.serving());
        shard_flow(node, &mut page, &shard);
        shard_data(node, &mut page, &shard);
    }
    raft(node, &mut page, &"meta", &node.meta, node.meta.status().borrow().ready);
    page.text
}

fn process(node: &Node, page: &mut Page) {
    let m = &node.metrics;
    let none: &[(&str, &dyn Display)] = &[];
    page.gauge("weir_uptime_seconds", "Since this process started.", none, node.uptime().as_secs_f64());
    page.gauge(
        "weir_ready",
        "1 while every slot is served.",
        none,
        u8::from(node.topology.view().all_served()),
    );
    if let Some(bytes) = info::resident_bytes(node) {
        page.gauge("weir_memory_resident_bytes", "Resident memory of this process.", none, bytes);
    }
    page.gauge("weir_connections_open", "Client connections.", none, m.connections_open.get());
    page.counter(
        "weir_connections_accepted_total",
        "Client connections so far.",
        none,
        m.connections_accepted.get(),
    );
    page.counter(
        "weir_connections_rejected_total",
        "Refused at maxclients.",
        none,
        m.connections_rejected.get(),
    );
    page.counter(
        "weir_pubsub_published_total",
        "Messages that clients of this node published.",
        none,
        m.pubsub_published.get(),
    );
    page.counter(
        "weir_pubsub_dropped_total",
        "Messages of PUBLISH that another node may not have got.",
        none,
        m.pubsub_dropped.get(),
    );
    page.counter(
        "weir_pubsub_disconnected_total",
        "Subscribers closed at pubsub-output-buffer-limit.",
        none,
        m.pubsub_disconnected.get(),
    );
    page.gauge("weir_pubsub_clients", "Clients that listen to channels.", none, node.pubsub.clients());
    page.counter("weir_input_bytes_total", "Read from clients.", none, m.input_bytes.get());
    page.counter("weir_output_bytes_total", "Written to clients.", none, m.output_bytes.get());
    page.gauge("weir_held_commands", "Commands that wait for a leader.", none, node.held.commands());
    page.counter(
        "weir_cluster_down_total",
        "Commands that waited in vain for a leader.",
        none,
        m.cluster_down.get(),
    );
    let offset = node.stamp_clock.median_offset_ms();
    page.gauge("weir_clock_offset_ms", "Median clock of the cluster minus this node's.", none, offset);
    for (kind, count) in m.errors() {
        page.counter("weir_error_replies_total", "Error replies by first word.", &[("kind", &kind)], count);
    }
}

fn commands(node: &Node, page: &mut Page) {
    let all = node.metrics.commands();
    for (name, command) in &all {
        page.counter("weir_commands_total", "Calls.", &[("command", name)], command.latency.count());
    }
    for (name, command) in &all {
        page.counter(
            "weir_command_errors_total",
            "Calls answered with an error.",
            &[("command", name)],
            command.failed.get(),
        );
    }
    for (name, command) in &all {
        page.histogram(
            "weir_command_seconds",
            "From parsed to answered.",
            &[("command", name)],
            &command.latency,
        );
    }
}

fn log(node: &Node, page: &mut Page) {
    let wal = node.wal.stats();
    let none: &[(&str, &dyn Display)] = &[];
    let mut below = 0;
    let last = wal.sync.buckets.len() - 1;
    let rows = wal.sync.buckets.iter().enumerate().map(|(i, n)| {
        below += n;
        ((i < last).then(|| (1u64 << i) as f64 * 1e-6), below)
    });
    let sum = wal.sync.sum_us as f64 * 1e-6;
    page.buckets("weir_wal_fsync_seconds", "Time of each sync of the log.", none, rows, sum, wal.sync.count);
    page.counter("weir_wal_batches_total", "Batches written.", none, wal.batches);
    page.counter("weir_wal_bytes_total", "Bytes written.", none, wal.bytes);
    page.counter("weir_wal_entries_total", "Log entries written.", none, wal.entries);
    page.counter(
        "weir_wal_entries_moved_total",
        "Entries copied so that old files could go.",
        none,
        wal.entries_moved,
    );
    page.gauge("weir_wal_segments", "Files of the log.", none, wal.segments);
    page.gauge("weir_wal_segment_bytes", "Their size.", none, wal.segment_bytes);
    page.gauge("weir_wal_live_bytes", "Bytes in them that are still needed.", none, wal.live_bytes);
    page.gauge("weir_wal_queued_bytes", "Bytes not yet written.", none, wal.queued_bytes);
    page.gauge("weir_wal_cached_bytes", "Log entries in memory.", none, wal.cached_bytes);
    page.counter("weir_wal_disk_reads_total", "Reads that missed the cache.", none, wal.disk_reads);
}

fn raft(node: &Node, page: &mut Page, shard: &dyn Display, group: &weir_raft::Group, serving: bool) {
    let status = group.status().borrow().clone();
    let view = node.topology.view();
    let labels: &[(&str, &dyn Display)] = &[("shard", shard)];
    page.gauge("weir_raft_term", "Current term.", labels, status.term);
    page.gauge(
        "weir_raft_leader",
        "Number of the node that leads, 0 = nobody.",
        labels,
        status.leader.unwrap_or(0),
    );
    page.gauge("weir_raft_is_leader", "1 if this node leads.", labels, u8::from(status.is_leader));
    page.gauge(
        "weir_raft_serving",
        "1 if this node leads, is ready and has a quorum.",
        labels,
        u8::from(serving),
    );
    page.gauge(
        "weir_raft_tail_lost",
        "1 while this replica may lack entries that it confirmed before a power loss and helps to elect no leader without them.",
        labels,
        u8::from(*group.tail_lost().borrow()),
    );
    page.gauge("weir_raft_last_index", "Last log entry.", labels, status.last_index);
    page.gauge("weir_raft_durable_index", "Last log entry on this disk.", labels, group.durable_index());
    page.gauge("weir_raft_committed_index", "Last entry known to be committed.", labels, status.committed);
    page.gauge("weir_raft_applied_index", "Last entry applied.", labels, status.applied);
    page.gauge(
        "weir_raft_apply_lag_entries",
        "Committed, not applied.",
        labels,
        status.committed.saturating_sub(status.applied),
    );
    page.gauge("weir_raft_snapshot_index", "Last entry in the newest snapshot.", labels, status.snapshot);
    page.gauge(
        "weir_raft_proposals_waiting",
        "Proposals whose end is open.",
        labels,
        group.metrics().waiting,
    );
    for (number, matched) in group.matched() {
        let unknown = number.to_string();
        let follower = view.map.node(number).map_or(unknown.as_str(), |n| n.name.as_str());
        let labels: &[(&str, &dyn Display)] = &[("shard", shard), ("follower", &follower)];
        let lag = status.last_index.saturating_sub(matched);
        page.gauge(
            "weir_raft_follower_lag_entries",
            "Entries that a follower does not have on disk.",
            labels,
            lag,
        );
    }
}

fn shard_flow(node: &Node, page: &mut Page, shard: &ShardHandle) {
    let m = node.metrics.shard(shard.id());
    let id = shard.id().0;
    let view = node.topology.view();
    for (number, behind) in m.progress.behind(node.env.clock.mono(), &shard.group().matched()) {
        let unknown = number.to_string();
        let follower = view.map.node(number).map_or(unknown.as_str(), |n| n.name.as_str());
        let labels: &[(&str, &dyn Display)] = &[("shard", &id), ("follower", &follower)];
        page.gauge(
            "weir_raft_follower_lag_ms",
            "Age of the oldest entry that a follower lacks.",
            labels,
            behind.as_millis(),
        );
    }
    let labels: &[(&str, &dyn Display)] = &[("shard", &id)];
    page.counter("weir_raft_elections_total", "Changes of the term since start.", labels, m.elections.get());
    page.histogram("weir_batch_commands", "Commands in a log entry.", labels, &m.batch_commands);
    page.histogram("weir_batch_bytes", "Bytes of a log entry.", labels, &m.batch_bytes);
    page.histogram("weir_commit_seconds", "From proposed to applied.", labels, &m.commit_time);
    page.histogram("weir_shard_stall_seconds", "How long one step held the shard.", labels, &m.stall_time);
    page.counter("weir_unknown_total", "Writes answered UNKNOWN.", labels, m.unknown.get());
    page.counter("weir_busy_total", "Commands refused because too many were waiting.", labels, m.busy.get());
    page.counter("weir_snapshots_total", "Snapshots taken.", labels, m.snapshots.get());
    page.counter(
        "weir_snapshot_installs_total",
        "Snapshots received from a leader.",
        labels,
        m.installs.get(),
    );
    page.gauge("weir_waiters", "Parked readers.", labels, shard.parked());
}

fn shard_data(node: &Node, page: &mut Page, shard: &ShardHandle) {
    let id = shard.id().0;
    let labels: &[(&str, &dyn Display)] = &[("shard", &id)];
    let streams_max = node.settings.metrics_streams_max.size();
    let (stats, streams) = shard.machine(|m| (m.stats(), m.stream_stats(None, streams_max)));
    page.gauge("weir_keys", "Keys.", labels, stats.keys);
    page.gauge("weir_streams", "Streams.", labels, stats.streams);
    page.gauge("weir_entries", "Stream entries.", labels, stats.entries);
    page.gauge("weir_groups", "Consumer groups.", labels, stats.groups);
    page.gauge("weir_consumers", "Consumers.", labels, stats.consumers);
    page.gauge("weir_pending", "Pending entries over all groups.", labels, stats.pending);
    page.gauge("weir_data_bytes", "Bytes of data.", labels, stats.memory_bytes);
    if !shard.serving() {
        return;
    }
    for (key, stream) in &streams {
        let key = String::from_utf8_lossy(key);
        let labels: &[(&str, &dyn Display)] = &[("shard", &id), ("stream", &key)];
        page.gauge("weir_stream_length", "Entries of a stream.", labels, stream.length);
        page.counter(
            "weir_stream_entries_added_total",
            "Entries ever added to a stream.",
            labels,
            stream.entries_added,
        );
        for group in &stream.groups {
            let name = String::from_utf8_lossy(&group.name);
            let labels: &[(&str, &dyn Display)] = &[("shard", &id), ("stream", &key), ("group", &name)];
            page.gauge("weir_group_pending", "Pending entries of a group.", labels, group.pending);
            if let Some(lag) = group.lag {
                page.gauge("weir_group_lag", "Entries that a group has not read.", labels, lag);
            }
            page.gauge(
                "weir_group_distance_ms",
                "Time from the id that a group read last to the newest id of its stream.",
                labels,
                stream.last_id.ms.saturating_sub(group.last_delivered_id.ms),
            );
            let oldest = group.oldest_delivery_ms.map_or(0, |at| shard.now_ms().saturating_sub(at));
            page.gauge("weir_group_oldest_pending_ms", "Age of the oldest pending delivery.", labels, oldest);
            for (consumer, pending) in &group.pending_of {
                let consumer = String::from_utf8_lossy(consumer);
                let labels: &[(&str, &dyn Display)] =
                    &[("shard", &id), ("stream", &key), ("group", &name), ("consumer", &consumer)];
                page.gauge("weir_consumer_pending", "Pending entries of a consumer.", labels, pending);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_what_prometheus_reads() {
        let mut page = Page::default();
        page.gauge("a", "Help.", &[("k", &"x\"y")], 1);
        page.gauge("a", "Help.", &[], 2);
        let histogram = Histogram::of_time();
        histogram.time(Duration::from_millis(2));
        page.histogram("b", "Time.", &[("k", &1)], &histogram);
        assert!(
            page.text.starts_with("# HELP a Help.\n# TYPE a gauge\na{k=\"x\\\"y\"} 1\na 2\n# HELP b Time.\n")
        );
        assert!(
            page.text.contains("b_bucket{k=\"1\",le=\"0.001\"} 0\nb_bucket{k=\"1\",le=\"0.002\"} 1\n"),
            "{}",
            page.text
        );
        assert!(
            page.text
                .ends_with("b_bucket{k=\"1\",le=\"+Inf\"} 1\nb_sum{k=\"1\"} 0.002\nb_count{k=\"1\"} 1\n"),
            "{}",
            page.text
        );
    }

    #[test]
    fn before_the_node_has_joined_it_is_alive_and_not_ready() {
        let site = Site::default();
        assert_eq!(answer(&site, "/healthz").status(), StatusCode::OK);
        assert_eq!(answer(&site, "/readyz").status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(answer(&site, "/nothing").status(), StatusCode::NOT_FOUND);
    }
}
