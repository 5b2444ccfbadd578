//! A whole run as data: who does what and what goes wrong when. A seed draws one; a file holds one, so that a run can
//! be cut down and kept.

use rand::{Rng, SeedableRng, rngs::StdRng};
use serde::{Deserialize, Serialize};

use crate::{faults::Fault, planted::Bug, scenarios::Scenario};

/// Format of the files that hold a plan. It rises when a plan of before would be another run, or none.
pub(crate) const FORMAT: u32 = 1;

/// Everything that decides a run. The same plan gives the same bytes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Plan {
    /// [`FORMAT`].
    pub(crate) format: u32,
    pub(crate) scenario: Scenario,
    /// Seeds every random source of the world.
    pub(crate) seed: u64,
    pub(crate) nodes: usize,
    pub(crate) shards: u32,
    pub(crate) keys_per_shard: usize,
    /// How long the clients work before the faults are over.
    pub(crate) work_ms: u64,
    pub(crate) crowd: Crowd,
    /// Settings of the nodes that differ from the simulator's usual ones.
    pub(crate) settings: Vec<(String, String)>,
    /// In the order in which they strike.
    pub(crate) faults: Vec<Planned>,
    /// Calls of all clients together, then they only wait; for cutting a run down.
    pub(crate) calls_max: Option<u64>,
    /// The planted bug.
    pub(crate) bug: Option<Bug>,
}

/// A fault and the time after the start of the work at which it strikes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Planned {
    pub(crate) at_ms: u64,
    pub(crate) fault: Fault,
}

/// How many clients of each kind, and how fast they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Crowd {
    /// XADD alone, in pipelines and in transactions.
    pub(crate) producers: usize,
    /// XADD with IDMP, repeated until it is answered.
    #[serde(default)]
    pub(crate) repeaters: usize,
    /// XREADGROUP, XACK, XCLAIM and XAUTOCLAIM.
    pub(crate) consumers: usize,
    /// XREADGROUP NOACK with BLOCK.
    pub(crate) takers: usize,
    /// XREADGROUP with BLOCK, cut off while they wait.
    pub(crate) quitters: usize,
    /// XRANGE, XREVRANGE, XREAD BLOCK, half of them on followers.
    pub(crate) readers: usize,
    /// XADD and WAIT.
    pub(crate) waiters: usize,
    /// DEL, XGROUP CREATE and DESTROY, XLEN and more, on keys of their own.
    pub(crate) scratchers: usize,
    /// Transactions, references and released entries, on keys of their own.
    #[serde(default)]
    pub(crate) surface: usize,
    /// Which of these most.
    #[serde(default)]
    pub(crate) mix: Mix,
    /// SET with PX and GET, each setting a key of its own.
    #[serde(default)]
    pub(crate) timed: usize,
    /// All but readers of followers know no cluster: they ask any node's plain port.
    #[serde(default)]
    pub(crate) plain: bool,
    /// Longest pause between two calls of a client, in milliseconds.
    pub(crate) pause_ms_max: u64,
}

/// What clients of the surface do most.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Mix {
    /// MULTI and WATCH.
    #[default]
    Transactions,
    /// KEEPREF, DELREF, ACKED.
    References,
    /// XNACK and CLAIM.
    Released,
}

impl Plan {
    /// The seed's own draws for what is planned, apart from those of the world.
    pub(crate) fn rng(seed: u64) -> StdRng {
        StdRng::seed_from_u64(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x706c_616e)
    }

    /// A plan without faults, as most scenarios begin.
    pub(crate) fn calm(scenario: Scenario, seed: u64, rng: &mut StdRng) -> Self {
        Self {
            format: FORMAT,
            scenario,
            seed,
            nodes: 3,
            shards: 3,
            keys_per_shard: rng.random_range(1..=2),
            work_ms: 0,
            crowd: Crowd {
                producers: rng.random_range(1..=3),
                repeaters: 1,
                consumers: rng.random_range(2..=4),
                takers: 1,
                quitters: 1,
                readers: 2,
                waiters: 1,
                scratchers: 2,
                surface: 0,
                mix: Mix::default(),
                timed: 0,
                plain: false,
                pause_ms_max: 140,
            },
            settings: Vec::new(),
            faults: Vec::new(),
            calls_max: None,
            bug: None,
        }
    }

    /// Plans a fault. Work goes on for a while after the last.
    pub(crate) fn strike(&mut self, at_ms: u64, fault: Fault) {
        self.work_ms = self.work_ms.max(at_ms + fault.lasts_ms() + 500);
        self.faults.push(Planned { at_ms, fault });
        self.faults.sort_by_key(|planned| planned.at_ms);
    }

    /// Adds or replaces a setting of the nodes.
    pub(crate) fn set(&mut self, name: &str, value: impl ToString) {
        self.settings.retain(|(known, _)| known != name);
        self.settings.push((name.to_owned(), value.to_string()));
    }

    /// Reads a file's text. An error names the line.
    pub(crate) fn from_json(text: &str) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Head {
            format: Option<u32>,
        }
        let line_of = |field: &str| {
            let name = format!("\"{field}\"");
            text.lines().position(|line| line.contains(&name)).map_or(1, |line| line + 1)
        };
        let head: Head = serde_json::from_str(text).map_err(|error| error.to_string())?;
        match head.format {
            Some(FORMAT) => {}
            Some(other) => {
                let line = line_of("format");
                return Err(format!(
                    "line {line}: a plan of format {other}, this build reads format {FORMAT}"
                ));
            }
            None => return Err(format!("line 1: no \"format\"; this build reads plans of format {FORMAT}")),
        }
        let plan: Self = serde_json::from_str(text).map_err(|error| error.to_string())?;
        for (field, value, most) in [
            ("nodes", plan.nodes, 9),
            ("shards", plan.shards as usize, 64),
            ("keys_per_shard", plan.keys_per_shard, 1000),
        ] {
            if !(1..=most).contains(&value) {
                let line = line_of(field);
                return Err(format!("line {line}: {field} is {value}, it can be 1 to {most}"));
            }
        }
        Ok(plan)
    }

    pub(crate) fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_of_another_format_or_with_impossible_values_is_refused_with_its_line() {
        let text = Plan::calm(Scenario::Smoke, 1, &mut Plan::rng(1)).to_json();
        assert!(Plan::from_json(&text).is_ok());
        for (from, to, wanted) in [
            ("\"format\": 1", "\"format\": 7", "line 2: a plan of format 7, this build reads format 1"),
            ("\"format\": 1,", "", "line 1: no \"format\""),
            ("\"nodes\": 3", "\"nodes\": 0", "line 5: nodes is 0"),
            ("\"nodes\": 3", "\"nodes\": -3", "at line 5"),
            ("\"nodes\"", "\"knots\"", "unknown field `knots`"),
        ] {
            let told = Plan::from_json(&text.replacen(from, to, 1)).unwrap_err();
            assert!(told.contains(wanted), "{to}: {told}");
        }
    }
}
