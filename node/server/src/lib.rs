//! The Weir server: one process of a cluster. Modules stand in the order in which a request travels.

pub mod config;
pub mod error;
pub mod run;

pub mod clients;
pub mod command;
pub mod connection;
mod forward;
pub mod listener;
pub mod route;
pub mod session;
pub mod shard;
pub mod topology;

pub mod acl;
pub mod admin;
pub mod announce;
pub mod balance;
pub mod bootstrap;
pub mod cluster;
pub mod identity;
pub mod info;
pub mod meta;
pub mod metrics;
pub mod node;
pub mod observe;
pub mod pause;
pub mod pubsub;
pub mod settings;
pub mod tls;
