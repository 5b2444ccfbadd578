//! The file `owner`: a log is opened by its owner alone, and a start knows whether power failed since the last one.

use std::path::{Path, PathBuf};

use weir_env::Disk;

use super::crash::{DIR, options};
use super::fault_disk::{Dice, FaultDisk};
use crate::suite::{append, entries, overwrite};
use crate::{Durability, Error, GroupId, Owner, Wal, WalOptions};

const GROUP: GroupId = GroupId(3);

fn owner(name: &str, cluster: &str) -> Owner {
    Owner { name: name.to_owned(), node: name.repeat(20), cluster: cluster.to_owned() }
}

async fn open_as(disk: &FaultDisk, owner: Owner) -> Result<Wal, Error> {
    let options = WalOptions { owner, ..options(Durability::Always) };
    Wal::open(&disk.env(), Path::new(DIR), options).await
}

async fn open_in(disk: &FaultDisk, durability: Durability) -> Wal {
    Wal::open(&disk.env(), Path::new(DIR), options(durability)).await.unwrap()
}

/// A few confirmed entries of a group that has voted.
async fn fill(wal: &Wal, from: u64) {
    let group = wal.group(GROUP);
    group.save_vote("a vote".into()).await.unwrap();
    append(&group, entries(GROUP, 1, from, from + 4, 50)).await.unwrap().unwrap();
}

/// The process dies without a word; what its writer still wants to do fails.
fn kill(disk: &FaultDisk) -> FaultDisk {
    let disk = disk.copy();
    disk.restart_process();
    disk
}

#[tokio::test(start_paused = true)]
async fn a_log_is_opened_by_its_owner_alone() {
    let disk = FaultDisk::default();
    let wal = open_as(&disk, owner("n2", "")).await.unwrap();
    fill(&wal, 0).await;
    wal.close().await.unwrap();
    let wal = open_as(&disk, owner("n2", "c1")).await.unwrap();
    assert!(wal.recovery().clean);
    wal.close().await.unwrap();

    let contents = || {
        disk.read_dir(Path::new(DIR)).unwrap().into_iter().map(|name| disk.read(&Path::new(DIR).join(name)))
    };
    let before: Vec<_> = contents().map(Result::unwrap).collect();
    for (other, cluster) in [("n1", "c1"), ("n2", "c2")] {
        let Err(error @ Error::Foreign { .. }) = open_as(&disk, owner(other, cluster)).await else {
            panic!("{other} of {cluster} got in");
        };
        let text = error.to_string();
        assert!(text.contains("the log of n2 (n2n2n2n2 of cluster c1), not that of"), "{text}");
    }
    assert!(contents().map(Result::unwrap).eq(before), "a foreign log was touched");
    let wal = open_as(&disk, owner("n2", "c1")).await.unwrap();
    assert_eq!(wal.group(GROUP).state().last.unwrap().index, 4);
    wal.close().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_log_without_its_owner_or_with_a_damaged_one_is_refused() {
    let disk = FaultDisk::default();
    open_as(&disk, owner("n2", "c1")).await.unwrap().close().await.unwrap();
    let file = PathBuf::from(DIR).join("owner");
    for byte in 0..disk.read(&file).unwrap().len() as u64 {
        let damaged = disk.copy();
        overwrite(&damaged.env(), &file, byte, |byte| byte[0] ^= 1, 1);
        let refused = open_as(&damaged, owner("n2", "c1")).await.err();
        assert!(matches!(refused, Some(Error::Corrupt { .. })), "byte {byte}: {refused:?}");
    }
    disk.remove_file(&file).unwrap();
    let refused = open_as(&disk, owner("n2", "c1")).await.err();
    assert!(matches!(refused, Some(Error::Corrupt { .. })), "{refused:?}");
}

#[tokio::test(start_paused = true)]
async fn a_power_loss_is_remembered_until_the_group_is_restored() {
    for durability in [Durability::Os, Durability::EverySec] {
        let disk = FaultDisk::default();
        fill(&open_in(&disk, durability).await, 0).await;

        // A dead process alone loses nothing.
        let disk = kill(&disk);
        let wal = open_in(&disk, durability).await;
        assert!(!wal.group(GROUP).tail_may_be_lost());
        fill(&wal, 5).await;

        disk.lose_power(&mut Dice::new(1));
        let wal = open_in(&disk, durability).await;
        assert!(!wal.recovery().clean);
        assert!(wal.group(GROUP).tail_may_be_lost());
        assert!(!wal.group(GroupId(9)).tail_may_be_lost(), "it never confirmed anything");

        // Neither another death nor an orderly end brings back what is lost.
        let disk = kill(&disk);
        let wal = open_in(&disk, durability).await;
        assert!(wal.group(GROUP).tail_may_be_lost());
        wal.close().await.unwrap();
        let wal = open_in(&disk, durability).await;
        assert!(wal.group(GROUP).tail_may_be_lost());

        wal.group(GROUP).tail_restored().await.unwrap();
        assert!(!wal.group(GROUP).tail_may_be_lost());
        wal.close().await.unwrap();
        disk.lose_power(&mut Dice::new(2));
        let wal = open_in(&disk, durability).await;
        assert!(wal.recovery().clean);
        assert!(!wal.group(GROUP).tail_may_be_lost(), "it was closed in order before power failed");
    }
}

#[tokio::test(start_paused = true)]
async fn a_log_that_lost_all_since_it_was_closed_is_not_taken_for_closed() {
    let disk = FaultDisk::default();
    let wal = open_in(&disk, Durability::Os).await;
    fill(&wal, 0).await;
    wal.close().await.unwrap();

    let wal = open_in(&disk, Durability::Os).await;
    append(&wal.group(GROUP), entries(GROUP, 1, 5, 9, 50)).await.unwrap().unwrap();
    for seed in 0..20 {
        let disk = disk.copy();
        disk.lose_power(&mut Dice::new(seed));
        let wal = open_in(&disk, Durability::Os).await;
        assert!(!wal.recovery().clean, "seed {seed}: last {:?}", wal.group(GROUP).state().last);
        assert!(wal.group(GROUP).tail_may_be_lost());
    }
}

#[tokio::test(start_paused = true)]
async fn in_mode_always_a_power_loss_takes_nothing_and_a_start_writes_no_owner() {
    let disk = FaultDisk::default();
    fill(&open_in(&disk, Durability::Always).await, 0).await;
    let file = PathBuf::from(DIR).join("owner");
    let before = disk.read(&file).unwrap();
    disk.lose_power(&mut Dice::new(3));
    let wal = open_in(&disk, Durability::Always).await;
    assert!(!wal.recovery().clean && !wal.group(GROUP).tail_may_be_lost());
    assert_eq!(disk.read(&file).unwrap(), before);
}
