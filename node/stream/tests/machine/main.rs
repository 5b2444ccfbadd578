//! What the machine promises, asked from outside: commands in, replies and effects out.

mod entries;
mod groups;
mod idempotence;
mod keyspace;
mod model;
mod random;
mod replicas;
mod snapshots;
mod support;
