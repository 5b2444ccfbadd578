//! All settings. `config/default.toml` is embedded: it names every key, its default and what it means, and
//! nothing is a setting that does not stand there.
//!
//! Each key is a flag, an environment variable and a key of the file; a flag wins over the environment, the
//! environment over the file, the file over the default.

use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The commented defaults, as `weir config` prints them.
pub const DEFAULT_TOML: &str = include_str!("../config/default.toml");

/// Added to the client port: peers (gRPC).
pub const PEER_PORT_OFFSET: u16 = 10_000;
/// Added to the client port: admin (HTTP).
pub const ADMIN_PORT_OFFSET: u16 = 20_000;
/// The highest client port that leaves room for the other two.
pub const PORT_MAX: u16 = u16::MAX - ADMIN_PORT_OFFSET;

/// A segment of the log holds at least some records, and its offsets have 32 bits.
const WAL_SEGMENT_BYTES: std::ops::RangeInclusive<u64> = (64 << 10)..=(2 << 30);

/// When a write is answered; the operator's choice for the whole cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// A majority has it on disk.
    Always,
    /// A majority has it in memory; synced each second.
    EverySec,
    /// A majority has it in memory; the operating system syncs.
    Os,
}

impl Durability {
    /// As in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Durability::Always => "always",
            Durability::EverySec => "everysec",
            Durability::Os => "os",
        }
    }

    /// What can be lost, in one sentence for operators.
    pub fn can_lose(self) -> &'static str {
        match self {
            Durability::Always => "nothing answered, while a majority of disks survives",
            Durability::EverySec => {
                "about the last second, when a majority of a shard's nodes loses power at once"
            }
            Durability::Os => {
                "what the OS had not synced, when a majority of a shard's nodes loses power at once"
            }
        }
    }
}

/// A value that is not shown.
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// The value.
    pub fn get(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("...")
    }
}

/// Whether clients have to show a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TlsAuthClients {
    /// Not asked for.
    No,
    /// Checked if there is one.
    Optional,
    /// Without one there is no connection.
    Yes,
}

impl TlsAuthClients {
    /// As in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            TlsAuthClients::No => "no",
            TlsAuthClients::Optional => "optional",
            TlsAuthClients::Yes => "yes",
        }
    }
}

/// Who may use DEBUG.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DebugCommand {
    /// Nobody.
    No,
    /// Connections from this machine.
    Local,
    /// Everybody whose user may.
    Yes,
}

impl DebugCommand {
    /// As in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            DebugCommand::No => "no",
            DebugCommand::Local => "local",
            DebugCommand::Yes => "yes",
        }
    }
}

/// One node in the `cluster` list.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, Deserialize)]
pub struct Member {
    /// Its name.
    pub name: String,
    /// Host that clients and peers reach it at.
    pub host: String,
    /// Client port.
    pub port: u16,
}

impl Member {
    /// `host:port` for peers.
    pub fn peer_addr(&self) -> String {
        format!("{}:{}", self.host, self.port + PEER_PORT_OFFSET)
    }
}

impl std::fmt::Display for Member {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}={}:{}", self.name, self.host, self.port)
    }
}

