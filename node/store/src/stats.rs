/// Counts of durations by powers of two of a microsecond.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Histogram {
    /// `buckets[i]` counts durations below `2^i` microseconds and at least half of that; the last one counts the rest.
    pub buckets: [u64; Self::BUCKETS],
    /// All that was counted.
    pub count: u64,
    /// Sum of all, in microseconds.
    pub sum_us: u64,
    /// The longest, in microseconds.
    pub max_us: u64,
}

impl Histogram {
    /// Number of buckets; the last begins at about four seconds.
    pub const BUCKETS: usize = 24;

    pub(crate) fn add(&mut self, us: u64) {
        let bucket = (u64::BITS - us.leading_zeros()) as usize;
        self.buckets[bucket.min(Self::BUCKETS - 1)] += 1;
        self.count += 1;
        self.sum_us += us;
        self.max_us = self.max_us.max(us);
    }

    /// An upper bound of the `q` quantile (0 to 1), in microseconds; 0 when nothing was counted.
    pub fn quantile_us(&self, q: f64) -> u64 {
        let wanted = (self.count as f64 * q).ceil() as u64;
        let mut seen = 0;
        for (i, n) in self.buckets.iter().enumerate() {
            seen += n;
            if *n > 0 && seen >= wanted {
                return self.max_us.min(1 << i);
            }
        }
        self.max_us
    }
}

impl Default for Histogram {
    fn default() -> Self {
        Self { buckets: [0; Self::BUCKETS], count: 0, sum_us: 0, max_us: 0 }
    }
}

/// What the log has done since it was opened, and where it stands.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WalStats {
    /// Time of each sync.
    pub sync: Histogram,
    /// Batches written.
    pub batches: u64,
    /// Bytes written.
    pub bytes: u64,
    /// Log entries written, without copies.
    pub entries: u64,
    /// Log entries copied to newer segments so that older ones could go.
    pub entries_moved: u64,
    /// Segment files now, without spares.
    pub segments: u64,
    /// Their size in bytes.
    pub segment_bytes: u64,
    /// Bytes of records in them that are still needed.
    pub live_bytes: u64,
    /// Prepared files.
    pub spares: u64,
    /// Bytes queued and not yet written.
    pub queued_bytes: u64,
    /// Bytes of entries held in memory.
    pub cached_bytes: u64,
    /// Reads that had to go to the disk.
    pub disk_reads: u64,
}
