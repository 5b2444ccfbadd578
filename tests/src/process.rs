//! Nodes as operating system processes.

use crate::ports::{PLAIN_OFFSET, TLS_OFFSET, free_ports};
use anyhow::{Context, Result, bail};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

/// How long a healthy cluster may take to serve after a start, on a slow machine.
pub const READY_WITHIN: Duration = Duration::from_secs(30);

/// The `weir` program to test: `WEIR_BIN`, or the one beside this program, built if it is not up to date.
///
/// # Errors
/// It cannot be built.
pub fn weir_binary() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("WEIR_BIN") {
        return Ok(path.into());
    }
    let me = std::env::current_exe()?;
    let directory =
        me.ancestors().skip(1).find(|d| !d.ends_with("deps")).context("this program has no directory")?;
    let profile = match directory.file_name().and_then(|name| name.to_str()) {
        Some("debug") | None => "dev",
        Some(name) => name,
    };
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("the workspace")?;
    let built = std::process::Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["build", "--quiet", "--profile", profile, "--bin", "weir"])
        .current_dir(root)
        .status()
        .context("cargo build --bin weir")?;
    if !built.success() {
        bail!("cargo build --bin weir failed");
    }
    Ok(directory.join("weir"))
}

/// What can be sent to a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// Ends it at once.
    Kill,
    /// Asks it to end.
    Terminate,
    /// Stops its time.
    Stop,
    /// Lets it go on.
    Continue,
    /// Has it read its certificates again.
    HangUp,
}

/// One process with what it printed. Dropping it kills it.
#[derive(Debug)]
pub struct Process {
    child: Child,
    ready: watch::Receiver<bool>,
    log: PathBuf,
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Process {
    /// Starts a program; its output goes line by line to `log`.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn spawn(program: &Path, arguments: &[String], log: &Path) -> Result<Process> {
        Process::spawn_with(program, arguments, &[], log)
    }

    /// As [`Process::spawn`], with these environment variables.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn spawn_with(
        program: &Path,
        arguments: &[String],
        variables: &[(String, String)],
        log: &Path,
    ) -> Result<Process> {
        let mut copy = std::fs::OpenOptions::new().create(true).append(true).open(log)?;
        let mut command = Command::new(program);
        // Settings of whoever runs the tests are not the nodes' settings.
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("WEIR_")) {
            command.env_remove(name);
        }
        let mut child = command
            .args(arguments)
            .envs(variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(copy.try_clone()?)
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let lines = BufReader::new(child.stdout.take().context("stdout")?).lines();
        let (told, ready) = watch::channel(false);
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let _ = writeln!(copy, "{line}");
                if line.starts_with("ready ") {
                    told.send_replace(true);
                }
            }
        });
        Ok(Process { child, ready, log: log.to_owned() })
    }

    /// Waits for the line that begins with `ready `.
    ///
    /// # Errors
    /// The process ended, or the time is over; the message carries the end of its log.
    pub async fn wait_ready(&mut self, within: Duration) -> Result<()> {
        let mut ready = self.ready.clone();
        let told = timeout(within, ready.wait_for(|ready| *ready)).await;
        match told {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) => {
                let status = self.wait_exit(Duration::from_secs(2)).await?;
                bail!("it ended with {status} before it was ready\n{}", self.tail())
            }
            Err(_) => bail!("not ready within {within:?}\n{}", self.tail()),
        }
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// The time is over.
    pub async fn wait_exit(&mut self, within: Duration) -> Result<ExitStatus> {
        let deadline = Instant::now() + within;
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            if Instant::now() >= deadline {
                bail!("still running after {within:?}\n{}", self.tail());
            }
            sleep(Duration::from_millis(2)).await;
        }
    }

    /// Sends a signal.
    ///
    /// # Errors
    /// The process is gone.
    pub fn signal(&mut self, signal: Signal) -> Result<()> {
        if let Some(status) = self.child.try_wait()? {
            bail!("it has ended with {status}\n{}", self.tail());
        }
        let name = match signal {
            Signal::Kill => return Ok(self.child.kill()?),
            Signal::Terminate => "-TERM",
            Signal::Stop => "-STOP",
            Signal::Continue => "-CONT",
            Signal::HangUp => "-HUP",
        };
        let sent = Command::new("kill").args([name, &self.child.id().to_string()]).status()?;
        anyhow::ensure!(sent.success(), "kill {name} failed");
        Ok(())
    }

    /// The number of the process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// All that it printed, and its log.
    pub fn output(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// The last lines of [`Process::output`].
    pub fn tail(&self) -> String {
        let output = self.output();
        let lines: Vec<&str> = output.lines().collect();
        lines[lines.len().saturating_sub(20)..].iter().map(|line| format!("    {line}\n")).collect()
    }
}

