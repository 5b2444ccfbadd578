//! The `weir` binary: flags, logging, signals and exit codes. Everything else is in the library.

use clap::builder::styling::{AnsiColor, Styles};
use clap::{Arg, ArgAction, ArgMatches, Command};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use weir_env::Env;
use weir_env::hooks::Hooks;
use weir_server::config::{self, Config, DEFAULT_TOML, Sources};
use weir_server::run::{RunningNode, start_node};

/// The system's allocator gathers its small free pieces whenever a large buffer is freed, which happens with every
/// batch of a shard.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// All of a stop must fit in this.
const STOP_MAX: Duration = Duration::from_millis(1800);
/// What still runs after that (a read from a disk that hangs) is left behind.
const LEAVE_MAX: Duration = Duration::from_millis(100);

fn main() -> ExitCode {
    let matches = cli().get_matches();
    let hooks = match Hooks::of(std::env::vars()) {
        Ok(hooks) => hooks,
        Err(why) => {
            eprintln!("weir: {why}");
            return ExitCode::FAILURE;
        }
    };
    let ran = match matches.subcommand() {
        Some(("dev", matches)) => dev(matches, &hooks),
        Some(("start", matches)) => start(matches, &hooks),
        _ => {
            say(DEFAULT_TOML.trim_end());
            return ExitCode::SUCCESS;
        }
    };
    match ran {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            // One line; `weir:` first so that it is found among the output of others.
            // It names its cause itself.
            eprintln!("weir: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Each node prepares three segments; several nodes in one process need not take 600 MB before the first write.
const DEV_SEGMENT_BYTES: u64 = 8 << 20;

const ABOUT: &str = "Weir: a replicated cluster of stream nodes that speaks the Redis protocol.
A write, a delivery or an acknowledgement that was answered is never lost.";

const EXAMPLES: &str = "Examples:
  weir dev                                  a whole cluster in this terminal, on ports 7001, 7002, 7003
  redis-cli -c -p 7001 XADD s '*' a 1       talk to it with any Redis client that knows clusters
  weir start --name n1 --dir /var/lib/weir --port 7001 \\
      --cluster n1=10.0.0.1:7001,n2=10.0.0.2:7001,n3=10.0.0.3:7001 --bind 0.0.0.0
  weir config > weir.toml                   every setting with its meaning and default";

const START_EXAMPLES: &str = "Examples:
  weir start --name n1 --dir data/n1 --port 7001 --cluster n1=127.0.0.1:7001,n2=127.0.0.1:7002,n3=127.0.0.1:7003
  weir start --config n2.toml               flags, WEIR_... variables and the file take the same names
  WEIR_NAME=n3 WEIR_DIR=data/n3 weir start --config weir.toml

Start the same with every node's own --name and --dir; the cluster is founded once all of them are there.
Peers use --port + 10000 and the admin pages (/healthz, /readyz, /metrics) --port + 20000.";

const DEV_EXAMPLES: &str = "Examples:
  weir dev                     three nodes on 7001, 7002, 7003; the data goes when you stop it
  weir dev --dir data          keep the data, and find it again next time
  weir dev --port 7101 --nodes 5";

fn cli() -> Command {
    let styles = Styles::styled()
        .header(AnsiColor::Yellow.on_default().bold())
        .usage(AnsiColor::Yellow.on_default().bold())
        .literal(AnsiColor::Cyan.on_default())
        .placeholder(AnsiColor::Green.on_default());
    Command::new("weir")
        .about(ABOUT)
        .version(env!("CARGO_PKG_VERSION"))
        .styles(styles)
        .after_help(EXAMPLES)
        .subcommand_required(true)
        .arg_required_else_help(true)
        .disable_help_subcommand(true)
        .subcommand(
            with_settings(Command::new("dev").about("Start a whole local cluster in this process"), true)
                .arg(
                    Arg::new("nodes")
                        .long("nodes")
                        .value_name("N")
                        .default_value("3")
                        .value_parser(clap::value_parser!(u16).range(1..=9))
                        .help("How many nodes; their ports follow --port"),
                )
                .after_help(DEV_EXAMPLES),
        )
        .subcommand(
            with_settings(Command::new("start").about("Start one node of a cluster"), false)
                .after_help(START_EXAMPLES),
        )
        .subcommand(
            Command::new("config").about("Print every setting with its meaning and default, as a TOML file"),
        )
}

/// One flag a setting. What a newcomer needs stands in the short help; `--help` has everything.
fn with_settings(mut command: Command, dev: bool) -> Command {
    command = command.arg(
        Arg::new("config")
            .long("config")
            .value_name("FILE")
            .env("WEIR_CONFIG")
            .hide_env(true)
            .help("TOML file with settings; flags and WEIR_... variables win over it"),
    );
    for setting in config::manual() {
        if dev && ["name", "cluster", "advertise"].contains(&setting.key) {
            continue;
        }
        let basic = [
            "name",
            "dir",
            "port",
            "cluster",
            "bind",
            "advertise",
            "shards",
            "durability",
            "log",
            "log-json",
        ];
        let default = setting.default.trim_matches('"').to_owned();
        let first = setting.help.lines().next().unwrap_or_default().to_owned();
        let help = match (dev, setting.key) {
            (true, "dir") => "Keep the data here; without it the data goes when the process stops".to_owned(),
            (true, "port") => "Client port of the first node; the others follow".to_owned(),
            _ if default.is_empty() || default == "false" => first,
            _ => format!("{first} [default: {default}]"),
        };
        let variable = config::env_name(setting.key);
        let default_line = if default.is_empty() { String::new() } else { format!("\n[default: {default}]") };
        let mut arg = Arg::new(setting.key)
            .long(setting.key)
            .long_help(format!("{}{default_line} [env: {variable}]", setting.help))
            .help(help)
            .help_heading(setting.section)
            .hide_short_help(!basic.contains(&setting.key))
            .value_name(value_name(setting.key, setting.default));
        if matches!(setting.default, "true" | "false") {
            arg = arg.num_args(0..=1).default_missing_value("true").require_equals(true);
        }
        command = command.arg(arg.action(ArgAction::Set));
    }
    command
}

fn value_name(key: &str, default: &str) -> &'static str {
    match key {
        "name" => "NAME",
        "dir" => "DIR",
        "port" => "PORT",
        "cluster" => "NAME=HOST:PORT,...",
        "bind" => "ADDR",
        "advertise" => "HOST",
        "durability" => "always|everysec|os",
        "log" => "LEVEL",
        _ if key.contains("bytes") || key == "maxmemory" || key.contains("limit") || key.contains("bulk") => {
            "BYTES"
        }
        _ if key.ends_with("-ms") || key.contains("-ms-") => "MS",
        _ if default == "true" || default == "false" => "BOOL",
        _ => "N",
    }
}

fn sources(matches: &ArgMatches) -> anyhow::Result<Sources> {
    let file = match matches.get_one::<String>("config") {
        None => None,
        Some(path) => match std::fs::read_to_string(path) {
            Ok(text) => Some((PathBuf::from(path), text)),
            Err(e) => anyhow::bail!("--config {path} cannot be read: {e}"),
        },
    };
    let mut flags = BTreeMap::new();
    for setting in config::manual() {
        if let Ok(Some(value)) = matches.try_get_one::<String>(setting.key) {
            flags.insert(setting.key.to_owned(), value.clone());
        }
    }
    let (environment, others) = Sources::environment_of(std::env::vars());
    for name in others {
        eprintln!("weir: {name} names no setting and is ignored; `weir config` lists them all");
    }
    Ok(Sources { file, environment, flags })
}

fn start(matches: &ArgMatches, hooks: &Hooks) -> anyhow::Result<()> {
    let config = Config::load(&sources(matches)?)?;
    config.check_start()?;
    start_logging(&config)?;
    run_to_end(worker_threads(&config, 1), async {
        let mut signals = Signals::new()?;
        let (name, port, list) =
            (config.name.clone(), config.port, weir_server::identity::list(&config.cluster));
        let running = tokio::select! {
            started = start_node(world(hooks), config) => started?,
            () = signals.wait(&[]) => return Ok(()),
        };
        let served = async {
            running.ready().await;
            say(&format!("ready {name} serves clients on port {port}, its cluster is {list}"));
            say(&format!("  try:  redis-cli -c -p {port} XADD s '*' a 1"));
            say(&format!("  see:  curl localhost:{}/metrics", port + config::ADMIN_PORT_OFFSET));
            std::future::pending::<()>().await;
        };
        let nodes = [&running];
        tokio::select! {
            () = served => Ok(()),
            ended = first_end(&nodes) => Err(anyhow::Error::msg(ended)),
            () = signals.wait(&nodes) => stop(&nodes).await,
            () = asked_to_stop(&nodes) => stop(&nodes).await,
        }
    })
}

fn dev(matches: &ArgMatches, hooks: &Hooks) -> anyhow::Result<()> {
    let mut sources = sources(matches)?;
    let nodes = *matches.get_one::<u16>("nodes").unwrap_or(&3);
    let first = Config::load(&sources)?;
    let last = first.port.checked_add(nodes - 1).filter(|port| *port <= config::PORT_MAX);
    anyhow::ensure!(
        last.is_some(),
        "--port {} leaves no room for {nodes} nodes below {}",
        first.port,
        config::PORT_MAX
    );
    start_logging(&first)?;
    let temporary = match first.dir.as_os_str().is_empty() {
        true => Some(tempfile::Builder::new().prefix("weir-dev-").tempdir()?),
        false => None,
    };
    let dir = temporary.as_ref().map_or_else(|| first.dir.clone(), |t| t.path().to_owned());
    let names: Vec<(String, u16)> = (0..nodes).map(|i| (format!("n{}", i + 1), first.port + i)).collect();
    let list: Vec<String> = names.iter().map(|(name, port)| format!("{name}=127.0.0.1:{port}")).collect();
    let plain_port = sources.sets("plain-port").then_some(first.plain_port);
    let mut configs = Vec::new();
    for (name, port) in &names {
        // What `dev` decides wins over file and environment, as flags do.
        for (key, value) in [
            ("name", name.clone()),
            ("port", port.to_string()),
            ("dir", dir.join(name).display().to_string()),
            ("cluster", list.join(",")),
            ("advertise", String::new()),
        ] {
            sources.flags.insert(key.to_owned(), value);
        }
        // One port of the whole cluster for clients that know none: at the first node.
        let at_first = plain_port.unwrap_or(first.port - 1);
        let here = if *port == first.port { at_first } else { 0 };
        sources.flags.insert("plain-port".to_owned(), here.to_string());
        if first.tls_port != 0 {
            let tls_port = first.tls_port.checked_add(port - first.port);
            let tls_port =
                tls_port.ok_or_else(|| anyhow::anyhow!("--tls-port leaves no room for {nodes} nodes"))?;
            sources.flags.insert("tls-port".to_owned(), tls_port.to_string());
        }
        if !sources.sets("wal-segment-bytes") {
            sources.flags.insert("wal-segment-bytes".to_owned(), DEV_SEGMENT_BYTES.to_string());
        }
        configs.push(Config::load(&sources)?);
    }
    let threads = worker_threads(&configs[0], configs.len());
    let ran = run_to_end(threads, async {
        if plain_port.is_none() {
            leave_out_taken_port(&mut configs[0]).await;
        }
        run_dev(configs, &dir, temporary.is_some(), hooks).await
    });
    if let Some(temporary) = temporary {
        let path = temporary.path().to_owned();
        if let Err(e) = temporary.close() {
            eprintln!("weir: {} could not be removed: {e}", path.display());
        }
    }
    ran
}

/// Nobody asked for the usual plain port by its number: a development cluster starts without one if it is taken.
async fn leave_out_taken_port(first: &mut Config) {
    let address = std::net::SocketAddr::from(([127, 0, 0, 1], first.plain_port));
    if first.plain_port != 0 && Env::system().net.bind(address).await.is_err() {
        tracing::warn!(port = first.plain_port, "the plain port is taken by another process: there is none");
        first.plain_port = 0;
    }
}

async fn run_dev(configs: Vec<Config>, dir: &Path, temporary: bool, hooks: &Hooks) -> anyhow::Result<()> {
    let mut signals = Signals::new()?;
    let plain_port = configs.first().map_or(0, |first| first.plain_port);
    let ports: Vec<u16> = configs.iter().map(|c| c.port).collect();
    let starting = configs.into_iter().map(|config| start_node(world(hooks), config));
    let running = tokio::select! {
        started = futures_util::future::try_join_all(starting) => started?,
        () = signals.wait(&[]) => return Ok(()),
    };
    let nodes: Vec<&RunningNode> = running.iter().collect();
    let served = async {
        for node in &nodes {
            node.ready().await;
        }
        let shown: Vec<String> = ports.iter().map(u16::to_string).collect();
        say(&format!("ready {} nodes on 127.0.0.1, client ports {}", nodes.len(), shown.join(", ")));
        say(&format!("  try:  redis-cli -c -p {} XADD s '*' a 1", ports[0]));
        if plain_port != 0 {
            say(&format!("  or:   redis-cli -p {plain_port}, for clients that know no cluster"));
        }
        say(&format!("  see:  curl localhost:{}/metrics", ports[0] + config::ADMIN_PORT_OFFSET));
        match temporary {
            true => {
                println!("  stop: Ctrl-C (the data in {} goes with it; --dir DIR keeps it)", dir.display())
            }
            false => println!("  stop: Ctrl-C (the data stays in {})", dir.display()),
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = served => Ok(()),
        ended = first_end(&nodes) => Err(anyhow::Error::msg(ended)),
        () = signals.wait(&nodes) => stop(&nodes).await,
        () = asked_to_stop(&nodes) => stop(&nodes).await,
    }
}

/// The world of a node. What is not as it should be there is said.
fn world(hooks: &Hooks) -> Env {
    if hooks.any() {
        tracing::warn!(?hooks, "hooks for tests are set: this node keeps no promises");
    }
    hooks.env()
}

/// Returns when a client of any of them called SHUTDOWN.
async fn asked_to_stop(nodes: &[&RunningNode]) {
    let asked = nodes.iter().map(|node| Box::pin(node.asked_to_stop()));
    futures_util::future::select_all(asked).await;
}

/// Why the first node ended by itself.
async fn first_end(nodes: &[&RunningNode]) -> String {
    let ends = nodes.iter().map(|node| Box::pin(node.stopped()));
    let (end, ..) = futures_util::future::select_all(ends).await;
    end.err().unwrap_or_else(|| "the node stopped".to_owned())
}

/// All nodes at once when they share a process: nobody is left to hand leadership to.
async fn stop(nodes: &[&RunningNode]) -> anyhow::Result<()> {
    tracing::info!("stopping");
    let all = futures_util::future::join_all(nodes.iter().map(|node| async {
        match nodes.len() {
            1 => node.shutdown().await,
            _ => node.close().await,
        }
    }));
    if tokio::time::timeout(STOP_MAX, all).await.is_err() {
        tracing::warn!("stopping took too long; what was answered is safe");
    }
    Ok(())
}

/// The setting `worker-threads`, for that many nodes in this process.
fn worker_threads(config: &Config, nodes: usize) -> usize {
    match config.worker_threads {
        0 => {
            let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
            (nodes * cores / 2).clamp(1, cores)
        }
        threads => threads,
    }
}

fn run_to_end(threads: usize, body: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    raise_file_limit();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build()?;
    let ran = runtime.block_on(body);
    runtime.shutdown_timeout(LEAVE_MAX);
    ran
}

/// One line on standard output. Nobody listening (any more) is no reason to stop.
fn say(line: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stdout(), "{line}");
}

/// Each client takes a file descriptor, and the usual soft limit is far below `maxclients`.
fn raise_file_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(e) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!(error = %e, "the limit of open files stays low; see `ulimit -n`");
    }
}

