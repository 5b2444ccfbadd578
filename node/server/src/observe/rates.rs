//! What happens a second, from the last two looks.

use crate::node::Node;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use weir_env::time::sleep;

const EVERY: Duration = Duration::from_secs(1);

/// See the module.
#[derive(Debug, Default)]
pub struct Rates(Mutex<Looks>);

#[derive(Debug, Default)]
struct Looks {
    at: Duration,
    last: [u64; 3],
    rates: [f64; 3],
}

impl Rates {
    /// Commands, bytes read and bytes written a second.
    pub fn get(&self) -> [f64; 3] {
        self.0.lock().rates
    }

    fn look(&self, now: Duration, counts: [u64; 3]) {
        let mut looks = self.0.lock();
        let seconds = now.saturating_sub(looks.at).as_secs_f64();
        if seconds > 0.0 {
            let last = looks.last;
            looks.rates = std::array::from_fn(|i| counts[i].saturating_sub(last[i]) as f64 / seconds);
        }
        (looks.at, looks.last) = (now, counts);
    }
}

/// Looks each second until the node stops.
pub async fn run(node: Arc<Node>) {
    loop {
        let metrics = &node.metrics;
        let commands = metrics.commands().iter().map(|(_, c)| c.latency.count()).sum();
        let counts = [commands, metrics.input_bytes.get(), metrics.output_bytes.get()];
        node.observe.rates.look(node.env.clock.mono(), counts);
        sleep(EVERY).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_what_came_between_two_looks() {
        let rates = Rates::default();
        rates.look(Duration::from_secs(1), [10, 0, 0]);
        rates.look(Duration::from_secs(3), [30, 100, 0]);
        assert_eq!(rates.get(), [10.0, 50.0, 0.0]);
    }
}
