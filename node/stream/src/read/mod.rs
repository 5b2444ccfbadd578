//! The query half of each command, one file a command.

mod keys;
mod xinfo;
mod xpending;
mod xrange;
mod xread;