/// SIGTERM and Ctrl-C, and SIGHUP, which means: read the certificates again.
struct Signals {
    hangup: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

impl Signals {
    fn new() -> anyhow::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Signals {
            hangup: signal(SignalKind::hangup())?,
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// Returns when the process is told to end.
    async fn wait(&mut self, nodes: &[&RunningNode]) {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => return,
                _ = self.interrupt.recv() => return,
                _ = self.hangup.recv() => {
                    for tls in nodes.iter().filter_map(|node| node.node().tls.as_ref()) {
                        // It tells itself what came of it.
                        let _ = tls.reload();
                    }
                }
            }
        }
    }
}

fn start_logging(config: &Config) -> anyhow::Result<()> {
    use std::io::IsTerminal;
    // These tell every message; what matters of them is told by us. Naming one in --log shows it.
    let quiet = "openraft=error,h2=warn,hyper=warn,hyper_util=warn,tower=warn,tonic=warn";
    let directives = format!("{quiet},{}", config.log);
    let filter = tracing_subscriber::EnvFilter::try_new(directives)
        .map_err(|e| anyhow::anyhow!("--log {}: {e}; try error, warn, info, debug or trace", config.log))?;
    // Standard output is for `ready` and what to type next.
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match config.log_json {
        true => log.json().init(),
        false => log.with_ansi(std::io::stderr().is_terminal()).with_target(false).init(),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound_and_every_setting_is_a_flag() {
        cli().debug_assert();
        let start = cli().find_subcommand("start").unwrap().clone();
        for setting in config::manual() {
            assert!(start.get_arguments().any(|a| a.get_long() == Some(setting.key)), "{}", setting.key);
        }
    }

    #[test]
    fn flags_arrive_as_settings() {
        let line = "weir start --name n1 --dir d --port 7009 --cluster n1=h:7009 --durability os --log-json --shards 2";
        let matches = cli().get_matches_from(line.split(' '));
        let sources = sources(matches.subcommand_matches("start").unwrap()).unwrap();
        let config = Config::load(&Sources { environment: BTreeMap::new(), ..sources }).unwrap();
        assert_eq!((config.port, config.shards, config.log_json), (7009, 2, true));
        assert_eq!(config.durability, config::Durability::Os);
    }
}
