//! P11: a node stops by itself only for a reason that it was given, and then says what is wrong.

pub(crate) const NAME: &str = "damaged_nodes_stop";

/// Why a node may stop by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Excuse {
    /// One of its files was damaged.
    Damaged,
    /// Its disk was replaced by an empty one.
    Wiped,
    /// A sync fails.
    SyncFails,
}

/// Judges the last words of a node that stopped by itself.
pub(crate) fn check(node: &str, excuse: Option<Excuse>, said: &str) -> Result<(), String> {
    let named = match excuse {
        None => return Err(format!("{node} stopped by itself: {said}")),
        Some(Excuse::Damaged) => {
            ["damaged", "missing", "lost", "holds no", "cannot be read", "not a"].as_slice()
        }
        Some(Excuse::Wiped) => &["lost its data", "claimed", "rejoin"],
        Some(Excuse::SyncFails) => {
            &["cannot sync", "the log failed", "cannot prepare", "cannot fill", "error"]
        }
    };
    if named.iter().any(|word| said.contains(word)) {
        return Ok(());
    }
    Err(format!("{node} stopped ({excuse:?}) and does not say why: {said}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_stops_without_reason_or_without_words_is_seen() {
        assert!(check("n1", None, "file is damaged at byte 7").is_err());
        assert!(check("n1", Some(Excuse::Damaged), "file is damaged at byte 7").is_ok());
        assert!(check("n1", Some(Excuse::Damaged), "ended").is_err());
        assert!(check("n1", Some(Excuse::Wiped), "ended").is_err());
    }
}
