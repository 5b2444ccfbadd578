//! Rounds of faults against real processes, each node on a network and a disk of its own.
//!
//! Reading order: [`sandbox`] (what the machine allows), [`network`] and [`proxy`] (who reaches whom, and how late), [`world`] (nodes, disks and
//! clocks), [`fault`] (what goes wrong, drawn from the seed), [`round`] (clients, a fault, healing, the check),
//! [`table`] (what is printed), [`planted`] (what has to be caught).

pub mod fault;
pub mod network;
pub mod planted;
pub mod proxy;
pub mod round;
pub mod sandbox;
pub mod table;
pub mod world;
