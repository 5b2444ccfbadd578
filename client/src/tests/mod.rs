//! The client against scripted nodes, on simulated time.

mod calls;
mod producer;
