//! The operator's cluster as a file: how it is built, how fast its network and disks are, what it carries, what goes
//! wrong.

use std::{collections::BTreeSet, time::Duration};

use serde::{Deserialize, Serialize};
use toml::Spanned;

use super::{
    places::{Places, Unusable},
    quantiles::Quantiles,
};

/// Longest load of one run.
const SECONDS_MAX: u64 = 600;
/// Names that a simulated host can have.
const NAME_LENGTH_MAX: usize = 32;

/// A file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Shape {
    /// What the page is called.
    #[serde(default = "default_title")]
    pub(crate) title: String,
    /// How often it is run, each time with another seed.
    #[serde(default = "default_runs")]
    runs: Spanned<u64>,
    /// How long the load lasts in each run.
    #[serde(default = "default_seconds")]
    seconds: Spanned<u64>,
    pub(crate) cluster: ClusterShape,
    pub(crate) network: NetworkShape,
    pub(crate) disk: DiskShape,
    pub(crate) load: LoadShape,
    /// What goes wrong, in any order.
    #[serde(default, rename = "fault")]
    pub(crate) faults: Vec<FaultShape>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct ClusterShape {
    /// Every node with its zone.
    nodes: Spanned<Vec<Spanned<NodeShape>>>,
    /// 0: as many as nodes.
    #[serde(default = "zero")]
    shards: Spanned<u32>,
    /// Settings of the nodes, as in their configuration file.
    #[serde(default = "no_settings")]
    settings: Spanned<toml::Table>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct NodeShape {
    pub(crate) name: String,
    pub(crate) zone: String,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct NetworkShape {
    /// Round trip inside a zone, milliseconds.
    rtt_ms: Spanned<f64>,
    /// A message may take this much longer, milliseconds.
    #[serde(default = "none")]
    jitter_ms: Spanned<f64>,
    /// Round trips between zones; pairs that are not named are as inside a zone.
    #[serde(default)]
    between: Vec<BetweenShape>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct BetweenShape {
    zones: Spanned<[String; 2]>,
    rtt_ms: Spanned<f64>,
    #[serde(default = "none")]
    jitter_ms: Spanned<f64>,
}

/// How long a sync takes, as `weir-sim probe` prints it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct DiskShape {
    min_ms: Option<Spanned<f64>>,
    p50_ms: Spanned<f64>,
    p90_ms: Option<Spanned<f64>>,
    p99_ms: Option<Spanned<f64>>,
    p999_ms: Option<Spanned<f64>>,
    max_ms: Option<Spanned<f64>>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct LoadShape {
    /// Clients that add.
    producers: Spanned<usize>,
    /// Adds a second that they ask for together.
    rate: Spanned<f64>,
    /// Clients that work on entries.
    consumers: Spanned<usize>,
    /// How long a consumer takes for an entry, milliseconds.
    #[serde(default = "default_work")]
    work_ms: Spanned<f64>,
    /// An entry that was pending this long is claimed by another consumer, milliseconds.
    #[serde(default = "default_lease")]
    lease_ms: Spanned<u64>,
    #[serde(default = "default_streams")]
    streams: Spanned<usize>,
    #[serde(default = "default_bytes")]
    entry_bytes: Spanned<usize>,
    /// After this a writer that looks for gaps gives an answer up and asks another node, milliseconds.
    #[serde(default = "default_answer")]
    answer_ms: Spanned<u64>,
    /// Time limits of WAIT to look at, milliseconds.
    #[serde(default)]
    wait_ms: Vec<Spanned<u64>>,
    /// How many writers at once, each waiting for its answer, when the bound is looked for.
    #[serde(default)]
    writers_at_once: Vec<Spanned<usize>>,
    /// Zones that clients are in; all, if none is named.
    #[serde(default)]
    zones: Vec<Spanned<String>>,
}

/// One thing that goes wrong.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct FaultShape {
    /// Seconds after the load began.
    at_s: Spanned<f64>,
    pub(crate) kind: Kind,
    /// For how long, seconds.
    for_s: Spanned<f64>,
    /// This node,
    node: Option<Spanned<String>>,
    /// or all nodes of this zone,
    zone: Option<Spanned<String>>,
    /// or whoever leads this shard then.
    leader_of: Option<Spanned<u32>>,
}

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    /// The process dies; its machine answers that nobody listens.
    Kill,
    /// The machine loses power.
    PowerOff,
    /// The process stands still.
    Pause,
    /// Nobody outside the struck nodes hears of them, or they of anybody.
    Isolate,
}

impl Kind {
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Kill => "process killed",
            Self::PowerOff => "power off",
            Self::Pause => "process stands still",
            Self::Isolate => "cut off",
        }
    }
}

/// Whom a fault strikes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    Nodes(Vec<usize>),
    LeaderOf(u32),
}

