//! After the faults every pending entry with a live consumer gets acknowledged: its owner reads it again and XACK
//! takes it off the list.

pub(crate) const NAME: &str = "pending_is_settled";

/// Rounds in which all owners come back. More than one, since an owner may be someone else by then.
pub(crate) const ROUNDS_MAX: usize = 4;

/// `left`: entries still pending after `round` rounds.
pub(crate) fn check(key: &str, group: &str, round: usize, left: usize) -> Result<(), String> {
    if left == 0 || round < ROUNDS_MAX {
        return Ok(());
    }
    Err(format!("{key} {group}: {left} entries stay pending, though their owners read and acknowledged them"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_that_stays_pending_is_seen() {
        assert!(check("s1", "g0", 4, 0).is_ok());
        assert!(check("s1", "g0", 1, 3).is_ok());
        assert!(check("s1", "g0", 4, 3).is_err());
    }
}
