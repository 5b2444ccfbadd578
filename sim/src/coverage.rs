//! Which faults struck where: a table over many runs, and the cells that must not stay empty.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// How often each fault struck at each point.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Coverage(BTreeMap<String, BTreeMap<String, u64>>);

impl Coverage {
    pub(crate) fn count(&mut self, fault: &str, point: &str) {
        *self.0.entry(fault.to_owned()).or_default().entry(point.to_owned()).or_default() += 1;
    }

    pub(crate) fn add(&mut self, other: &Self) {
        for (fault, points) in &other.0 {
            for (point, count) in points {
                *self.0.entry(fault.clone()).or_default().entry(point.clone()).or_default() += count;
            }
        }
    }

    fn at(&self, fault: &str, point: &str) -> u64 {
        self.0.get(fault).and_then(|points| points.get(point)).copied().unwrap_or(0)
    }

    /// The table: one row a fault, one column a point.
    pub(crate) fn table(&self) -> String {
        let mut points: Vec<&String> = self.0.values().flat_map(BTreeMap::keys).collect();
        points.sort_unstable();
        points.dedup();
        let first = self.0.keys().map(String::len).max().unwrap_or(0).max(5);
        let mut out = format!("{:first$}", "fault");
        for point in &points {
            out.push_str(&format!("  {point}"));
        }
        out.push('\n');
        for fault in self.0.keys() {
            out.push_str(&format!("{fault:first$}"));
            for point in &points {
                let count = self.at(fault, point);
                let shown = if count == 0 { "-".to_owned() } else { count.to_string() };
                out.push_str(&format!("  {shown:>width$}", width = point.len()));
            }
            out.push('\n');
        }
        out
    }

    /// Cells that can be reached and were not.
    pub(crate) fn missing(&self) -> Vec<String> {
        reachable()
            .filter(|(fault, point)| self.at(fault, point) == 0)
            .map(|(fault, point)| format!("{fault} at {point}"))
            .collect()
    }
}

/// Faults that strike between two steps.
const BETWEEN: [&str; 32] = [
    "bridge (held)",
    "bridge (lost)",
    "clients cut",
    "clock back",
    "clock forward",
    "cut from clients (held)",
    "cut from clients (lost)",
    "cut from nodes (held)",
    "cut from nodes (lost)",
    "deaf (lost)",
    "delay",
    "disk full",
    "file cut short",
    "flipped bit",
    "install cut",
    "isolated (held)",
    "isolated (lost)",
    "kill all",
    "kill follower",
    "kill leader",
    "kill node",
    "mute (lost)",
    "pause follower",
    "pause leader",
    "pause node",
    "power loss of all",
    "power off follower",
    "power off leader",
    "power off node",
    "slow disk",
    "transfer",
    "wiped disk",
];

/// Points inside a node's disk work at which a process or a machine dies.
const INSIDE: [&str; 11] = [
    "log create",
    "log rename",
    "log resize",
    "log sync",
    "log sync directory",
    "log write",
    "snapshot create",
    "snapshot rename",
    "snapshot sync",
    "snapshot sync directory",
    "snapshot write",
];

/// Faults that die at such a point.
const DYING: [&str; 4] = ["kill follower", "kill leader", "power off follower", "power off leader"];

fn reachable() -> impl Iterator<Item = (&'static str, &'static str)> {
    let between = BETWEEN.iter().map(|fault| (*fault, "between steps"));
    let inside = DYING.iter().flat_map(|fault| INSIDE.iter().map(|point| (*fault, *point)));
    between.chain(inside).chain([("failed sync", "log sync")])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_cell_that_can_be_reached_is_named() {
        let mut coverage = Coverage::default();
        for (fault, point) in reachable() {
            coverage.count(fault, point);
        }
        assert_eq!(coverage.missing(), Vec::<String>::new());
        let mut rest = Coverage::default();
        for (fault, point) in reachable().filter(|cell| *cell != ("kill leader", "log sync")) {
            rest.count(fault, point);
        }
        assert_eq!(rest.missing(), ["kill leader at log sync"]);
        rest.add(&coverage);
        assert_eq!(rest.missing(), Vec::<String>::new());
        assert_eq!(rest.table().lines().count(), 34);
    }
}
