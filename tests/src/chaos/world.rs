//! The nodes of a run, with what can be done to each: its process, its links, its disk, its clock.

use super::network::{Link, Network};
use super::proxy::{Proxies, Weather};
use super::sandbox;
use crate::client::slot_map;
use crate::process::{Cluster, ClusterOptions, name};
use anyhow::{Context, Result, anyhow, ensure};
use rand::{Rng, rngs::StdRng};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Bytes of a node's disk, where it has one of its own.
const DISK_BYTES: u64 = 256 << 20;
/// Small segments, so that logs roll and disks fill within a round; snapshots several times a round.
const ARGUMENTS: [&str; 4] = ["--wal-segment-bytes", "4mb", "--snapshot-log-bytes", "1mb"];

/// What a run is made of.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The program.
    pub weir: PathBuf,
    /// Where logs go, and data too if nodes have no disks of their own.
    pub dir: PathBuf,
    /// Number of nodes.
    pub nodes: u16,
    /// Whether we run inside the sandbox.
    pub sandbox: bool,
    /// Whether the program has test hooks.
    pub hooks: bool,
    /// Draws what proxies do.
    pub seed: u64,
    /// A bug to plant in every node.
    pub planted: Option<String>,
}

/// The nodes and their surroundings.
#[derive(Debug)]
pub struct World {
    /// The processes.
    pub cluster: Cluster,
    /// Their network, in a sandbox.
    pub network: Option<Network>,
    /// Proxies between them, in a sandbox.
    pub proxies: Option<Proxies>,
    /// Their clocks, where the program has test hooks.
    pub clocks: Vec<PathBuf>,
    /// Their disks, in a sandbox.
    pub disks: Vec<PathBuf>,
    /// Whether some of what was not synced may survive. A log that never syncs would be found damaged, not shorter.
    torn: bool,
    /// Who led which slots when the cluster was new.
    pub shards: Vec<(u16, u16, String)>,
}

impl Drop for World {
    /// Directories on which something is mounted could not be removed.
    fn drop(&mut self) {
        self.cluster.end_all();
        for disk in &self.disks {
            if let Err(error) = sandbox::run("umount", &["-l", &disk.display().to_string()], "") {
                eprintln!("chaos: {error:#}");
            }
        }
    }
}

impl World {
    /// Starts a cluster and waits until every node leads a shard.
    ///
    /// # Errors
    /// It does not get ready.
    pub async fn start(plan: &Plan) -> Result<World> {
        let nodes = usize::from(plan.nodes);
        let (mut hosts, mut disks, mut network, mut proxies) = (Vec::new(), Vec::new(), None, None);
        let mut arguments: Vec<String> = ARGUMENTS.iter().map(|&word| word.to_owned()).collect();
        if plan.sandbox {
            let net = Network::set_up(nodes, &plan.dir)?;
            for node in 0..nodes {
                let disk = plan.dir.join(format!("{}.disk", name(node)));
                sandbox::mount_tmpfs(&disk, Some(DISK_BYTES))?;
                hosts.push(net.host(node, disk.join("data")));
                disks.push(disk);
            }
            network = Some(net);
            proxies = Some(Proxies::start(nodes, plan.seed).await?);
            // Clients come from other addresses and say no password.
            arguments.extend(["--bind", "0.0.0.0", "--protected-mode=no"].map(str::to_owned));
        }
        let options = ClusterOptions {
            weir: plan.weir.clone(),
            dir: plan.dir.clone(),
            nodes: plan.nodes,
            arguments,
            hosts,
        };
        let mut cluster = Cluster::prepare(options)?;
        let mut clocks = Vec::new();
        if plan.hooks {
            for node in 0..nodes {
                let clock = plan.dir.join(format!("{}.clock", name(node)));
                std::fs::write(&clock, "0")?;
                cluster.set_variable(node, "WEIR_TEST_CLOCK", &clock.display().to_string());
                if let Some(bug) = &plan.planted {
                    cluster.set_variable(node, "WEIR_TEST_BUG", bug);
                }
                clocks.push(clock);
            }
        }
        let torn = plan.planted.as_deref() != Some("fsync");
        let mut world = World { cluster, network, proxies, clocks, disks, torn, shards: Vec::new() };
        world.choose_disks(&mut super::fault::rng_of(plan.seed, u64::MAX));
        world.cluster.start_all().await?;
        world.shards = world.balanced().await?;
        Ok(world)
    }