/// Every setting. The meaning of each stands in `config/default.toml`.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[expect(missing_docs, reason = "default.toml is the manual; a second text would drift")]
pub struct Config {
    pub name: String,
    pub dir: PathBuf,
    pub port: u16,
    pub plain_port: u16,
    #[serde(deserialize_with = "member_list")]
    pub cluster: Vec<Member>,
    pub bind: String,
    pub advertise: String,
    pub log: String,
    pub log_json: bool,
    pub shards: u32,
    pub replicas: u32,
    pub durability: Durability,
    pub stream_node_max_entries: u32,
    pub stream_node_max_bytes: u32,
    pub maxclients: usize,
    pub timeout: u64,
    pub proto_max_bulk_len: usize,
    pub proto_max_args: usize,
    pub client_query_buffer_limit: usize,
    pub client_output_buffer_limit: usize,
    pub pubsub_output_buffer_limit: usize,
    pub pubsub_peer_buffer_limit: usize,
    pub subscriptions_max: usize,
    pub pipeline_commands_max: usize,
    pub multi_commands_max: usize,
    pub blocked_clients_max: usize,
    pub held_commands_max: usize,
    pub held_bytes_max: usize,
    pub worker_threads: usize,
    pub tls_port: u16,
    pub tls_cert_file: PathBuf,
    pub tls_key_file: PathBuf,
    pub tls_ca_cert_file: PathBuf,
    pub tls_auth_clients: TlsAuthClients,
    pub tls_cluster: bool,
    pub requirepass: Secret,
    pub protected_mode: bool,
    pub acllog_max_len: usize,
    pub enable_debug_command: DebugCommand,
    pub slowlog_log_slower_than: i64,
    pub slowlog_max_len: usize,
    pub latency_monitor_threshold: u64,
    pub maxmemory: u64,
    pub batch_commands_max: usize,
    pub batch_bytes_max: usize,
    pub batches_in_flight_max: usize,
    pub queue_commands_max: usize,
    pub queue_bytes_max: usize,
    pub write_timeout_ms: u64,
    pub follower_read_staleness_ms_max: u64,
    pub clock_skew_ms_max: u64,
    pub heartbeat_ms: u64,
    pub election_timeout_ms_min: u64,
    pub election_timeout_ms_max: u64,
    pub wal_segment_bytes: u64,
    pub wal_cache_bytes: usize,
    pub wal_reserve_bytes: u64,
    pub snapshot_log_bytes: u64,
    pub metrics_streams_max: usize,
}

/// Why settings were refused: one line that says what, where and what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(pub String);

impl Default for Config {
    fn default() -> Self {
        match Config::load(&Sources::default()) {
            Ok(config) => config,
            Err(e) => unreachable!("the embedded defaults are checked by a test: {e}"),
        }
    }
}

/// Where values may come from besides the defaults.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    /// The file given with `--config`: its path (for messages) and text.
    pub file: Option<(PathBuf, String)>,
    /// `WEIR_...` variables by key (`port`, not `WEIR_PORT`).
    pub environment: BTreeMap<String, String>,
    /// Flags by key.
    pub flags: BTreeMap<String, String>,
}

/// One key of `default.toml`, for `--help` and CONFIG GET.
#[derive(Debug, Clone)]
pub struct Setting {
    /// The key, as in the file and (with `--`) as a flag.
    pub key: &'static str,
    /// The section that it stands in.
    pub section: &'static str,
    /// The comment above it.
    pub help: String,
    /// Its default, as TOML spells it.
    pub default: &'static str,
}

impl Config {
    /// Settings from all sources, checked.
    ///
    /// # Errors
    /// An unknown key (with its line), a value of the wrong kind, or values that do not fit together.
    pub fn load(sources: &Sources) -> Result<Config, ConfigError> {
        let defaults = default_table();
        let mut merged = defaults.clone();
        if let Some((path, text)) = &sources.file {
            merge_file(&mut merged, &defaults, path, text)?;
        }
        for (key, text) in &sources.environment {
            let place = format!("environment variable {}", env_name(key));
            merge_text(&mut merged, &defaults, key, text, &place)?;
        }
        for (key, text) in &sources.flags {
            merge_text(&mut merged, &defaults, key, text, &format!("flag --{key}"))?;
        }
        let mut config = Config::from_table(merged, sources)?;
        config.check()?;
        if config.advertise.is_empty()
            && let Some(me) = config.cluster.iter().find(|m| m.name == config.name)
        {
            config.advertise = me.host.clone();
        }
        Ok(config)
    }

    fn from_table(table: toml::Table, sources: &Sources) -> Result<Config, ConfigError> {
        // Field by field, so that a value out of range is blamed on its key and on the source it came from.
        match table.clone().try_into() {
            Ok(config) => Ok(config),
            Err(all) => {
                let defaults = default_table();
                for key in table.keys() {
                    let mut one = defaults.clone();
                    one.insert(key.clone(), table[key].clone());
                    if let Err(e) = one.try_into::<Config>() {
                        let place = sources.place(key);
                        let what = first_line(e.message());
                        return Err(ConfigError(format!("{place}: {what} (see `weir config`)")));
                    }
                }
                Err(ConfigError(first_line(all.message())))
            }
        }
    }

