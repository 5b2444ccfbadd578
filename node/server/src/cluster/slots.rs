//! CLUSTER SLOTS and CLUSTER SHARDS.
//!
//! Some clients give a node the role of its first appearance in SLOTS, and a Weir node leads one shard and follows
//! others. So every leader first has a row of its own (the first slot of its first range, no replicas); the rest of
//! the ranges, with followers, comes after.
//!
//! Slots whose leader is being replaced keep their row, as in Redis: a client that finds none for a slot may fail
//! without asking again. Who stands first there holds commands until there is a leader.

use super::bulk;
use crate::meta::{NodeEntry, ShardEntry};
use crate::topology::View;
use weir_raft::NodeId;
use weir_stream::{Reply, Slot, SlotRange};

/// CLUSTER SLOTS.
pub fn slots(view: &View, tls: bool) -> Reply {
    let mut served: Vec<(SlotRange, &NodeEntry, &ShardEntry)> = view
        .map
        .shards
        .iter()
        .filter_map(|shard| Some((spokesman(view, shard)?, shard)))
        .flat_map(|(leader, shard)| shard.slots.iter().map(move |range| (*range, leader, shard)))
        .collect();
    let port = |node: &NodeEntry| i64::from(view.map.client_port(node, tls));
    served.sort_by_key(|(range, ..)| *range);
    let (mut first_rows, mut rows, mut seen) = (Vec::new(), Vec::new(), Vec::<NodeId>::new());
    for (mut range, leader, shard) in served {
        if !seen.contains(&leader.number) {
            seen.push(leader.number);
            first_rows.push(row(SlotRange { first: range.first, last: range.first }, leader, &[], &port));
            if range.first == range.last {
                continue;
            }
            range.first = Slot(range.first.0 + 1);
        }
        rows.push(row(range, leader, &followers(view, shard, leader.number), &port));
    }
    first_rows.append(&mut rows);
    Reply::Array(first_rows)
}

/// Who is named for a shard: its leader; while it has none that can be reached, this node or another that may follow.
fn spokesman<'v>(view: &'v View, shard: &ShardEntry) -> Option<&'v NodeEntry> {
    let leader = view.leader(shard.id).filter(|node| view.reachable(node.number));
    leader.or_else(|| {
        let me = shard.replicas.iter().find(|n| **n == view.me);
        let other = shard.replicas.iter().find(|n| view.reachable(**n));
        view.map.node(*me.or(other).or_else(|| shard.replicas.first())?)
    })
}

fn row(
    range: SlotRange,
    leader: &NodeEntry,
    followers: &[&NodeEntry],
    port: &dyn Fn(&NodeEntry) -> i64,
) -> Reply {
    let node = |n: &NodeEntry| {
        Reply::Array(vec![
            bulk(n.host.clone()),
            Reply::Int(port(n)),
            bulk(n.id.clone()),
            Reply::Array(Vec::new()),
        ])
    };
    let bounds = [Reply::Int(i64::from(range.first.0)), Reply::Int(i64::from(range.last.0))];
    Reply::Array(bounds.into_iter().chain([node(leader)]).chain(followers.iter().map(|n| node(n))).collect())
}

fn followers<'v>(view: &'v View, shard: &ShardEntry, leader: NodeId) -> Vec<&'v NodeEntry> {
    let others = shard.replicas.iter().filter(|n| **n != leader && view.reachable(**n));
    others.filter_map(|n| view.map.node(*n)).collect()
}

/// CLUSTER SHARDS.
pub fn shards(view: &View) -> Reply {
    let pair = |name: &str, value: Reply| (bulk(name), value);
    let shard = |shard: &ShardEntry| {
        let leader = view.leadership(shard.id).leader;
        // The leader first, as clients expect.
        let mut numbers = shard.replicas.clone();
        numbers.sort_by_key(|n| Some(*n) != leader);
        let nodes = numbers.iter().filter_map(|n| view.map.node(*n)).map(|node| {
            let role = if Some(node.number) == leader { "master" } else { "replica" };
            let health = if view.reachable(node.number) { "online" } else { "fail" };
            let tls_port = view.map.tls_ports.get(&node.number).copied();
            let mut fields = vec![pair("id", bulk(node.id.clone()))];
            if tls_port != Some(node.port) {
                fields.push(pair("port", Reply::Int(i64::from(node.port))));
            }
            if let Some(tls_port) = tls_port {
                fields.push(pair("tls-port", Reply::Int(i64::from(tls_port))));
            }
            fields.extend([
                pair("ip", bulk(node.host.clone())),
                pair("endpoint", bulk(node.host.clone())),
                pair("role", bulk(role)),
                pair("replication-offset", Reply::Int(0)),
                pair("health", bulk(health)),
            ]);
            Reply::Map(fields)
        });
        let bounds = shard.slots.iter().flat_map(|r| [r.first, r.last]);
        Reply::Map(vec![
            pair("slots", Reply::Array(bounds.map(|slot| Reply::Int(i64::from(slot.0))).collect())),
            pair("nodes", Reply::Array(nodes.collect())),
        ])
    };
    Reply::Array(view.map.shards.iter().map(shard).collect())
}