/// A fault, checked.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Planned {
    pub(crate) at: Duration,
    pub(crate) lasts: Duration,
    pub(crate) kind: Kind,
    pub(crate) target: Target,
    /// For people.
    pub(crate) name: String,
}

fn spanned<T>(value: T) -> Spanned<T> {
    Spanned::new(0..0, value)
}
fn default_title() -> String {
    "A Weir cluster under faults".to_owned()
}
fn default_runs() -> Spanned<u64> {
    spanned(10)
}
fn default_seconds() -> Spanned<u64> {
    spanned(20)
}
fn zero() -> Spanned<u32> {
    spanned(0)
}
fn no_settings() -> Spanned<toml::Table> {
    spanned(toml::Table::new())
}
fn none() -> Spanned<f64> {
    spanned(0.0)
}
fn default_work() -> Spanned<f64> {
    spanned(5.0)
}
fn default_lease() -> Spanned<u64> {
    spanned(3000)
}
fn default_answer() -> Spanned<u64> {
    spanned(1000)
}
fn default_streams() -> Spanned<usize> {
    spanned(12)
}
fn default_bytes() -> Spanned<usize> {
    spanned(200)
}

/// A file that can be run.
#[derive(Debug, Clone)]
pub(crate) struct Checked {
    pub(crate) title: String,
    pub(crate) runs: u64,
    pub(crate) lasts: Duration,
    pub(crate) nodes: Vec<NodeShape>,
    pub(crate) shards: u32,
    pub(crate) settings: Vec<(String, String)>,
    /// Round trip and jitter inside a zone, milliseconds.
    pub(crate) inside: (f64, f64),
    /// The same between zones that are named.
    pub(crate) between: Vec<([String; 2], (f64, f64))>,
    pub(crate) sync: Quantiles,
    pub(crate) producers: usize,
    pub(crate) rate: f64,
    pub(crate) consumers: usize,
    pub(crate) work: Duration,
    pub(crate) lease: Duration,
    pub(crate) answer: Duration,
    pub(crate) streams: usize,
    pub(crate) entry_bytes: usize,
    pub(crate) wait_ms: Vec<u64>,
    pub(crate) writers_at_once: Vec<usize>,
    pub(crate) client_zones: Vec<String>,
    pub(crate) faults: Vec<Planned>,
}

/// Reads a file.
pub(crate) fn read(text: &str) -> Result<Checked, Unusable> {
    let shape: Shape = toml::from_str(text).map_err(|error| {
        let what = error.message().to_owned();
        error.span().map_or_else(|| Unusable(what.clone()), |span| Places(text).at(&span, &what))
    })?;
    check(&shape, &Places(text))
}

fn check(shape: &Shape, places: &Places<'_>) -> Result<Checked, Unusable> {
    let nodes = nodes(&shape.cluster, places)?;
    let zones: BTreeSet<&str> = nodes.iter().map(|node| node.zone.as_str()).collect();
    let shards = match *shape.cluster.shards.get_ref() {
        0 => u32::try_from(nodes.len()).unwrap_or(1),
        _ => places.count(&shape.cluster.shards, "shards", 1, 64)?,
    };
    let load = &shape.load;
    let lasts = Duration::from_secs(places.count(&shape.seconds, "seconds", 1, SECONDS_MAX)?);
    let rate = *load.rate.get_ref();
    if !(rate.is_finite() && rate > 0.0 && rate <= 100_000.0) {
        return Err(
            places.at(&load.rate.span(), &format!("rate = {rate}: more than 0 adds a second are needed"))
        );
    }
    let mut client_zones = Vec::new();
    for zone in &load.zones {
        if !zones.contains(zone.get_ref().as_str()) {
            return Err(places.at(&zone.span(), &format!("no node is in zone {:?}", zone.get_ref())));
        }
        client_zones.push(zone.get_ref().clone());
    }
    if client_zones.is_empty() {
        client_zones = zones.iter().map(|&zone| zone.to_owned()).collect();
    }
    let list = |values: &[Spanned<u64>]| values.iter().map(|value| *value.get_ref()).collect::<Vec<u64>>();
    let mut writers_at_once = Vec::new();
    for writers in &load.writers_at_once {
        writers_at_once.push(places.count(writers, "writers-at-once", 1, 1024)?);
    }
    Ok(Checked {
        title: shape.title.clone(),
        runs: places.count(&shape.runs, "runs", 1, 10_000)?,
        lasts,
        shards,
        settings: settings(&shape.cluster, places)?,
        inside: (
            places.time(&shape.network.rtt_ms, "rtt-ms", 5000.0)?,
            places.time(&shape.network.jitter_ms, "jitter-ms", 5000.0)?,
        ),
        between: between(&shape.network, &zones, places)?,
        sync: sync(&shape.disk, places)?,
        producers: places.count(&load.producers, "producers", 1, 1000)?,
        rate,
        consumers: places.count(&load.consumers, "consumers", 0, 1000)?,
        work: Duration::from_secs_f64(places.time(&load.work_ms, "work-ms", 600_000.0)? / 1000.0),
        lease: Duration::from_millis(places.count(&load.lease_ms, "lease-ms", 10, 3_600_000)?),
        answer: Duration::from_millis(places.count(&load.answer_ms, "answer-ms", 10, 60_000)?),
        streams: places.count(&load.streams, "streams", 1, 1000)?,
        entry_bytes: places.count(&load.entry_bytes, "entry-bytes", 1, 1 << 20)?,
        wait_ms: list(&load.wait_ms),
        writers_at_once,
        client_zones,
        faults: faults(shape, &nodes, shards, lasts, places)?,
        nodes,
    })
}

