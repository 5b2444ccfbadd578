//! A network of nodes: each in a namespace of its own, all on one bridge in ours.
//!
//! Many kernels have no `netem`. So packets vanish by the oldest means there is: each node reaches each other one by a
//! permanent neighbour entry, and an entry with a hardware address that nobody has sends them nowhere. That works in
//! one direction at a time, and at once.
//!
//! Node F dials node T by a name that its own hosts file gives an address for this pair alone, 198.18.F.T. Both T and
//! the bridge hold that address; F's neighbour entry decides who gets the packets: T itself, or a proxy here that
//! delays what passes. The range is the one set aside for tests of networks.

use super::sandbox;
use crate::process::{Host, name};
use anyhow::{Context, Result};
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Client port of every node.
pub const PORT: u16 = 7001;

/// How packets from one node to another travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Link {
    /// Straight there.
    Direct,
    /// Through the proxy.
    Proxied,
    /// Nowhere.
    Void,
}

/// Namespaces, bridge and links. It goes with the sandbox.
#[derive(Debug)]
pub struct Network {
    nodes: usize,
    dir: PathBuf,
}

impl Network {
    /// Sets it up, every link direct.
    ///
    /// # Errors
    /// What `ip` or `mount` say.
    pub fn set_up(nodes: usize, dir: &Path) -> Result<Network> {
        let network = Network { nodes, dir: dir.to_owned() };
        // So that names of namespaces are ours alone and nothing of them is left.
        sandbox::mount_tmpfs(Path::new("/run/netns"), None)?;
        let mut hub = format!(
            "link set lo up\nlink add hub type bridge\nlink set hub address {}\naddr add 198.18.0.254/16 dev hub\n\
             link set hub up\n",
            mac(HUB)
        );
        for node in 0..nodes {
            let name = name(node);
            let _ = write!(
                hub,
                "netns add {name}\nlink add v{node} type veth peer name eth0 netns {name}\n\
                 link set v{node} master hub\nlink set v{node} up\n"
            );
        }
        ip(None, &hub)?;
        for node in 0..nodes {
            let mut lines = format!(
                "link set lo up\nlink set eth0 address {}\naddr add {}/16 dev eth0\n",
                mac(node),
                address(node)
            );
            for from in network.others(node) {
                let _ = writeln!(lines, "addr add {}/32 dev eth0", pair(from, node));
            }
            let _ = write!(
                lines,
                "link set eth0 up\nneigh replace 198.18.0.254 lladdr {} dev eth0 nud permanent\n",
                mac(HUB)
            );
            ip(Some(node), &lines)?;
        }
        let mut hub = String::new();
        for node in 0..nodes {
            let _ =
                writeln!(hub, "neigh replace {} lladdr {} dev hub nud permanent", address(node), mac(node));
            for from in network.others(node) {
                let _ = writeln!(hub, "addr add {}/32 dev hub", pair(from, node));
            }
        }
        ip(None, &hub)?;
        for node in 0..nodes {
            std::fs::write(network.hosts_file(node), network.hosts(Some(node)))?;
        }
        network.heal()?;
        // The clients run here, and know every node by its plain address.
        let ours = dir.join("hosts");
        std::fs::write(&ours, network.hosts(None))?;
        sandbox::bind_file(&ours, "/etc/hosts")?;
        Ok(network)
    }

    fn others(&self, node: usize) -> impl Iterator<Item = usize> + use<> {
        (0..self.nodes).filter(move |&other| other != node)
    }

    fn hosts_file(&self, node: usize) -> PathBuf {
        self.dir.join(format!("{}.hosts", name(node)))
    }

    fn hosts(&self, of: Option<usize>) -> String {
        let mut text = String::from("127.0.0.1 localhost\n");
        for node in 0..self.nodes {
            let at = of.filter(|&of| of != node).map_or_else(|| address(node), |of| pair(of, node));
            let _ = writeln!(text, "{at} {}", host_name(node));
        }
        text
    }

    /// Where a node runs, with its data in this directory.
    pub fn host(&self, node: usize, data: PathBuf) -> Host {
        let hosts = self.hosts_file(node).display().to_string();
        let through = [
            "ip",
            "netns",
            "exec",
            &name(node),
            "sh",
            "-c",
            "mount --bind \"$0\" /etc/hosts && exec \"$@\"",
            &hosts,
        ];
        Host {
            name: host_name(node),
            port: PORT,
            data,
            through: through.iter().map(|&word| word.to_owned()).collect(),
            variables: Vec::new(),
        }
    }

    /// Sets how packets from one node to others travel from now on, whichever of the two dialed.
    ///
    /// # Errors
    /// What `ip` says.
    pub fn link(&self, from: usize, to: &[usize], link: Link) -> Result<()> {
        let mut lines = String::new();
        for &to in to {
            let (dialed, answered) = match link {
                Link::Direct => (mac(to), mac(to)),
                Link::Proxied => (mac(HUB), mac(to)),
                Link::Void => (mac(NOBODY), mac(NOBODY)),
            };
            let _ =
                writeln!(lines, "neigh replace {} lladdr {dialed} dev eth0 nud permanent", pair(from, to));
            let _ = writeln!(lines, "neigh replace {} lladdr {answered} dev eth0 nud permanent", address(to));
        }
        ip(Some(from), &lines)
    }

    /// No packet passes between the two sides, in either direction.
    ///
    /// # Errors
    /// What `ip` says.
    pub fn split(&self, one: &[usize], other: &[usize]) -> Result<()> {
        for &node in one {
            self.link(node, other, Link::Void)?;
        }
        for &node in other {
            self.link(node, one, Link::Void)?;
        }
        Ok(())
    }

    /// Every link is direct again.
    ///
    /// # Errors
    /// What `ip` says.
    pub fn heal(&self) -> Result<()> {
        self.all(Link::Direct)
    }

    /// Sets every link.
    ///
    /// # Errors
    /// What `ip` says.
    pub fn all(&self, link: Link) -> Result<()> {
        for node in 0..self.nodes {
            let others: Vec<usize> = self.others(node).collect();
            self.link(node, &others, link)?;
        }
        Ok(())
    }

    /// Cuts a node off from clients, or lets it reach them again.
    ///
    /// # Errors
    /// What `ip` says.
    pub fn clients_reach(&self, node: usize, reach: bool) -> Result<()> {
        let to = if reach { mac(node) } else { mac(NOBODY) };
        ip(None, &format!("neigh replace {} lladdr {to} dev hub nud permanent\n", address(node)))
    }
}

const HUB: usize = 253;
const NOBODY: usize = 254;

fn mac(node: usize) -> String {
    format!("02:00:00:00:00:{:02x}", node + 1)
}

pub(super) fn address(node: usize) -> String {
    format!("198.18.0.{}", node + 1)
}

/// The address at which `from` dials `to`.
pub(super) fn pair(from: usize, to: usize) -> String {
    format!("198.18.{}.{}", from + 1, to + 1)
}

fn host_name(node: usize) -> String {
    format!("weir-{}", name(node))
}

/// Runs lines of `ip -batch`, in a node's namespace or in ours.
fn ip(node: Option<usize>, lines: &str) -> Result<()> {
    let name = node.map(name);
    let mut arguments = Vec::new();
    if let Some(name) = &name {
        arguments.extend(["-netns", name]);
    }
    arguments.extend(["-batch", "-"]);
    sandbox::run("ip", &arguments, lines).with_context(|| name.unwrap_or_else(|| "the bridge".into()))
}