    /// The slot map once every node leads something.
    async fn balanced(&self) -> Result<Vec<(u16, u16, String)>> {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let rows = slot_map(&self.cluster.addresses()).await;
            if let Ok(rows) = &rows
                && self.cluster.addresses().iter().all(|at| rows.iter().any(|(_, _, leader)| leader == at))
            {
                return Ok(rows.clone());
            }
            ensure!(Instant::now() < deadline, "not every node leads a shard: {rows:?}");
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// A node that leads the shard with this number at the moment, or the next shard that has a leader.
    ///
    /// # Errors
    /// No node tells.
    pub async fn leader(&self, shard: usize) -> Result<usize> {
        let rows = slot_map(&self.cluster.addresses()).await.map_err(|e| anyhow!("no slot map: {e}"))?;
        let (_, _, address) = &rows[shard % rows.len()];
        self.cluster.node_at(address).with_context(|| format!("{address} leads, but is no node of ours"))
    }

    /// Number of nodes.
    pub fn nodes(&self) -> usize {
        self.cluster.len()
    }

    /// All nodes but these.
    pub fn others(&self, than: &[usize]) -> Vec<usize> {
        (0..self.nodes()).filter(|node| !than.contains(node)).collect()
    }

    /// The network.
    ///
    /// # Errors
    /// There is none.
    pub fn network(&self) -> Result<&Network> {
        self.network.as_ref().context("this needs a network of our own")
    }

    /// Leads all that nodes send each other through proxies with this weather.
    ///
    /// # Errors
    /// There are none.
    pub fn set_weather(&self, weather: Weather) -> Result<()> {
        self.proxies.as_ref().context("this needs a network of our own")?.set(weather);
        self.network()?.all(Link::Proxied)
    }

    /// Sets a node's wall clock this far off.
    ///
    /// # Errors
    /// The nodes have no such clocks.
    pub fn set_clock(&self, node: usize, offset_ms: i64) -> Result<()> {
        let clock = self.clocks.get(node).context("this needs a build with test hooks")?;
        // As one step: the node reads it at any time.
        let new = clock.with_extension("clock.new");
        std::fs::write(&new, offset_ms.to_string())?;
        Ok(std::fs::rename(new, clock)?)
    }

    /// Takes the room on a node's disk but for so many bytes; what is taken already counts.
    ///
    /// # Errors
    /// The nodes have no disks of their own.
    pub fn fill_disk(&self, node: usize, leave: u64) -> Result<()> {
        let disk = self.disks.get(node).context("this needs disks of our own")?;
        let mut ballast = std::fs::OpenOptions::new().create(true).append(true).open(disk.join("ballast"))?;
        let mut chunk = 1 << 20;
        // The file system itself says when it is full.
        while chunk >= 4096 {
            match std::io::Write::write(&mut ballast, &vec![7; chunk]) {
                Ok(written) if written > 0 => {}
                _ => chunk /= 2,
            }
        }
        let taken = ballast.metadata()?.len();
        Ok(ballast.set_len(taken.saturating_sub(leave))?)
    }

    /// Gives the room back.
    ///
    /// # Errors
    /// What the system says.
    pub fn free_disk(&self, node: usize) -> Result<()> {
        let disk = self.disks.get(node).context("this needs disks of our own")?;
        match std::fs::remove_file(disk.join("ballast")) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// What the disks of nodes that start from now on do with bytes that are not synced when the process dies.
    pub fn choose_disks(&mut self, rng: &mut StdRng) {
        if !self.clocks.is_empty() {
            for node in 0..self.nodes() {
                let disk = if self.torn && rng.random_bool(0.5) { "torn" } else { "forgetful" };
                self.cluster.set_variable(node, "WEIR_TEST_DISK", disk);
            }
        }
    }

    /// Undoes whatever a fault has left: links, disks, clocks, paused or ended processes. Tells which nodes had ended
    /// by themselves.
    ///
    /// # Errors
    /// A node does not come back.
    pub async fn heal(&mut self) -> Result<Vec<String>> {
        if let Some(network) = &self.network {
            network.heal()?;
            if let Some(proxies) = &self.proxies {
                proxies.break_all();
            }
            for node in 0..self.nodes() {
                network.clients_reach(node, true)?;
            }
        }
        for node in 0..self.disks.len() {
            self.free_disk(node)?;
        }
        for node in 0..self.clocks.len() {
            self.set_clock(node, 0)?;
        }
        let ended = self.cluster.let_go_of_ended()?;
        for node in 0..self.nodes() {
            if self.cluster.runs(node) {
                self.cluster.resume(node)?;
            }
        }
        let back = self.cluster.start_all().await;
        back.with_context(|| format!("a node does not come back; these ended by themselves: {ended:?}"))?;
        Ok(ended)
    }

    /// Copies data that would go with the sandbox to where logs are.
    ///
    /// # Errors
    /// It cannot be copied.
    pub fn keep_data(&self, dir: &Path) -> Result<()> {
        for (node, disk) in self.disks.iter().enumerate() {
            let to = dir.join(name(node)).display().to_string();
            sandbox::run(
                "cp",
                &["-r", "--sparse=always", &disk.join("data").display().to_string(), &to],
                "",
            )?;
        }
        Ok(())
    }
}