    fn check(&self) -> Result<(), ConfigError> {
        let fail = |text: String| Err(ConfigError(text));
        if self.port == 0 || self.port > PORT_MAX {
            return fail(format!(
                "port {} does not fit: peers use port+10000 and admin port+20000, so choose 1..={PORT_MAX}",
                self.port
            ));
        }
        for member in &self.cluster {
            if member.port == 0 || member.port > PORT_MAX {
                return fail(format!("cluster: port of {member} does not fit, choose 1..={PORT_MAX}"));
            }
            if self.cluster.iter().filter(|m| m.name == member.name).count() > 1 {
                return fail(format!("cluster: the name {} stands there twice", member.name));
            }
            if self.cluster.iter().filter(|m| m.host == member.host && m.port == member.port).count() > 1 {
                return fail(format!(
                    "cluster: the address {}:{} stands there twice",
                    member.host, member.port
                ));
            }
        }
        let taken = [self.port + PEER_PORT_OFFSET, self.port + ADMIN_PORT_OFFSET];
        if self.plain_port != 0 && [taken[0], taken[1], self.port, self.tls_port].contains(&self.plain_port) {
            return fail(format!(
                "plain-port {} is another port of this node, choose another",
                self.plain_port
            ));
        }
        if taken.contains(&self.tls_port) {
            return fail(format!(
                "tls-port {} is this node's peer or admin port, choose another",
                self.tls_port
            ));
        }
        if ![0, 1, 3, 5].contains(&self.replicas) {
            return fail(format!(
                "replicas = {} is not possible: choose 1, 3 or 5, or 0 for the default",
                self.replicas
            ));
        }
        if !self.cluster.is_empty() && self.replicas as usize > self.cluster.len() {
            return fail(format!(
                "replicas = {} needs as many nodes, `cluster` names {}",
                self.replicas,
                self.cluster.len()
            ));
        }
        if self.shards > 1024 {
            return fail(format!(
                "shards = {} is too many: each is a Raft group of its own, choose at most 1024",
                self.shards
            ));
        }
        if self.heartbeat_ms == 0 {
            return fail("heartbeat-ms = 0 would send heartbeats without a pause, choose at least 1".into());
        }
        if self.election_timeout_ms_min < 2 * self.heartbeat_ms {
            return fail(format!(
                "election-timeout-ms-min = {} is below two heartbeats of {} ms: a lost packet would start elections",
                self.election_timeout_ms_min, self.heartbeat_ms
            ));
        }
        if self.election_timeout_ms_max <= self.election_timeout_ms_min {
            return fail(format!(
                "election-timeout-ms-max = {} must be above election-timeout-ms-min = {}",
                self.election_timeout_ms_max, self.election_timeout_ms_min
            ));
        }
        for (key, value) in [
            ("maxclients", self.maxclients),
            ("pipeline-commands-max", self.pipeline_commands_max),
            ("batch-commands-max", self.batch_commands_max),
            ("batch-bytes-max", self.batch_bytes_max),
            ("batches-in-flight-max", self.batches_in_flight_max),
            ("queue-commands-max", self.queue_commands_max),
            ("queue-bytes-max", self.queue_bytes_max),
            ("proto-max-args", self.proto_max_args),
            ("proto-max-bulk-len", self.proto_max_bulk_len),
            ("client-query-buffer-limit", self.client_query_buffer_limit),
            ("client-output-buffer-limit", self.client_output_buffer_limit),
        ] {
            if value == 0 {
                return fail(format!("{key} = 0 would let nothing through, choose at least 1"));
            }
        }
        if self.write_timeout_ms == 0 {
            return fail(
                "write-timeout-ms = 0 would answer every write with UNKNOWN, choose at least 1".into(),
            );
        }
        if self.snapshot_log_bytes == 0 {
            return fail(
                "snapshot-log-bytes = 0 would take a snapshot after every entry, choose at least 1".into(),
            );
        }
        if !WAL_SEGMENT_BYTES.contains(&self.wal_segment_bytes) {
            return fail(format!(
                "wal-segment-bytes = {} does not fit: choose {} to {}",
                self.wal_segment_bytes,
                WAL_SEGMENT_BYTES.start(),
                WAL_SEGMENT_BYTES.end()
            ));
        }
        Ok(())
    }

