//! One line a node. A node may lead some shards and follow others, Redis knows one role: *master* with all its
//! slots if it leads any shard, else *slave* of the leader of its lowest shard.

use crate::config::PEER_PORT_OFFSET;
use crate::meta::{NodeEntry, ShardEntry};
use crate::topology::View;
use weir_raft::NodeId;
use weir_stream::SlotRange;

/// CLUSTER NODES.
pub fn nodes(view: &View, now_ms: u64, tls: bool) -> String {
    view.map.nodes.iter().map(|node| line(view, node, now_ms, tls) + "\n").collect()
}

/// The line of one node, without its end.
pub fn line(view: &View, node: &NodeEntry, now_ms: u64, tls: bool) -> String {
    let mut flags = Vec::new();
    if node.number == view.me {
        flags.push("myself");
    }
    let master = master_of(view, node.number);
    flags.push(if is_master(view, node.number) { "master" } else { "slave" });
    let reachable = view.reachable(node.number);
    if !reachable {
        flags.push("fail");
    }
    let pong = if node.number == view.me { 0 } else { now_ms };
    let mut text = format!(
        "{} {}:{}@{} {} {} 0 {pong} {} {}",
        node.id,
        node.host,
        view.map.client_port(node, tls),
        node.port + PEER_PORT_OFFSET,
        flags.join(","),
        master.and_then(|m| view.map.node(m)).map_or("-", |m| m.id.as_str()),
        config_epoch(view, node.number),
        if reachable { "connected" } else { "disconnected" },
    );
    for range in led_ranges(view, node.number) {
        text.push(' ');
        text.push_str(&range_text(range));
    }
    text
}

fn range_text(range: SlotRange) -> String {
    match (range.first.0, range.last.0) {
        (first, last) if first == last => first.to_string(),
        (first, last) => format!("{first}-{last}"),
    }
}

/// Whether the line of `node` says master: it leads a shard, or has no replica of any.
pub fn is_master(view: &View, node: NodeId) -> bool {
    view.led_by(node).next().is_some() || lowest_replica(view, node).is_none()
}

/// The node that the line of `node` names as its master.
pub fn master_of(view: &View, node: NodeId) -> Option<NodeId> {
    if is_master(view, node) {
        return None;
    }
    view.leadership(lowest_replica(view, node)?.id).leader
}

/// The shard that a node stands for in replies with room for one: the lowest it leads, else the lowest it follows.
pub fn shard_of(view: &View, node: NodeId) -> Option<&ShardEntry> {
    view.led_by(node).next().or_else(|| lowest_replica(view, node))
}

/// CLUSTER MYSHARDID.
pub fn shard_hex(view: &View, node: NodeId) -> String {
    shard_of(view, node).map(|s| s.hex.clone()).unwrap_or_default()
}

/// The term of the shard that the node stands for.
pub fn config_epoch(view: &View, node: NodeId) -> u64 {
    shard_of(view, node).map_or(0, |s| view.leadership(s.id).term)
}

fn lowest_replica(view: &View, node: NodeId) -> Option<&ShardEntry> {
    view.map.shards.iter().find(|s| s.replicas.contains(&node))
}

/// All slots that a node leads, as few ranges as possible, in order.
pub fn led_ranges(view: &View, node: NodeId) -> Vec<SlotRange> {
    let mut ranges: Vec<SlotRange> = view.led_by(node).flat_map(|s| s.slots.iter().copied()).collect();
    ranges.sort();
    let mut merged: Vec<SlotRange> = Vec::new();
    for range in ranges {
        match merged.last_mut() {
            Some(last) if last.last.0 + 1 == range.first.0 => last.last = range.last,
            _ => merged.push(range),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use crate::cluster::tests::{topology, view};

    #[test]
    fn every_node_has_one_line_and_leaders_are_masters_with_their_slots() {
        let text = super::nodes(&view(1, &[1, 2, 3]), 5, false);
        let lines: Vec<&str> = text.lines().collect();
        let id = |n: u64| format!("{n}").repeat(39) + "a";
        assert_eq!(
            lines[0],
            format!("{} 127.0.0.1:7001@17001 myself,master - 0 0 10 connected 0-5460", id(1))
        );
        assert_eq!(lines[2], format!("{} 127.0.0.1:7003@17003 master - 0 5 12 connected 10922-16383", id(3)));
        assert_eq!(lines.len(), 3);
    }

    #[test]
    fn a_node_that_leads_nothing_is_slave_of_the_leader_of_its_lowest_shard() {
        let text = super::nodes(&view(2, &[3, 1, 3]), 5, false);
        let lines: Vec<&str> = text.lines().collect();
        let id = |n: u64| format!("{n}").repeat(39) + "a";
        assert!(lines[1].contains(&format!(" myself,slave {} 0 0 10 connected", id(3))), "{text}");
        assert!(lines[2].ends_with(" connected 0-5460 10922-16383"), "{text}");
    }

    #[test]
    fn neighbouring_shards_of_one_leader_are_one_range() {
        let text = super::nodes(&view(1, &[1, 1, 1]), 5, false);
        assert!(text.lines().next().unwrap().ends_with(" 0-16383"), "{text}");
    }

    #[test]
    fn a_node_out_of_reach_is_shown_as_failed() {
        let topology = topology(1);
        topology.missed(2);
        topology.missed(2);
        let text = super::nodes(&topology.view(), 5, false);
        assert!(text.lines().nth(1).unwrap().contains(" slave,fail - 0 5 0 disconnected"), "{text}");
    }
}
