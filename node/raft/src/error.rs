//! What can go wrong, sorted by what the caller can do about it.

use crate::NodeId;

/// Errors of the consensus adapter.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The peer could not be reached; the call may have been carried out if it was sent at all.
    #[error("peer {peer} is unreachable: {reason}")]
    Unreachable {
        /// Who was called: a node number, or an address before numbers are known.
        peer: String,
        /// What the transport said.
        reason: String,
    },
    /// No connection to the peer could be made: nothing was sent.
    #[error("peer {peer} is not connected: {reason}")]
    NotConnected {
        /// Who was called.
        peer: String,
        /// What the transport said.
        reason: String,
    },
    /// No answer in time; the call may have been carried out.
    #[error("peer {peer} did not answer in {millis} ms")]
    Timeout {
        /// Who was called.
        peer: String,
        /// How long was waited, in milliseconds.
        millis: u64,
    },
    /// The peer refused the call because it is meant for another cluster or node.
    #[error("peer {peer} refused the call: {reason}")]
    Refused {
        /// Who was called.
        peer: String,
        /// The peer's words.
        reason: String,
    },
    /// The peer carried the call out and answered with an error.
    #[error("peer {peer} answered: {reason}")]
    Remote {
        /// Who was called.
        peer: String,
        /// The peer's words.
        reason: String,
    },
    /// The peer does not have this group (yet).
    #[error("peer {peer} has no group {group}")]
    NoGroup {
        /// Who was called.
        peer: String,
        /// The group's number.
        group: u32,
    },
    /// No address is known for the node.
    #[error("no address is known for node {0}")]
    NoAddress(NodeId),
    /// This node does not lead the group.
    #[error("not the leader")]
    NotLeader {
        /// The node believed to lead.
        leader: Option<NodeId>,
    },
    /// The group has stopped, on request or because its storage failed.
    #[error("the group has stopped: {0}")]
    Stopped(String),
    /// Reading or writing the log or a snapshot failed.
    #[error("storage: {0}")]
    Storage(String),
    /// The request cannot be carried out in this state; the text says why.
    #[error("{0}")]
    Invalid(String),
}