    /// What `weir start` needs beyond values that are right one by one.
    ///
    /// # Errors
    /// A missing name, directory or list, or a name that the list does not have.
    pub fn check_start(&self) -> Result<(), ConfigError> {
        let fail = |text: String| Err(ConfigError(text));
        if self.name.is_empty() {
            return fail("--name is missing: which node of --cluster is this one?".into());
        }
        if self.dir.as_os_str().is_empty() {
            return fail("--dir is missing: where may this node keep its data?".into());
        }
        if self.cluster.is_empty() {
            return fail(
                "--cluster is missing: list all nodes as n1=HOST:PORT,n2=HOST:PORT,n3=HOST:PORT".into(),
            );
        }
        if self.me().is_none() {
            let names: Vec<&str> = self.cluster.iter().map(|m| m.name.as_str()).collect();
            return fail(format!(
                "--name {} is not in --cluster, which lists {}",
                self.name,
                names.join(", ")
            ));
        }
        Ok(())
    }

    /// That this node listens where the list says.
    ///
    /// # Errors
    /// `--port` is another one.
    pub fn check_port(&self) -> Result<(), ConfigError> {
        match self.me() {
            Some(me) if me.port != self.port => {
                Err(ConfigError(format!("--port {} disagrees with --cluster, which lists {me}", self.port)))
            }
            _ => Ok(()),
        }
    }

    /// This node in the list.
    pub fn me(&self) -> Option<&Member> {
        self.cluster.iter().find(|m| m.name == self.name)
    }

    /// The number of shards of a new cluster.
    pub fn shard_count(&self) -> u32 {
        if self.shards == 0 { self.cluster.len().max(1) as u32 } else { self.shards }
    }

    /// The number of copies of each shard of a new cluster.
    pub fn replica_count(&self) -> u32 {
        match (self.replicas, self.cluster.len()) {
            (0, nodes) if nodes < 3 => 1,
            (0, _) => 3,
            (given, _) => given,
        }
    }

    /// The longest time that a command waits for a leader: two elections. One takes up to two timeouts, since
    /// a follower first waits until it may vote again, then draws its own.
    pub fn hold_max(&self) -> Duration {
        Duration::from_millis(4 * self.election_timeout_ms_max)
    }

