//! What the machine promises, asked from outside: commands in, replies and effects out.

mod claims;
mod dump;
mod entries;
mod groups;
mod idempotence;
mod keyspace;
mod model;
mod random;
mod refs;
mod replicas;
mod snapshots;
mod strings;
mod support;
mod watch;
