//! Tests that need whole processes: a harness that starts, kills and pauses three `weir` nodes, a workload of
//! ordinary clients whose every call is written down, and a checker that knows only that history.
//!
//! Reading order: [`process`] (the nodes), [`client`] (what a caller can know about a call), [`history`] (what is
//! written down), [`workload`] (who calls), [`faults`] (what goes wrong meanwhile), [`check`] (what must hold); [`chaos`] does all that in
//! network namespaces, with many more faults.

pub mod certificates;
pub mod chaos;
pub mod check;
pub mod client;
pub mod connection;
pub mod faults;
pub mod history;
pub mod ports;
pub mod process;
pub mod report;
pub mod slots;
pub mod testing;
pub mod workload;