/// Where a node runs.
#[derive(Debug, Clone)]
pub struct Host {
    /// Name or address that clients and the other nodes reach it at.
    pub name: String,
    /// Client port.
    pub port: u16,
    /// Data directory.
    pub data: PathBuf,
    /// A command that starts the program named after it, such as `ip netns exec NAME`. Empty: none.
    pub through: Vec<String>,
    /// Environment variables of the process.
    pub variables: Vec<(String, String)>,
}

/// How to start the nodes of a cluster.
#[derive(Debug, Clone)]
pub struct ClusterOptions {
    /// The program.
    pub weir: PathBuf,
    /// Where data directories and logs go.
    pub dir: PathBuf,
    /// Number of nodes.
    pub nodes: u16,
    /// Further arguments of `weir start`; `{port}`, `{tls-port}` and `{plain-port}` stand for the node's.
    pub arguments: Vec<String>,
    /// Where each node runs. Empty: all on the loopback address, on free ports, with data below `dir`.
    pub hosts: Vec<Host>,
}

/// Nodes n1, n2, ... on this machine, each a process that can be killed, paused and started again.
#[derive(Debug)]
pub struct Cluster {
    options: ClusterOptions,
    nodes: Vec<Option<Process>>,
}

impl Cluster {
    /// Starts all nodes on free ports with empty directories and waits until each says `ready `.
    ///
    /// # Errors
    /// One does not get ready.
    pub async fn start(options: ClusterOptions) -> Result<Cluster> {
        let mut cluster = Cluster::prepare(options)?;
        cluster.start_all().await?;
        Ok(cluster)
    }

    /// Chooses ports and directories, starts nothing.
    ///
    /// # Errors
    /// The directory cannot be made.
    pub fn prepare(mut options: ClusterOptions) -> Result<Cluster> {
        std::fs::create_dir_all(&options.dir)?;
        if options.hosts.is_empty() {
            let first_port = free_ports(options.nodes);
            let host = |node: u16| Host {
                name: "127.0.0.1".into(),
                port: first_port + node,
                data: options.dir.join(name(usize::from(node))),
                through: Vec::new(),
                variables: Vec::new(),
            };
            options.hosts = (0..options.nodes).map(host).collect();
        }
        anyhow::ensure!(options.hosts.len() == usize::from(options.nodes), "one host a node");
        let nodes = (0..options.nodes).map(|_| None).collect();
        Ok(Cluster { options, nodes })
    }

    /// Starts every node that does not run and waits until all are ready.
    ///
    /// # Errors
    /// One does not get ready.
    pub async fn start_all(&mut self) -> Result<()> {
        for node in 0..self.len() {
            if !self.runs(node) {
                self.spawn(node)?;
            }
        }
        for node in 0..self.len() {
            self.wait_ready(node).await?;
        }
        Ok(())
    }

    /// Number of nodes.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there are no nodes.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Client port of a node.
    pub fn port(&self, node: usize) -> u16 {
        self.options.hosts[node].port
    }

    /// Port of a node for clients that speak TLS, if it was started with one.
    pub fn tls_port(&self, node: usize) -> u16 {
        self.port(node) + TLS_OFFSET
    }

    /// Port of a node for clients that know no cluster, if it was started with one.
    pub fn plain_port(&self, node: usize) -> u16 {
        self.port(node) + PLAIN_OFFSET
    }

    /// Client address of a node.
    pub fn address(&self, node: usize) -> String {
        format!("{}:{}", self.options.hosts[node].name, self.port(node))
    }

    /// Client addresses of all nodes.
    pub fn addresses(&self) -> Vec<String> {
        (0..self.len()).map(|node| self.address(node)).collect()
    }

    /// The node at a client address.
    pub fn node_at(&self, address: &str) -> Option<usize> {
        (0..self.len()).find(|&node| self.address(node) == address)
    }

    /// Data directory of a node.
    pub fn data(&self, node: usize) -> PathBuf {
        self.options.hosts[node].data.clone()
    }

    /// Sets an environment variable of a node's next process.
    pub fn set_variable(&mut self, node: usize, name: &str, value: &str) {
        let variables = &mut self.options.hosts[node].variables;
        variables.retain(|(known, _)| known != name);
        variables.push((name.to_owned(), value.to_owned()));
    }