fn nodes(cluster: &ClusterShape, places: &Places<'_>) -> Result<Vec<NodeShape>, Unusable> {
    let span = cluster.nodes.span();
    let nodes = cluster.nodes.get_ref();
    if nodes.is_empty() || nodes.len() > 9 {
        let what = format!("{} nodes: a cluster has 1 to 9", nodes.len());
        return Err(places.at(&span, &what));
    }
    let mut names = BTreeSet::new();
    for node in nodes {
        let NodeShape { name, zone } = node.get_ref();
        for word in [name, zone] {
            let plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
            if word.is_empty() || word.len() > NAME_LENGTH_MAX || !word.chars().all(plain) {
                let what = format!("{word:?}: names have 1 to {NAME_LENGTH_MAX} letters, digits or hyphens");
                return Err(places.at(&node.span(), &what));
            }
        }
        if !names.insert(name) {
            return Err(places.at(&node.span(), &format!("there are two nodes {name:?}")));
        }
    }
    Ok(nodes.iter().map(|node| node.get_ref().clone()).collect())
}

/// The nodes' own settings; what the simulated world decides is not among them.
fn settings(cluster: &ClusterShape, places: &Places<'_>) -> Result<Vec<(String, String)>, Unusable> {
    const OURS: [&str; 9] =
        ["name", "dir", "port", "cluster", "bind", "advertise", "shards", "log", "worker-threads"];
    let mut settings = Vec::new();
    for (name, value) in cluster.settings.get_ref() {
        let text = match value {
            toml::Value::String(text) => text.clone(),
            toml::Value::Integer(number) => number.to_string(),
            toml::Value::Boolean(flag) => flag.to_string(),
            other => {
                let what = format!("settings: {name} = {other} is no setting of a node");
                return Err(places.at(&cluster.settings.span(), &what));
            }
        };
        if OURS.contains(&name.as_str()) {
            let what = format!("settings: {name} is what the simulated world decides");
            return Err(places.at(&cluster.settings.span(), &what));
        }
        settings.push((name.clone(), text));
    }
    let flags = settings.iter().cloned().chain([
        ("name".to_owned(), "n".to_owned()),
        ("dir".to_owned(), "/data".to_owned()),
        ("cluster".to_owned(), "n=n:7001".to_owned()),
    ]);
    let sources = weir_server::config::Sources { flags: flags.collect(), ..Default::default() };
    weir_server::config::Config::load(&sources)
        .map_err(|error| places.at(&cluster.settings.span(), &format!("settings: {error}")))?;
    Ok(settings)
}

#[expect(clippy::type_complexity, reason = "pairs of a name and two times")]
fn between(
    network: &NetworkShape,
    zones: &BTreeSet<&str>,
    places: &Places<'_>,
) -> Result<Vec<([String; 2], (f64, f64))>, Unusable> {
    let mut all = Vec::new();
    for pair in &network.between {
        for zone in pair.zones.get_ref() {
            if !zones.contains(zone.as_str()) {
                return Err(places.at(&pair.zones.span(), &format!("no node is in zone {zone:?}")));
            }
        }
        let times = (
            places.time(&pair.rtt_ms, "rtt-ms", 5000.0)?,
            places.time(&pair.jitter_ms, "jitter-ms", 5000.0)?,
        );
        all.push((pair.zones.get_ref().clone(), times));
    }
    Ok(all)
}

