/// What has happened to a batch when its callers are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// It is on disk. Survives power loss.
    Always,
    /// It was handed to the system, which is told to put it on disk once a second. Survives a crash of the process;
    /// a power loss takes at most about the last second.
    EverySec,
    /// It was handed to the system, which puts it on disk when it likes. Survives a crash of the process.
    Os,
}

/// Whose log it is. A log is opened by its owner alone; what is empty is not compared.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Owner {
    /// The node's name, for messages.
    pub name: String,
    /// The node's identity.
    pub node: String,
    /// The cluster's id; empty before the node belongs to one.
    pub cluster: String,
}

impl std::fmt::Display for Owner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let short = |id: &str| id.chars().take(8).collect::<String>();
        write!(f, "{} ({}", self.name, short(&self.node))?;
        match self.cluster.is_empty() {
            true => f.write_str(")"),
            false => write!(f, " of cluster {})", short(&self.cluster)),
        }
    }
}

/// How a [`crate::Wal`] is kept.
#[derive(Debug, Clone)]
pub struct WalOptions {
    /// Size of a segment file, in bytes. A single larger batch gets a larger file.
    pub segment_bytes: u64,
    /// When callers are told.
    pub durability: Durability,
    /// Recent entries kept in memory for reading, in bytes over all groups. Entries that are not written yet are kept
    /// in any case.
    pub cache_bytes: usize,
    /// Most bytes that go into one write and sync, unless one call brings more.
    pub batch_bytes_max: usize,
    /// Segment files kept prepared, so that a full disk is met ahead of the writes that need the space. When no more
    /// can be made, the last one is the reserve for votes, cuts and the next start.
    pub spare_segments: usize,
    /// Free space on the file system, in bytes, below which [`crate::Wal::space_low`] turns true: room for one
    /// snapshot, which is what lets the log be purged.
    pub reserve_bytes: u64,
    /// Whether new segment files are filled with zeros ahead of use. A sync into space that was written before is
    /// markedly cheaper than into space that was only claimed.
    pub prefill: bool,
    /// Whether the directory must hold a log already ([`crate::Error::Missing`] otherwise).
    pub must_exist: bool,
    /// Whose log it is.
    pub owner: Owner,
}

impl Default for WalOptions {
    fn default() -> Self {
        Self {
            segment_bytes: 64 << 20,
            durability: Durability::Always,
            cache_bytes: 64 << 20,
            batch_bytes_max: 4 << 20,
            spare_segments: 2,
            reserve_bytes: 256 << 20,
            prefill: true,
            must_exist: false,
            owner: Owner::default(),
        }
    }
}
