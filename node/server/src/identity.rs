//! Who this node is, kept in `node.json` of its data directory, and the claim on that directory.
//!
//! The file is written before anybody is told what stands in it, so a node never appears under two identities.
//! Its first line is a checksum of the rest. Its `phase` says how far the founding of the cluster has come (`bootstrap.rs`).

use crate::config::{Config, Durability, Member};
use crate::error::{Error, data_dir_error};
use serde::{Deserialize, Serialize};
use std::any::Any;
use std::path::{Path, PathBuf};
use weir_env::{Env, Rng};
use weir_raft::NodeId;

/// Version of the data directory's layout as a whole.
pub const DIR_FORMAT: u32 = 2;

const FILE: &str = "node.json";

/// How far this node has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// It has an identity, and belongs to no cluster.
    Joining,
    /// It knows the identities of all nodes and promises to found this cluster with them.
    Prepared,
    /// It belongs to the cluster. Final.
    Member,
}

/// The agreed beginning of a cluster: equal on all its nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Founding {
    /// 40 hex digits.
    pub cluster_id: String,
    /// All nodes in the order of their numbers, which start at 1.
    pub nodes: Vec<Founder>,
    /// Number of shards.
    pub shards: u32,
    /// Copies of each.
    pub replicas: u32,
    /// When a write is answered.
    pub durability: Durability,
    /// Default of new shards.
    pub stream_node_max_entries: u32,
    /// Default of new shards.
    pub stream_node_max_bytes: u32,
}

/// One node of a [`Founding`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Founder {
    /// 40 hex digits.
    pub id: String,
    /// Host that clients are told.
    pub advertise: String,
    /// Name and address.
    #[serde(flatten)]
    pub member: Member,
}

impl Founding {
    /// The number of the node with this name.
    pub fn number_of(&self, name: &str) -> Option<NodeId> {
        self.nodes.iter().position(|n| n.member.name == name).map(|at| at as NodeId + 1)
    }
}

/// What `node.json` holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// [`DIR_FORMAT`] of the build that wrote it.
    pub format: u32,
    /// Name in the configuration.
    pub name: String,
    /// 40 hex digits, drawn once.
    pub id: String,
    /// 40 hex digits; becomes the cluster's id if this node turns out to be number 1.
    pub cluster_id_drawn: String,
    /// How far it has come.
    pub phase: Phase,
    /// Set from [`Phase::Prepared`] on.
    pub founding: Option<Founding>,
}

impl Identity {
    /// This node's number in Raft; 0 before it is a member.
    pub fn number(&self) -> NodeId {
        self.founding.as_ref().and_then(|f| f.number_of(&self.name)).unwrap_or(0)
    }

    /// The cluster's id; empty before this node is a member.
    pub fn cluster_id(&self) -> &str {
        self.founding.as_ref().map_or("", |f| f.cluster_id.as_str())
    }
}

/// A data directory that this process alone uses.
pub struct DataDir {
    env: Env,
    path: PathBuf,
    _lock: Box<dyn Any + Send>,
}