    /// Every key with the value in force, for CONFIG GET. In the order of the manual.
    pub fn pairs(&self) -> Vec<(&'static str, String)> {
        let list = self.cluster.iter().map(Member::to_string).collect::<Vec<_>>().join(",");
        macro_rules! pairs {
            ($($key:literal => $value:expr),* $(,)?) => { vec![$(($key, $value.to_string())),*] };
        }
        pairs! {
            "name" => self.name, "dir" => self.dir.display(), "port" => self.port,
            "plain-port" => self.plain_port, "cluster" => list,
            "bind" => self.bind, "advertise" => self.advertise, "log" => self.log, "log-json" => self.log_json,
            "shards" => self.shard_count(), "replicas" => self.replica_count(),
            "durability" => self.durability.name(),
            "stream-node-max-entries" => self.stream_node_max_entries,
            "stream-node-max-bytes" => self.stream_node_max_bytes,
            "maxclients" => self.maxclients, "timeout" => self.timeout,
            "proto-max-bulk-len" => self.proto_max_bulk_len, "proto-max-args" => self.proto_max_args,
            "client-query-buffer-limit" => self.client_query_buffer_limit,
            "client-output-buffer-limit" => self.client_output_buffer_limit,
            "pubsub-output-buffer-limit" => self.pubsub_output_buffer_limit,
            "pubsub-peer-buffer-limit" => self.pubsub_peer_buffer_limit,
            "subscriptions-max" => self.subscriptions_max,
            "pipeline-commands-max" => self.pipeline_commands_max,
            "multi-commands-max" => self.multi_commands_max,
            "blocked-clients-max" => self.blocked_clients_max,
            "held-commands-max" => self.held_commands_max, "held-bytes-max" => self.held_bytes_max,
            "worker-threads" => self.worker_threads, "tls-port" => self.tls_port,
            "tls-cert-file" => self.tls_cert_file.display(), "tls-key-file" => self.tls_key_file.display(),
            "tls-ca-cert-file" => self.tls_ca_cert_file.display(),
            "tls-auth-clients" => self.tls_auth_clients.name(), "tls-cluster" => self.tls_cluster,
            "requirepass" => "", "protected-mode" => self.protected_mode, "acllog-max-len" => self.acllog_max_len,
            "enable-debug-command" => self.enable_debug_command.name(),
            "slowlog-log-slower-than" => self.slowlog_log_slower_than,
            "slowlog-max-len" => self.slowlog_max_len,
            "latency-monitor-threshold" => self.latency_monitor_threshold,
            "maxmemory" => self.maxmemory, "batch-commands-max" => self.batch_commands_max,
            "batch-bytes-max" => self.batch_bytes_max, "batches-in-flight-max" => self.batches_in_flight_max,
            "queue-commands-max" => self.queue_commands_max, "queue-bytes-max" => self.queue_bytes_max,
            "write-timeout-ms" => self.write_timeout_ms,
            "follower-read-staleness-ms-max" => self.follower_read_staleness_ms_max,
            "clock-skew-ms-max" => self.clock_skew_ms_max, "heartbeat-ms" => self.heartbeat_ms,
            "election-timeout-ms-min" => self.election_timeout_ms_min,
            "election-timeout-ms-max" => self.election_timeout_ms_max,
            "wal-segment-bytes" => self.wal_segment_bytes, "wal-cache-bytes" => self.wal_cache_bytes,
            "wal-reserve-bytes" => self.wal_reserve_bytes,
            "snapshot-log-bytes" => self.snapshot_log_bytes, "metrics-streams-max" => self.metrics_streams_max,
        }
    }
}

impl Sources {
    /// Whether anybody chose a value for `key`.
    pub fn sets(&self, key: &str) -> bool {
        let in_file = |(_, text): &(PathBuf, String)| key_lines(text).iter().any(|(k, _)| k == key);
        self.flags.contains_key(key)
            || self.environment.contains_key(key)
            || self.file.as_ref().is_some_and(in_file)
    }

    /// Where the value in force for `key` was written.
    fn place(&self, key: &str) -> String {
        if self.flags.contains_key(key) {
            return format!("flag --{key}");
        }
        if self.environment.contains_key(key) {
            return format!("environment variable {}", env_name(key));
        }
        match &self.file {
            Some((path, text)) => {
                let line = key_lines(text).into_iter().find(|(k, _)| k == key).map_or(0, |(_, line)| line);
                format!("{} line {line}, key {key}", path.display())
            }
            None => format!("default of {key}"),
        }
    }

    /// The settings among `WEIR_...` variables, and the names that are none: those may be somebody else's, so
    /// they are not refused.
    pub fn environment_of(
        vars: impl Iterator<Item = (String, String)>,
    ) -> (BTreeMap<String, String>, Vec<String>) {
        let known = default_table();
        let (mut settings, mut others) = (BTreeMap::new(), Vec::new());
        for (name, value) in vars {
            let Some(key) = name.strip_prefix("WEIR_").map(|key| key.to_ascii_lowercase().replace('_', "-"))
            else {
                continue;
            };
            match known.contains_key(&key) {
                true => drop(settings.insert(key, value)),
                false if key == "config" || name.starts_with(weir_env::hooks::PREFIX) => {}
                false => others.push(name),
            }
        }
        (settings, others)
    }
}

/// The environment variable of a key.
pub fn env_name(key: &str) -> String {
    format!("WEIR_{}", key.to_ascii_uppercase().replace('-', "_"))
}