fn sync(disk: &DiskShape, places: &Places<'_>) -> Result<Quantiles, Unusable> {
    let known = [
        ("min-ms", 0.0, &disk.min_ms),
        ("p50-ms", 0.5, &Some(disk.p50_ms.clone())),
        ("p90-ms", 0.9, &disk.p90_ms),
        ("p99-ms", 0.99, &disk.p99_ms),
        ("p999-ms", 0.999, &disk.p999_ms),
        ("max-ms", 1.0, &disk.max_ms),
    ]
    .map(|(name, at, value)| (name, at, value.clone()));
    let mut points = Vec::new();
    let mut before = 0.0;
    for (name, at, value) in &known {
        let Some(value) = value else { continue };
        let ms = places.time(value, name, 60_000.0)?;
        if ms < before {
            return Err(
                places.at(&value.span(), &format!("{name} = {ms} is less than the quantile before it"))
            );
        }
        before = ms;
        points.push((*at, ms));
    }
    Ok(Quantiles::new(&points))
}

fn faults(
    shape: &Shape,
    nodes: &[NodeShape],
    shards: u32,
    lasts: Duration,
    places: &Places<'_>,
) -> Result<Vec<Planned>, Unusable> {
    let mut planned = Vec::new();
    for fault in &shape.faults {
        let most = lasts.as_secs_f64();
        let at = places.time(&fault.at_s, "at-s", most)?;
        let lasts = places.time(&fault.for_s, "for-s", SECONDS_MAX as f64)?;
        let (target, whom) = match (&fault.node, &fault.zone, &fault.leader_of) {
            (Some(node), None, None) => {
                let found = nodes.iter().position(|known| known.name == *node.get_ref());
                let index =
                    found.ok_or_else(|| places.at(&node.span(), &format!("no node {:?}", node.get_ref())))?;
                (Target::Nodes(vec![index]), node.get_ref().clone())
            }
            (None, Some(zone), None) => {
                let inside = |index: &usize| nodes[*index].zone == *zone.get_ref();
                let all: Vec<usize> = (0..nodes.len()).filter(inside).collect();
                if all.is_empty() {
                    let what = format!("no node is in zone {:?}", zone.get_ref());
                    return Err(places.at(&zone.span(), &what));
                }
                (Target::Nodes(all), format!("zone {}", zone.get_ref()))
            }
            (None, None, Some(shard)) => {
                let number = places.count(shard, "leader-of", 0, shards - 1)?;
                (Target::LeaderOf(number), format!("leader of shard {number}"))
            }
            _ => {
                let what = "a fault needs one of `node`, `zone` and `leader-of`";
                return Err(places.at(&fault.at_s.span(), what));
            }
        };
        planned.push(Planned {
            at: Duration::from_secs_f64(at),
            lasts: Duration::from_secs_f64(lasts),
            kind: fault.kind,
            target,
            name: format!("{}: {}, {lasts} s", whom, fault.kind.words()),
        });
    }
    planned.sort_by_key(|fault| fault.at);
    Ok(planned)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: &str = include_str!("../../examples/three-zones.toml");

    #[test]
    fn the_sample_is_read_with_all_its_parts() {
        let shape = read(SAMPLE).unwrap();
        assert_eq!((shape.nodes.len(), shape.shards), (3, 3));
        assert!(!shape.faults.is_empty() && !shape.wait_ms.is_empty() && !shape.between.is_empty());
    }

    #[test]
    fn what_cannot_be_is_told_with_its_line() {
        for (from, to, wanted) in [
            ("rtt-ms = 0.4", "rtt-ms = -1", "rtt-ms = -1"),
            ("producers = 9", "producers = 0", "producers = 0"),
            ("producers = 9", "producer = 9", "unknown field `producer`"),
            ("p99-ms = 4.0", "p99-ms = 0.1", "less than the quantile before it"),
            ("leader-of = 0", "leader-of = 7", "leader-of = 7"),
            ("leader-of = 0", "node = \"n9\"", "no node \"n9\""),
            ("leader-of = 0", "leader-of = 0\nnode = \"n1\"", "needs one of"),
            ("kind = \"kill\"", "kind = \"explode\"", "unknown variant `explode`"),
            ("rate = 300", "rate = 0", "rate = 0"),
            ("heartbeat-ms = 120", "heartbeat = 120", "heartbeat"),
        ] {
            assert!(SAMPLE.contains(from), "{from}");
            let text = SAMPLE.replacen(from, to, 1);
            let told = read(&text).unwrap_err().to_string();
            let line = text.lines().position(|line| line.contains(to.lines().next().unwrap())).unwrap() + 1;
            assert!(told.contains(wanted), "{to}: {told}");
            // A fault is named by its first line.
            let near =
                (line.saturating_sub(4)..=line + 1).any(|line| told.contains(&format!("line {line}:")));
            assert!(near, "{to} in line {line}: {told}");
        }
        let zero = "[cluster]\nnodes = []\n[network]\nrtt-ms = 1\n[disk]\np50-ms = 1\n[load]\nproducers = 1\n\
                    rate = 1\nconsumers = 0\n";
        assert!(read(zero).unwrap_err().to_string().starts_with("line 2: 0 nodes"));
    }
}
