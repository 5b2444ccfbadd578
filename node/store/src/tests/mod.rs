mod crash;
mod damage;
mod fault_disk;
mod owner;
mod space;

use std::path::Path;

use fault_disk::FaultDisk;

use crate::suite;

#[tokio::test]
async fn the_real_disk_passes_the_suite() {
    let dir = tempfile::tempdir().unwrap();
    suite::run(&weir_env::Env::system(), dir.path()).await;
}

#[tokio::test(start_paused = true)]
async fn the_fault_disk_without_faults_passes_the_suite() {
    suite::run(&FaultDisk::default().env(), Path::new("/data")).await;
}
