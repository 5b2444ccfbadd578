//! A whole server without a process around it. One program, so that it is linked once.

mod acl;
mod connection;
mod founding;
mod observe;
mod pubsub;
mod refusals;
mod waits;
