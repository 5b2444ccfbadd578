//! After the faults, liveness: as soon as a majority of a shard's replicas runs and reaches each other, it is led and
//! serves within two of the longest election timeouts.

use std::time::Duration;

pub(crate) const NAME: &str = "shards_serve_soon";

/// Election timeouts that it may take.
pub(crate) const ELECTIONS_MAX: u32 = 2;

/// When each shard could be led and when it was.
#[derive(Debug, Default)]
pub(crate) struct Service {
    /// By shard: since when a majority is there.
    since: Vec<Option<Duration>>,
    /// By shard: how long it took.
    took: Vec<Option<Duration>>,
}

impl Service {
    pub(crate) fn new(shards: u32) -> Self {
        let none = vec![None; shards as usize];
        Self { since: none.clone(), took: none }
    }

    /// Whether nothing more has to be looked at.
    pub(crate) fn over(&self) -> bool {
        self.took.iter().all(Option::is_some)
    }

    /// Notes whether a majority of `shard`'s replicas is there at `now` and whether the shard serves.
    pub(crate) fn saw(
        &mut self,
        shard: u32,
        now: Duration,
        majority: bool,
        serves: bool,
        within: Duration,
    ) -> Result<(), String> {
        let at = shard as usize;
        if self.took[at].is_some() {
            return Ok(());
        }
        let since = match (majority, self.since[at]) {
            (false, _) => None,
            (true, None) => Some(now),
            (true, since) => since,
        };
        self.since[at] = since;
        let Some(since) = since else { return Ok(()) };
        if serves {
            self.took[at] = Some(now - since);
        } else if now - since > within {
            return Err(format!(
                "shard {shard}: a majority of its replicas has been there for {} ms and none serves, {} ms are allowed",
                (now - since).as_millis(),
                within.as_millis()
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shard_that_has_its_majority_and_does_not_serve_is_seen() {
        let ms = Duration::from_millis;
        let mut service = Service::new(1);
        assert!(service.saw(0, ms(0), false, false, ms(800)).is_ok());
        assert!(service.saw(0, ms(5000), true, false, ms(800)).is_ok());
        assert!(service.saw(0, ms(5700), true, false, ms(800)).is_ok());
        assert!(!service.over());
        assert!(service.saw(0, ms(5900), true, false, ms(800)).is_err());
        assert!(service.saw(0, ms(5900), true, true, ms(800)).is_ok());
        assert!(service.over());
    }
}
