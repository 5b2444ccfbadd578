//! P7: for each answer k of WAIT, the write is on the simulated platters of k or more other nodes at that moment: power
//! could fail everywhere and it would still be there.

pub(crate) const NAME: &str = "wait_is_on_disk";

/// `holders`: nodes other than the one that answered on whose platter the bytes of the write stand.
pub(crate) fn check(key: &str, token: u64, answered: u64, holders: usize) -> Result<(), String> {
    if answered <= holders as u64 {
        return Ok(());
    }
    Err(format!("{key}: WAIT answered {answered} for token {token}, {holders} other nodes have it on disk"))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use weir_env::{Disk, OpenMode};

    use super::*;
    use crate::disk::SimDisk;

    #[test]
    fn a_count_of_a_write_that_is_not_synced_is_seen() {
        let disk = SimDisk::new(1);
        let path = Path::new("/wal");
        let mut file = disk.open(path, OpenMode::CreateNew).unwrap();
        disk.sync_dir(Path::new("/")).unwrap();
        file.write_at(b"...~7~...", 0).unwrap();
        let holders = |disk: &SimDisk| usize::from(disk.holds_stably(b"~7~"));
        assert!(check("k", 7, 1, holders(&disk)).is_err());
        file.sync_data().unwrap();
        assert!(check("k", 7, 1, holders(&disk)).is_ok());
        assert!(check("k", 7, 2, holders(&disk)).is_err());
    }
}
