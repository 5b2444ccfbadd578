//! P9: once all faults are over, every key can be written again within ten of the longest election timeouts, and soon
//! after that everything was read back and acknowledged.

use std::time::Duration;

pub(crate) const NAME: &str = "heals_in_time";

/// Election timeouts that it may take until every key was written again.
pub(crate) const ELECTIONS_MAX: u32 = 10;

/// What it says when something took until `now` and is not done yet.
pub(crate) fn check(what: &str, from: Duration, now: Duration, within: Duration) -> Result<(), String> {
    if now.saturating_sub(from) <= within {
        return Ok(());
    }
    Err(format!("{what} in {within:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn healing_that_takes_too_long_is_seen() {
        let at = Duration::from_millis;
        assert!(check("it did not heal", at(100), at(4100), at(4000)).is_ok());
        assert!(check("it did not heal", at(100), at(4101), at(4000)).is_err());
    }
}
