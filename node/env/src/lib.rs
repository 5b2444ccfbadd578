//! The edges of the process.
