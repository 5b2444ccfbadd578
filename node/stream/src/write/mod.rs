//! The apply half of each command, one file a command.

mod expire;
mod flush;
mod keys;
mod set;
mod slots;
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
