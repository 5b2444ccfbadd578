//! Who may do what.
//!
//! * [`user`]: a user as it is agreed on and stored, the rules that change it, and how it is told.
//! * [`facts`]: categories and key access of every command of Redis, so that rules mean the same here.
//! * [`check`]: a user against this build's command table: may it run this, on these keys?
//! * [`directory`]: the users on this node now, and logging in.
//! * [`log`]: what was refused lately.
//! * [`change`]: changing the users of the whole cluster.
//!
//! Users are part of the cluster map, so every node has them, and they survive restarts and snapshots with it.

pub mod change;
pub mod check;
pub mod directory;
pub mod facts;
pub mod log;
pub mod user;

#[cfg(test)]
mod tests;
