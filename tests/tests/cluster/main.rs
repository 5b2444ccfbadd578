//! Real processes, driven as their users and operators drive them. One program, so that it is linked once.

mod claims;
mod client_basics;
mod client_fan_in;
mod client_producer;
mod client_topic;
mod client_worker;
mod data_directory;
mod documents;
mod handshakes;
mod idempotence;
mod life;
mod persistence;
mod plain;
mod protocol;
mod pubsub;
mod replication;
mod scan;
mod stories;
mod tls;
mod users;
mod watch;
