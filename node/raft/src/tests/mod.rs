//! Whole groups in one process: real log on disk, real connections over loopback, a list as the machine.

mod cluster;
mod disk;
mod elections;
mod list;
mod net;
mod peers;
mod power;
mod proposals;
mod reads;
mod snapshots;
