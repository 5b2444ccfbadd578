//! Every byte of a log may go bad, every file may be cut or be missing: the log refuses to open, or holds exactly what
//! it should.

use std::path::Path;

use weir_env::{Disk, OpenMode};

use super::crash::{DIR, Model, observe, options};
use super::fault_disk::FaultDisk;
use crate::suite::{append, entries, overwrite, segment_files};
use crate::{Durability, Error, GroupId, LogPosition, Wal};

const GROUPS: [GroupId; 2] = [GroupId(0), GroupId(1)];

/// A log of several segments whose last batch is known to be on disk, as its process died; and what is in it.
async fn a_log() -> (FaultDisk, Model) {
    let disk = FaultDisk::default();
    let wal = Wal::open(&disk.env(), Path::new(DIR), options(Durability::Always)).await.unwrap();
    let (a, b) = (wal.group(GroupId(0)), wal.group(GroupId(1)));
    for round in 0..12 {
        append(&a, entries(GroupId(0), 1, round * 5, round * 5 + 4, 100)).await.unwrap().unwrap();
        append(&b, entries(GroupId(1), 2, round, round, 200)).await.unwrap().unwrap();
    }
    a.purge(LogPosition::new(1, 10)).await.unwrap();
    b.truncate_after(Some(8)).await.unwrap();
    b.save_vote("a vote".into()).await.unwrap();
    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    let model = observe(&wal, GROUPS.into_iter()).await;
    let disk = disk.copy();
    disk.restart_process();
    (disk, model)
}

/// Opens a damaged log. `true`: it was refused.
async fn refused(disk: &FaultDisk, model: &Model, what: &str) -> bool {
    match Wal::open(&disk.env(), Path::new(DIR), options(Durability::Always)).await {
        Ok(wal) => {
            let found = observe(&wal, GROUPS.into_iter()).await;
            assert!(found == *model, "{what}: opened with {found:#?}");
            false
        }
        Err(Error::Corrupt { .. }) => true,
        Err(error) => panic!("{what}: {error}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_flipped_bit_is_refused_or_harmless() {
    let (disk, model) = a_log().await;
    assert!(!refused(&disk.copy(), &model, "undamaged").await);
    let (mut bad, mut good) = (0, 0);
    for file in segment_files(&disk.env(), Path::new(DIR)) {
        let len = disk.open(&file, OpenMode::Read).unwrap().len().unwrap();
        for offset in (0..len).step_by(3) {
            let damaged = disk.copy();
            overwrite(&damaged.env(), &file, offset, |byte| byte[0] ^= 1 << (offset % 8), 1);
            if refused(&damaged, &model, &format!("{} byte {offset}", file.display())).await {
                bad += 1;
            } else {
                good += 1;
            }
        }
    }
    assert!(bad > 2000, "{bad} refused, {good} harmless");
}

#[tokio::test(start_paused = true)]
async fn a_cut_or_missing_file_is_refused_or_harmless() {
    let (disk, model) = a_log().await;
    let files = segment_files(&disk.env(), Path::new(DIR));
    assert!(files.len() > 3);
    for file in &files {
        let damaged = disk.copy();
        damaged.remove_file(file).unwrap();
        assert!(
            refused(&damaged, &model, &format!("{} missing", file.display())).await,
            "{}",
            file.display()
        );
        let len = disk.open(file, OpenMode::Read).unwrap().len().unwrap();
        for cut in (0..len).step_by(41) {
            let damaged = disk.copy();
            damaged.open(file, OpenMode::ReadWrite).unwrap().set_len(cut).unwrap();
            refused(&damaged, &model, &format!("{} cut to {cut}", file.display())).await;
        }
    }
    let last = files.last().unwrap();
    let damaged = disk.copy();
    damaged.open(last, OpenMode::ReadWrite).unwrap().set_len(64).unwrap();
    assert!(refused(&damaged, &model, "the last file is only a header").await);
}

#[tokio::test(start_paused = true)]
async fn the_file_begun_at_the_last_start_cannot_go_missing() {
    let disk = FaultDisk::default();
    for start in 0..3 {
        let wal = Wal::open(&disk.env(), Path::new(DIR), options(Durability::Always)).await.unwrap();
        append(&wal.group(GroupId(0)), entries(GroupId(0), 1, start, start, 50)).await.unwrap().unwrap();
        wal.close().await.unwrap();
    }
    let last = segment_files(&disk.env(), Path::new(DIR)).pop().unwrap();
    disk.remove_file(&last).unwrap();
    assert!(refused(&disk, &Model::new(), "the last file is missing").await);
}