impl DataDir {
    /// Creates the directory if need be and claims it.
    ///
    /// # Errors
    /// It cannot be written, or another process uses it.
    pub fn claim(env: &Env, path: &Path) -> Result<DataDir, Error> {
        env.disk.create_dir_durable(path).map_err(|e| data_dir_error(path, "cannot be created", &e))?;
        // Before the claim leaves a file in what may be somebody else's.
        check_ours(env, path)?;
        let lock = env.disk.lock_dir(path).map_err(|e| data_dir_error(path, "cannot be claimed", &e))?;
        Ok(DataDir { env: env.clone(), path: path.to_owned(), _lock: lock })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the identity, or makes one in an empty directory.
    ///
    /// # Errors
    /// The directory belongs to another node, was written by another version, is damaged, or holds other things.
    pub fn identity(&self, config: &Config) -> Result<Identity, Error> {
        let file = self.path.join(FILE);
        if !self.env.disk.exists(&file) {
            check_ours(&self.env, &self.path)?;
            let identity = Identity {
                format: DIR_FORMAT,
                name: config.name.clone(),
                id: draw_hex(&*self.env.rng),
                cluster_id_drawn: draw_hex(&*self.env.rng),
                phase: Phase::Joining,
                founding: None,
            };
            self.save(&identity)?;
            return Ok(identity);
        }
        let bytes = self.env.disk.read(&file).map_err(|e| data_dir_error(&file, "cannot be read", &e))?;
        let identity = read_identity(&file, &bytes)?;
        if identity.name != config.name {
            return Err(Error::Refused(format!(
                "{} holds the data of node {}, not of {}: give that node's --name or another --dir",
                self.path.display(),
                identity.name,
                config.name
            )));
        }
        if let (Phase::Member, Some(founding)) = (identity.phase, &identity.founding) {
            check_against_founding(config, founding)?;
        }
        Ok(identity)
    }

    /// Replaces the identity; durable on return.
    ///
    /// # Errors
    /// The disk's.
    pub fn save(&self, identity: &Identity) -> Result<(), Error> {
        let file = self.path.join(FILE);
        let text = match serde_json::to_string_pretty(identity) {
            Ok(text) => with_checksum(&text),
            Err(e) => unreachable!("plain data always encodes: {e}"),
        };
        let text = text.into_bytes();
        self.env.disk.write_atomic(&file, &text).map_err(|e| data_dir_error(&file, "cannot be written", &e))
    }
}

/// Without an identity the directory must be empty but for traces of a first start that was cut short.
fn check_ours(env: &Env, path: &Path) -> Result<(), Error> {
    if env.disk.exists(&path.join(FILE)) {
        return Ok(());
    }
    let names = env.disk.read_dir(path).map_err(|e| data_dir_error(path, "cannot be read", &e))?;
    let ours = |name: &str| name == "LOCK" || name == "lost+found" || name == format!("{FILE}.tmp");
    match names.iter().find(|name| !ours(name)) {
        None => Ok(()),
        Some(other) => Err(Error::Refused(format!(
            "{} has no {FILE} but is not empty (it holds {other}): give an empty directory, or the right one",
            path.display()
        ))),
    }
}

const CHECKSUM_START: &str = "{\n  \"crc32c\": \"";
const CHECKSUM_END: &str = "\",\n";

/// Puts the checksum of all that follows it first into a JSON object that is not empty.
fn with_checksum(object: &str) -> String {
    let rest = format!("{}\n", object.trim_start_matches("{\n"));
    format!("{CHECKSUM_START}{:08x}{CHECKSUM_END}{rest}", crc32c::crc32c(rest.as_bytes()))
}

fn checksum_is_right(text: &[u8]) -> bool {
    let rest = text.strip_prefix(CHECKSUM_START.as_bytes()).and_then(|text| text.split_at_checked(8));
    let Some((stored, rest)) = rest else { return false };
    let Some(rest) = rest.strip_prefix(CHECKSUM_END.as_bytes()) else { return false };
    format!("{:08x}", crc32c::crc32c(rest)).as_bytes() == stored
}

fn read_identity(file: &Path, bytes: &[u8]) -> Result<Identity, Error> {
    #[derive(Deserialize)]
    struct Format {
        format: u32,
    }
    let damaged = |e: &dyn std::fmt::Display| {
        Error::Refused(format!(
            "{} is damaged ({e}): restore it from a backup, this node cannot start without it",
            file.display()
        ))
    };
    let Format { format } = serde_json::from_slice(bytes).map_err(|e| damaged(&e))?;
    if format != DIR_FORMAT {
        return Err(Error::Refused(format!(
            "{} was written with data format {format}, this build reads {DIR_FORMAT}: start it with the version of weir that wrote it",
            file.display()
        )));
    }
    if !checksum_is_right(bytes) {
        return Err(damaged(&"its checksum is wrong"));
    }
    let identity: Identity = serde_json::from_slice(bytes).map_err(|e| damaged(&e))?;
    let founder =
        identity.founding.as_ref().and_then(|f| f.nodes.iter().find(|n| n.member.name == identity.name));
    if let Some(founder) = founder
        && founder.id != identity.id
    {
        return Err(damaged(&format!(
            "it calls this node {}, its cluster was founded with {} as {}",
            identity.id, identity.name, founder.id
        )));
    }
    Ok(identity)
}

/// What is stored is final; flags that say otherwise are a mistake somewhere.
fn check_against_founding(config: &Config, founding: &Founding) -> Result<(), Error> {
    let stored: Vec<Member> = founding.nodes.iter().map(|n| n.member.clone()).collect();
    if !same_members(&stored, &config.cluster) {
        return Err(Error::Refused(format!(
            "--cluster {} disagrees with what {} has stored, {}: start it with the stored list",
            list(&config.cluster),
            config.name,
            list(&stored)
        )));
    }
    if config.durability != founding.durability {
        return Err(Error::Refused(format!(
            "--durability {} disagrees with the cluster, which was founded with {}: it is the same on every node",
            config.durability.name(),
            founding.durability.name()
        )));
    }
    for (flag, given, stored) in
        [("shards", config.shards, founding.shards), ("replicas", config.replicas, founding.replicas)]
    {
        if given != 0 && given != stored {
            return Err(Error::Refused(format!(
                "--{flag} {given} disagrees with the cluster, which was founded with {stored}: leave the flag out"
            )));
        }
    }
    Ok(())
}

/// Whether two lists name the same nodes at the same addresses, in any order.
pub fn same_members(a: &[Member], b: &[Member]) -> bool {
    let sorted = |list: &[Member]| {
        let mut list = list.to_vec();
        list.sort();
        list
    };
    sorted(a) == sorted(b)
}

/// As `--cluster` takes it.
pub fn list(members: &[Member]) -> String {
    members.iter().map(Member::to_string).collect::<Vec<_>>().join(",")
}

/// 40 random hex digits.
pub fn draw_hex(rng: &dyn Rng) -> String {
    let mut bytes = [0; 20];
    rng.fill(&mut bytes);
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Sources;

    fn config(flags: &[(&str, &str)]) -> Config {
        let flags = flags.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        Config::load(&Sources { flags, ..Sources::default() }).unwrap()
    }

    const LIST: &str = "n1=h:7001,n2=h:7002,n3=h:7003";

    fn member(dir: &DataDir, config: &Config) -> Identity {
        let mut identity = dir.identity(config).unwrap();
        identity.phase = Phase::Member;
        identity.founding = Some(Founding {
            cluster_id: "c".repeat(40),
            nodes: config
                .cluster
                .iter()
                .map(|m| Founder {
                    id: if m.name == config.name { identity.id.clone() } else { "1".repeat(40) },
                    advertise: m.host.clone(),
                    member: m.clone(),
                })
                .collect(),
            shards: 3,
            replicas: 3,
            durability: Durability::Always,
            stream_node_max_entries: 100,
            stream_node_max_bytes: 4096,
        });
        dir.save(&identity).unwrap();
        identity
    }

    #[test]
    fn an_identity_is_drawn_once_and_found_again() {
        let temp = tempfile::tempdir().unwrap();
        let env = Env::system();
        let config = config(&[("name", "n2"), ("cluster", LIST)]);
        let dir = DataDir::claim(&env, &temp.path().join("a/b")).unwrap();
        let first = dir.identity(&config).unwrap();
        assert_eq!((first.id.len(), first.phase), (40, Phase::Joining));
        let stored = member(&dir, &config);
        assert_eq!(dir.identity(&config).unwrap(), stored);
        assert_eq!((stored.id, stored.founding.unwrap().number_of("n2")), (first.id, Some(2)));
    }

    #[test]
    fn a_directory_that_does_not_fit_is_refused_in_one_clear_line() {
        let temp = tempfile::tempdir().unwrap();
        let env = Env::system();
        let dir = DataDir::claim(&env, temp.path()).unwrap();
        let refused = |flags: &[(&str, &str)]| {
            let text = dir.identity(&config(flags)).unwrap_err().to_string();
            assert!(!text.contains('\n'), "{text}");
            text
        };
        let again = DataDir::claim(&env, temp.path()).err().unwrap().to_string();
        assert!(again.contains("in use by another running process"), "{again}");

        env.disk.write_atomic(&temp.path().join("photo.jpg"), b"x").unwrap();
        assert!(refused(&[("name", "n1")]).contains("is not empty (it holds photo.jpg)"));
        env.disk.remove_file(&temp.path().join("photo.jpg")).unwrap();

        member(&dir, &config(&[("name", "n1"), ("cluster", LIST)]));
        assert!(
            refused(&[("name", "n2"), ("cluster", LIST)]).contains("holds the data of node n1, not of n2")
        );
        let text = refused(&[("name", "n1"), ("cluster", "n1=h:7001,n2=h:7002,n3=h:7009")]);
        assert!(text.contains("disagrees with what n1 has stored, n1=h:7001,n2=h:7002,n3=h:7003"), "{text}");
        let text = refused(&[("name", "n1"), ("cluster", LIST), ("durability", "os")]);
        assert!(text.contains("--durability os disagrees with the cluster, which was founded with always"));
        assert!(
            refused(&[("name", "n1"), ("cluster", LIST), ("shards", "5")]).contains("--shards 5 disagrees")
        );

        let file = temp.path().join(FILE);
        env.disk.write_atomic(&file, br#"{"format": 7, "something": "new"}"#).unwrap();
        assert!(refused(&[("name", "n1")]).contains("data format 7, this build reads 2"));
        env.disk.write_atomic(&file, b"{").unwrap();
        assert!(refused(&[("name", "n1")]).contains("is damaged"));
    }

    #[test]
    fn an_identity_that_was_changed_anywhere_is_refused() {
        let temp = tempfile::tempdir().unwrap();
        let env = Env::system();
        let config = config(&[("name", "n1"), ("cluster", LIST)]);
        let dir = DataDir::claim(&env, temp.path()).unwrap();
        let stored = member(&dir, &config);
        let file = temp.path().join(FILE);
        let good = env.disk.read(&file).unwrap();
        for at in 0..good.len() {
            let mut bytes = good.clone();
            bytes[at] ^= 1 << (at % 7);
            env.disk.write_atomic(&file, &bytes).unwrap();
            let refused = dir.identity(&config).err();
            assert!(refused.is_some(), "byte {at}: {}", String::from_utf8_lossy(&bytes));
        }
        // A file that fits itself, and not the cluster that it names.
        dir.save(&Identity { id: "2".repeat(40), ..stored }).unwrap();
        let text = dir.identity(&config).unwrap_err().to_string();
        assert!(text.contains("it calls this node 2222"), "{text}");
    }
}
