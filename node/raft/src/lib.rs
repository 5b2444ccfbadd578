//! Consensus adapter.
