//! Durable bytes.
