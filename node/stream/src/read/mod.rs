//! The query half of each command, one file a command.

mod keys;
mod scan;
mod xinfo;
mod xpending;
mod xrange;
mod xread;

pub use scan::scan_position;