/// The manual, key by key.
pub fn manual() -> Vec<Setting> {
    let (mut section, mut help, mut settings) = ("", String::new(), Vec::new());
    for line in DEFAULT_TOML.lines() {
        if let Some(title) = line.strip_prefix("#[ ") {
            section = title.trim_end_matches(" ]").split(':').next().unwrap_or(title);
            help.clear();
        } else if let Some(comment) = line.strip_prefix('#') {
            help.push_str(comment.strip_prefix(' ').unwrap_or(comment));
            help.push('\n');
        } else if let Some((key, default)) = line.split_once(" = ") {
            settings.push(Setting { key, section, help: help.trim_end().to_owned(), default });
        } else {
            help.clear();
        }
    }
    settings
}

fn default_table() -> toml::Table {
    match DEFAULT_TOML.parse() {
        Ok(table) => table,
        Err(e) => unreachable!("the embedded defaults are checked by a test: {e}"),
    }
}

fn merge_file(
    merged: &mut toml::Table,
    defaults: &toml::Table,
    path: &Path,
    text: &str,
) -> Result<(), ConfigError> {
    let table: toml::Table = text.parse().map_err(|e: toml::de::Error| {
        let line = e.span().map_or(1, |span| line_of(text, span.start));
        ConfigError(format!("{} line {line}: {}", path.display(), first_line(e.message())))
    })?;
    for (key, line) in key_lines(text) {
        let place = format!("{} line {line}", path.display());
        let Some(default) = defaults.get(&key) else { return Err(unknown_key(defaults, &key, &place)) };
        let value = match (&table[&key], default) {
            (toml::Value::String(text), toml::Value::Integer(_)) => {
                parse_as(default, text).map_err(|what| ConfigError(format!("{place}, key {key}: {what}")))?
            }
            (value, _) if value.same_type(default) => value.clone(),
            (value, _) => {
                let (have, want) = (value.type_str(), default.type_str());
                return Err(ConfigError(format!("{place}, key {key}: expected {want}, found {have}")));
            }
        };
        merged.insert(key, value);
    }
    Ok(())
}

fn merge_text(
    merged: &mut toml::Table,
    defaults: &toml::Table,
    key: &str,
    text: &str,
    place: &str,
) -> Result<(), ConfigError> {
    let Some(default) = defaults.get(key) else { return Err(unknown_key(defaults, key, place)) };
    let value = parse_as(default, text).map_err(|what| ConfigError(format!("{place}: {what}")))?;
    merged.insert(key.to_owned(), value);
    Ok(())
}

fn unknown_key(defaults: &toml::Table, key: &str, place: &str) -> ConfigError {
    let near = defaults.keys().min_by_key(|k| edit_distance(k, key)).filter(|k| edit_distance(k, key) <= 3);
    let hint = match near {
        Some(near) => format!("did you mean `{near}`?"),
        None => "`weir config` lists all keys".to_owned(),
    };
    ConfigError(format!("{place}: unknown key `{key}`; {hint}"))
}

/// Reads `text` as the kind of `default`.
fn parse_as(default: &toml::Value, text: &str) -> Result<toml::Value, String> {
    match default {
        toml::Value::Boolean(_) => match text.to_ascii_lowercase().as_str() {
            "true" | "yes" | "1" | "" => Ok(toml::Value::Boolean(true)),
            "false" | "no" | "0" => Ok(toml::Value::Boolean(false)),
            _ => Err(format!("expected true or false, found `{text}`")),
        },
        toml::Value::Integer(_) => match parse_size(text) {
            Some(n) => Ok(toml::Value::Integer(n)),
            None => Err(format!("expected a whole number, found `{text}`")),
        },
        _ => Ok(toml::Value::String(text.to_owned())),
    }
}

/// A whole number, with `k`, `kb`, `m`, `mb`, `g`, `gb` as Redis reads them (`k` = 1000, `kb` = 1024).
pub(crate) fn parse_size(text: &str) -> Option<i64> {
    let text = text.trim().to_ascii_lowercase().replace('_', "");
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let unit = match &text[digits..] {
        "" | "b" => 1,
        "k" => 1000,
        "kb" => 1 << 10,
        "m" => 1_000_000,
        "mb" => 1 << 20,
        "g" => 1_000_000_000,
        "gb" => 1 << 30,
        _ => return None,
    };
    text[..digits].parse::<i64>().ok()?.checked_mul(unit)
}

