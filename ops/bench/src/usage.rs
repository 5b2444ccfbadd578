//! What processes and the disk did, from `/proc` (proc(5)) and `/sys` (the kernel's Documentation/block/stat.rst).

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Context, Result};

/// Since some time in the past.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Usage {
    /// User and system time of some processes together.
    pub(crate) cpu_seconds: f64,
    /// Bytes that the disk below a directory was given to write, by anybody: what the kernel counts for a process
    /// are whole folios of its page cache, which may be a thousand times what is written. 0 where the directory is on
    /// no disk.
    pub(crate) disk_bytes: f64,
}

impl Usage {
    pub(crate) fn of(pids: &[u32], dir: &Path) -> Result<Usage> {
        let mut cpu_seconds = 0.0;
        for pid in pids {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
            // Fields after the name, which is in parentheses; user time is the 12th of them, system time the 13th, in
            // hundredths of a second.
            let fields: Vec<&str> = stat.rsplit(')').next().context("stat")?.split_whitespace().collect();
            cpu_seconds += (fields[11].parse::<f64>()? + fields[12].parse::<f64>()?) / 100.0;
        }
        Ok(Usage { cpu_seconds, disk_bytes: written_to(dir)? })
    }

    pub(crate) fn since(self, before: &Usage) -> Usage {
        Usage {
            cpu_seconds: self.cpu_seconds - before.cpu_seconds,
            disk_bytes: self.disk_bytes - before.disk_bytes,
        }
    }
}

/// The seventh number of a disk's statistics is sectors of 512 bytes written.
fn written_to(dir: &Path) -> Result<f64> {
    let device = std::fs::metadata(dir)?.dev();
    // The encoding of glibc's makedev(3).
    let major = (device >> 32) & 0xffff_f000 | (device >> 8) & 0xfff;
    let minor = (device >> 12) & 0xffff_ff00 | device & 0xff;
    let Ok(stat) = std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/stat")) else {
        return Ok(0.0);
    };
    let sectors: f64 = stat.split_whitespace().nth(6).context("block statistics")?.parse()?;
    Ok(sectors * 512.0)
}

/// Memory of a process that is in RAM, in bytes.
pub(crate) fn resident_bytes(pid: u32) -> Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).context("VmRSS")?;
    Ok(line.split_whitespace().nth(1).context("VmRSS")?.parse::<f64>()? * 1024.0)
}