/// Number of slots of a range.
pub fn len(range: &SlotRange) -> u32 {
    u32::from(range.last.0 - range.first.0) + 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::tests::view;
    use crate::shard::ShardId;
    use crate::topology::Leadership;

    /// Rows as (first, last, ports).
    fn rows(reply: Reply) -> Vec<(i64, i64, Vec<i64>)> {
        let Reply::Array(rows) = reply else { panic!() };
        let int = |r: &Reply| if let Reply::Int(n) = r { *n } else { panic!("{r:?}") };
        rows.iter()
            .map(|row| {
                let Reply::Array(parts) = row else { panic!() };
                let ports = parts[2..]
                    .iter()
                    .map(|node| if let Reply::Array(n) = node { int(&n[1]) } else { panic!() });
                (int(&parts[0]), int(&parts[1]), ports.collect())
            })
            .collect()
    }

    #[test]
    fn every_leader_first_appears_as_a_leader_and_every_slot_stands_once() {
        let rows = rows(slots(&view(1, &[2, 3, 1]), false));
        assert_eq!(
            rows,
            [
                (0, 0, vec![7002]),
                (5461, 5461, vec![7003]),
                (10922, 10922, vec![7001]),
                (1, 5460, vec![7002, 7001, 7003]),
                (5462, 10921, vec![7003, 7002, 7001]),
                (10923, 16383, vec![7001, 7003, 7002]),
            ]
        );
    }

    #[test]
    fn a_leader_of_two_shards_has_one_first_row() {
        let rows = rows(slots(&view(1, &[2, 2, 1]), false));
        assert_eq!(rows[..2], [(0, 0, vec![7002]), (10922, 10922, vec![7001])]);
        assert_eq!(rows[3], (5461, 10921, vec![7002, 7003, 7001]));
        assert_eq!(rows.iter().map(|(first, last, _)| last - first + 1).sum::<i64>(), 16384);
    }

    #[test]
    fn slots_whose_leader_does_not_answer_keep_a_row_with_a_node_that_does() {
        let topology = crate::cluster::tests::topology(1);
        let heard = |leader| Leadership { term: 4, leader: Some(leader), serving: Some(true) };
        topology.observe(ShardId(0), heard(2), 2);
        topology.observe(ShardId(1), heard(3), 3);
        for _ in 0..10 {
            topology.missed(2);
        }
        let rows = rows(slots(&topology.view(), false));
        assert_eq!(rows.iter().map(|(first, last, _)| last - first + 1).sum::<i64>(), 16384, "{rows:?}");
        let named =
            |slot: i64| rows.iter().find(|(first, last, _)| (*first..=*last).contains(&slot)).unwrap().2[0];
        assert_eq!((named(5), named(7000)), (7001, 7003));
        // Of the third shard nobody ever told who leads it.
        assert_eq!(named(16383), 7001);
        assert!(rows.iter().all(|(_, _, ports)| !ports.contains(&7002)), "{rows:?}");
    }

    #[test]
    fn shards_show_the_leader_first_as_master() {
        let Reply::Array(shards) = shards(&view(1, &[2, 3, 1])) else { panic!() };
        let Reply::Map(first) = &shards[0] else { panic!() };
        let Reply::Array(nodes) = &first[1].1 else { panic!() };
        let Reply::Map(node) = &nodes[0] else { panic!() };
        assert_eq!((node[1].1.clone(), node[4].1.clone()), (Reply::Int(7002), bulk("master")));
        assert_eq!(nodes.len(), 3);
    }
}
