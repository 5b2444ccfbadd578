//! The apply half of each command, one file a command.

mod copy;
mod expire;
mod flush;
mod keys;
mod restore;
pub(crate) mod set;
mod slots;
pub(crate) mod strings;
mod xack;
mod xadd;
mod xautoclaim;
mod xcfgset;
mod xclaim;
mod xdel;
mod xdelex;
mod xgroup;
mod xnack;
mod xreadgroup;
mod xsetid;
mod xtrim;