/// Top-level keys of a TOML text with their lines.
fn key_lines(text: &str) -> Vec<(String, usize)> {
    let Ok(table) = toml::de::DeTable::parse(text) else { return Vec::new() };
    let mut keys: Vec<(String, usize)> =
        table.get_ref().keys().map(|k| (k.get_ref().to_string(), line_of(text, k.span().start))).collect();
    keys.sort_by_key(|(_, line)| *line);
    keys
}

fn line_of(text: &str, at: usize) -> usize {
    text[..at.min(text.len())].matches('\n').count() + 1
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or("invalid").to_owned()
}

fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, cb) in b.iter().enumerate() {
            let next = (diagonal + usize::from(ca != *cb)).min(row[j] + 1).min(row[j + 1] + 1);
            diagonal = row[j + 1];
            row[j + 1] = next;
        }
    }
    row[b.len()]
}

/// `n1=HOST:PORT,n2=HOST:PORT`.
///
/// # Errors
/// What is wrong with which part.
pub fn parse_members(text: &str) -> Result<Vec<Member>, String> {
    text.split(',').map(str::trim).filter(|part| !part.is_empty()).map(parse_member).collect()
}

fn parse_member(part: &str) -> Result<Member, String> {
    let wrong = || format!("`{part}` is not NAME=HOST:PORT");
    let (name, addr) = part.split_once('=').ok_or_else(wrong)?;
    let (host, port) = addr.rsplit_once(':').ok_or_else(wrong)?;
    let named = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    if !named || host.is_empty() || host.contains(char::is_whitespace) {
        return Err(wrong());
    }
    let port = port.parse().map_err(|_| wrong())?;
    Ok(Member { name: name.to_owned(), host: host.to_owned(), port })
}