    /// The arguments a node is started with.
    pub fn arguments(&self, node: usize) -> Vec<String> {
        let members: Vec<_> = (0..self.len()).map(|n| format!("{}={}", name(n), self.address(n))).collect();
        let mut arguments: Vec<String> = vec![
            "start".into(),
            "--name".into(),
            name(node),
            "--dir".into(),
            self.data(node).display().to_string(),
            "--port".into(),
            self.port(node).to_string(),
            "--cluster".into(),
            members.join(","),
        ];
        let ports = [
            ("{port}", self.port(node)),
            ("{tls-port}", self.tls_port(node)),
            ("{plain-port}", self.plain_port(node)),
        ];
        let further = self.options.arguments.iter();
        arguments.extend(further.map(|argument| {
            ports.iter().fold(argument.clone(), |text, (name, port)| text.replace(name, &port.to_string()))
        }));
        arguments
    }

    /// Starts a node and does not wait.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn spawn(&mut self, node: usize) -> Result<()> {
        let host = &self.options.hosts[node];
        let mut words = host.through.clone();
        words.push(self.options.weir.display().to_string());
        words.extend(self.arguments(node));
        let program = PathBuf::from(words.remove(0));
        let process = Process::spawn_with(&program, &words, &host.variables, &self.log(node))?;
        self.nodes[node] = Some(process);
        Ok(())
    }

    /// Where a node's output goes.
    pub fn log(&self, node: usize) -> PathBuf {
        self.options.dir.join(format!("{}.log", name(node)))
    }

    /// Waits until a node said `ready `.
    ///
    /// # Errors
    /// It ended or takes too long.
    pub async fn wait_ready(&mut self, node: usize) -> Result<()> {
        self.process(node)?.wait_ready(READY_WITHIN).await.with_context(|| name(node))
    }

    /// The process of a node.
    ///
    /// # Errors
    /// It was not started or was killed.
    pub fn process(&mut self, node: usize) -> Result<&mut Process> {
        self.nodes[node].as_mut().with_context(|| format!("{} does not run", name(node)))
    }

    /// Whether the node was started and not killed or stopped by us.
    pub fn runs(&self, node: usize) -> bool {
        self.nodes[node].is_some()
    }

    /// kill -9, and waits until it is gone.
    ///
    /// # Errors
    /// It does not run.
    pub async fn kill(&mut self, node: usize) -> Result<()> {
        let process = self.process(node)?;
        process.child.kill()?;
        process.wait_exit(Duration::from_secs(10)).await?;
        self.nodes[node] = None;
        Ok(())
    }

    /// SIGSTOP.
    ///
    /// # Errors
    /// It does not run.
    pub fn pause(&mut self, node: usize) -> Result<()> {
        self.process(node)?.signal(Signal::Stop)
    }

    /// SIGCONT.
    ///
    /// # Errors
    /// It does not run.
    pub fn resume(&mut self, node: usize) -> Result<()> {
        self.process(node)?.signal(Signal::Continue)
    }

    /// SIGTERM; how long it took to exit.
    ///
    /// # Errors
    /// It exits with another status than 0, or not within 15 s.
    pub async fn terminate(&mut self, node: usize) -> Result<Duration> {
        let process = self.process(node)?;
        let began = Instant::now();
        process.signal(Signal::Terminate)?;
        let status = process.wait_exit(Duration::from_secs(15)).await.with_context(|| name(node))?;
        let took = began.elapsed();
        if !status.success() {
            bail!("{} ended with {status} on SIGTERM\n{}", name(node), process.tail());
        }
        self.nodes[node] = None;
        Ok(took)
    }

    /// Ends every node, however it takes it.
    pub fn end_all(&mut self) {
        self.nodes.iter_mut().for_each(|node| *node = None);
    }

    /// Lets go of nodes that ended by themselves, so that they can be started again; how each ended.
    ///
    /// # Errors
    /// The system does not tell.
    pub fn let_go_of_ended(&mut self) -> Result<Vec<String>> {
        let mut ended = Vec::new();
        for node in 0..self.len() {
            if let Some(process) = &mut self.nodes[node]
                && let Some(status) = process.child.try_wait()?
            {
                ended.push(format!("{} ended with {status}\n{}", name(node), process.tail()));
                self.nodes[node] = None;
            }
        }
        Ok(ended)
    }

    /// Notices nodes that ended by themselves.
    ///
    /// # Errors
    /// One did; the message carries the end of its log.
    pub fn assert_all_run(&mut self) -> Result<()> {
        for node in 0..self.len() {
            if let Some(process) = &mut self.nodes[node]
                && let Some(status) = process.child.try_wait()?
            {
                bail!("{} ended by itself with {status}\n{}", name(node), process.tail());
            }
        }
        Ok(())
    }
}

/// Name of a node: n1, n2, ...
pub fn name(node: usize) -> String {
    format!("n{}", node + 1)
}