fn member_list<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<Member>, D::Error> {
    let text = String::deserialize(deserializer)?;
    parse_members(&text).map_err(serde::de::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources(file: &str, environment: &[(&str, &str)], flags: &[(&str, &str)]) -> Sources {
        let owned =
            |pairs: &[(&str, &str)]| pairs.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        Sources {
            file: Some((PathBuf::from("weir.toml"), file.to_owned())),
            environment: owned(environment),
            flags: owned(flags),
        }
    }

    fn error(file: &str, environment: &[(&str, &str)], flags: &[(&str, &str)]) -> String {
        Config::load(&sources(file, environment, flags)).unwrap_err().0
    }

    #[test]
    fn a_flag_wins_over_the_environment_over_the_file_over_the_default() {
        let file = "port = 1\nmaxclients = 1\ntimeout = 1\n";
        let env = [("port", "2"), ("maxclients", "2")];
        let config = Config::load(&sources(file, &env, &[("port", "3")])).unwrap();
        assert_eq!((config.port, config.maxclients, config.timeout, config.heartbeat_ms), (3, 2, 1, 120));
    }

    #[test]
    fn the_manual_names_every_setting_once_and_explains_it() {
        let config = Config::default();
        let manual = manual();
        let keys: Vec<&str> = manual.iter().map(|s| s.key).collect();
        assert_eq!(keys, config.pairs().iter().map(|(k, _)| *k).collect::<Vec<_>>());
        for setting in &manual {
            let second_of_two = setting.key == "election-timeout-ms-max";
            assert!(second_of_two || !setting.help.is_empty(), "{} has no comment", setting.key);
        }
    }

    #[test]
    fn an_unknown_key_is_named_with_its_line_and_the_nearest_key() {
        assert_eq!(
            error("port = 1\nmaxclient = 5\n", &[], &[]),
            "weir.toml line 2: unknown key `maxclient`; did you mean `maxclients`?"
        );
        assert_eq!(
            error("", &[("zzzzzzzzzzzz", "1")], &[]),
            "environment variable WEIR_ZZZZZZZZZZZZ: unknown key `zzzzzzzzzzzz`; `weir config` lists all keys"
        );
    }

    #[test]
    fn a_wrong_value_is_blamed_on_the_place_it_came_from() {
        assert_eq!(
            error("\nport = \"x\"\n", &[], &[]),
            "weir.toml line 2, key port: expected a whole number, found `x`"
        );
        assert_eq!(
            error("port = true\n", &[], &[]),
            "weir.toml line 1, key port: expected integer, found boolean"
        );
        assert_eq!(
            error("", &[("port", "x")], &[]),
            "environment variable WEIR_PORT: expected a whole number, found `x`"
        );
        assert!(error("", &[], &[("port", "70000")]).starts_with("flag --port: "));
        assert!(
            error("durability = \"never\"\n", &[], &[])
                .starts_with("weir.toml line 1, key durability: unknown variant")
        );
        assert!(
            error("", &[], &[("cluster", "n1")]).starts_with("flag --cluster: `n1` is not NAME=HOST:PORT")
        );
        assert!(error("port = \n", &[], &[]).starts_with("weir.toml line 1: "));
    }

    #[test]
    fn values_that_let_nothing_through_are_refused_by_their_name() {
        for key in [
            "proto-max-args",
            "proto-max-bulk-len",
            "client-query-buffer-limit",
            "client-output-buffer-limit",
            "write-timeout-ms",
            "snapshot-log-bytes",
            "wal-segment-bytes",
            "heartbeat-ms",
            "batch-bytes-max",
        ] {
            let text = error("", &[], &[(key, "0")]);
            assert!(text.starts_with(&format!("{key} = 0 ")), "{key}: {text}");
        }
        assert!(error("", &[], &[("wal-segment-bytes", "4gb")]).contains("choose 65536 to 2147483648"));
    }

    #[test]
    fn a_default_is_nobodys_choice() {
        let sources = sources("port = 1\n", &[("timeout", "2")], &[("shards", "3")]);
        let chosen = ["port", "timeout", "shards", "wal-segment-bytes"].map(|key| sources.sets(key));
        assert_eq!(chosen, [true, true, true, false]);
    }

    #[test]
    fn only_variables_that_name_a_setting_are_taken() {
        let vars =
            [("WEIR_LOG_JSON", "true"), ("WEIR_SERVICE_HOST", "x"), ("HOME", "y"), ("WEIR_CONFIG", "z")];
        let (settings, others) =
            Sources::environment_of(vars.iter().map(|(name, value)| (name.to_string(), value.to_string())));
        assert_eq!(settings.into_iter().collect::<Vec<_>>(), [("log-json".to_owned(), "true".to_owned())]);
        assert_eq!(others, ["WEIR_SERVICE_HOST"]);
    }

    #[test]
    fn sizes_take_a_suffix() {
        let config =
            Config::load(&sources("wal-segment-bytes = \"1mb\"\n", &[("maxmemory", "2gb")], &[])).unwrap();
        assert_eq!((config.wal_segment_bytes, config.maxmemory), (1 << 20, 2 << 30));
    }

    #[test]
    fn start_says_what_is_missing() {
        let text = |flags: &[(&str, &str)]| {
            Config::load(&sources("", &[], flags)).unwrap().check_start().unwrap_err().0
        };
        assert!(text(&[]).starts_with("--name is missing"));
        assert!(text(&[("name", "n1")]).starts_with("--dir is missing"));
        assert!(text(&[("name", "n1"), ("dir", "d")]).starts_with("--cluster is missing"));
        let list = ("cluster", "n1=h:7001,n2=h:7002");
        assert_eq!(
            text(&[("name", "n4"), ("dir", "d"), list]),
            "--name n4 is not in --cluster, which lists n1, n2"
        );
        let flags = [("name", "n2"), ("dir", "d"), list];
        let config = Config::load(&sources("", &[], &flags)).unwrap();
        assert_eq!(config.check_start(), Ok(()));
        assert_eq!(
            config.check_port().unwrap_err().0,
            "--port 7001 disagrees with --cluster, which lists n2=h:7002"
        );
    }
}
