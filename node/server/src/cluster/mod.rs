//! CLUSTER, in the shapes that Redis' clients read.
//!
//! * [`lines`]: one line a node: NODES, REPLICAS, and the role that INFO, ROLE and HELLO tell.
//! * [`slots`]: SLOTS and SHARDS.
//!
//! Everything but the key counts is computed from one [`crate::topology::View`], so nodes that have heard the
//! same answer the same.

pub mod lines;
mod slot_stats;
pub mod slots;

use crate::node::Node;
use crate::shard::{Answer, ReadMode};
use crate::topology::View;
use bytes::Bytes;
use std::sync::Arc;
use weir_stream::{Query, Refusal, Reply, SLOT_COUNT, Slot, key_slot};

/// Runs `args` (with `CLUSTER` first) and answers. A client that speaks TLS is told TLS ports.
pub async fn execute(node: &Arc<Node>, args: &[Bytes], tls: bool) -> Reply {
    let Some(word) = args.get(1) else { return error("ERR wrong number of arguments for 'cluster' command") };
    let rest = &args[2..];
    let view = node.topology.view();
    let name = String::from_utf8_lossy(word).to_ascii_lowercase();
    match name.as_str() {
        "slots" => slots::slots(&view, tls),
        "shards" => slots::shards(&view),
        "nodes" => bulk(lines::nodes(&view, node.env.clock.wall_ms(), tls)),
        "replicas" | "slaves" => replicas(&view, &rest[0], node.env.clock.wall_ms(), tls),
        "info" => bulk(info(&view)),
        "myid" => bulk(node.identity.id.clone()),
        "myshardid" => bulk(lines::shard_hex(&view, view.me)),
        "links" => links(node, &view),
        "keyslot" => Reply::Int(i64::from(key_slot(&rest[0]).0)),
        "countkeysinslot" => count_keys(node, &rest[0]).await,
        "getkeysinslot" => get_keys(node, &rest[0], &rest[1]).await,
        "slot-stats" => slot_stats::answer(node, rest),
        // Every node has what was agreed on disk, and an epoch that others cannot have.
        "bumpepoch" => Reply::Line(format!("STILL {}", lines::config_epoch(&view, view.me)).into()),
        "saveconfig" => Reply::Ok,
        "count-failure-reports" => failure_reports(&view, &rest[0]),
        "help" => help(),
        refused => error(why_not(refused)),
    }
}

fn error(text: impl Into<String>) -> Reply {
    Reply::Error(Refusal::Text(text.into()))
}

fn bulk(text: impl Into<String>) -> Reply {
    Reply::Bulk(Bytes::from(text.into()))
}

fn integer(arg: &[u8]) -> Option<i64> {
    std::str::from_utf8(arg).ok()?.parse().ok()
}

const NOT_AN_INTEGER: &str = "ERR value is not an integer or out of range";

async fn count_keys(node: &Arc<Node>, slot: &[u8]) -> Reply {
    let Some(slot) = integer(slot) else { return error(NOT_AN_INTEGER) };
    match slot_number(slot) {
        None => error("ERR Invalid slot"),
        Some(slot) => ask_leader(node, slot, Query::CountKeysInSlot { slot }, Reply::Int(0)).await,
    }
}

async fn get_keys(node: &Arc<Node>, slot: &[u8], count: &[u8]) -> Reply {
    let (Some(slot), Some(count)) = (integer(slot), integer(count)) else { return error(NOT_AN_INTEGER) };
    match (slot_number(slot), u64::try_from(count)) {
        (Some(slot), Ok(count)) => {
            ask_leader(node, slot, Query::GetKeysInSlot { slot, count }, Reply::Array(Vec::new())).await
        }
        _ => error("ERR Invalid slot or number of keys"),
    }
}

fn slot_number(slot: i64) -> Option<Slot> {
    u16::try_from(slot).ok().filter(|slot| *slot < SLOT_COUNT).map(Slot)
}

/// Asks the local shard if it leads the slot; a node knows nothing of the keys of others.
async fn ask_leader(node: &Arc<Node>, slot: Slot, query: Query, otherwise: Reply) -> Reply {
    let shard = node.topology.view().shard_of(slot).and_then(|s| node.shards.get(s.id));
    match shard.filter(|shard| shard.serving()) {
        None => otherwise,
        Some(shard) => match shard.read(query, ReadMode::Leader, None, None).await {
            Answer::Reply { reply, .. } => reply,
            _ => otherwise,
        },
    }
}

/// How many nodes report this one as failing: a node knows its own opinion.
fn failure_reports(view: &View, id: &[u8]) -> Reply {
    match view.map.node_by_id(id) {
        Some(node) => Reply::Int(i64::from(!view.reachable(node.number))),
        None => error(format!("ERR Unknown node {}", String::from_utf8_lossy(id))),
    }
}

/// Why a command that would change the cluster does nothing.
fn why_not(name: &str) -> String {
    let why = match name {
        "failover" => {
            "leadership is per shard: a node that stops hands it over, and one that fails is replaced in an election"
        }
        "meet" | "forget" | "reset" | "replicate" => {
            "the nodes of a cluster are those of --cluster, agreed on when it was founded"
        }
        "set-config-epoch" => "epochs are terms of Raft",
        _ => "slots are given to shards when the cluster is founded",
    };
    format!("ERR CLUSTER {} is not supported: {why}", name.to_ascii_uppercase())
}

fn replicas(view: &View, id: &[u8], now_ms: u64, tls: bool) -> Reply {
    let Some(master) = view.map.node_by_id(id) else {
        return error(format!("ERR Unknown node {}", String::from_utf8_lossy(id)));
    };
    if !lines::is_master(view, master.number) {
        return error("ERR The specified node is not a master");
    }
    let of_master = |n: &&crate::meta::NodeEntry| lines::master_of(view, n.number) == Some(master.number);
    let nodes = view.map.nodes.iter().filter(of_master);
    Reply::Array(nodes.map(|n| bulk(lines::line(view, n, now_ms, tls))).collect())
}

fn info(view: &View) -> String {
    let assigned = view.map.shards.iter().flat_map(|s| &s.slots).map(slots::len).sum::<u32>();
    let live = view.map.shards.iter().filter(|s| view.live_leader(s.id).is_some());
    let ok = live.flat_map(|s| &s.slots).map(slots::len).sum::<u32>();
    let masters = view.map.nodes.iter().filter(|n| view.led_by(n.number).next().is_some()).count();
    let epoch = view.map.shards.iter().map(|s| view.leadership(s.id).term).max().unwrap_or(0);
    let my_epoch = lines::config_epoch(view, view.me);
    let state = if ok == u32::from(SLOT_COUNT) { "ok" } else { "fail" };
    [
        format!("cluster_state:{state}"),
        format!("cluster_slots_assigned:{assigned}"),
        format!("cluster_slots_ok:{ok}"),
        "cluster_slots_pfail:0".to_owned(),
        format!("cluster_slots_fail:{}", assigned - ok),
        format!("cluster_known_nodes:{}", view.map.nodes.len()),
        format!("cluster_size:{masters}"),
        format!("cluster_current_epoch:{epoch}"),
        format!("cluster_my_epoch:{my_epoch}"),
        "cluster_stats_messages_sent:0".to_owned(),
        "cluster_stats_messages_received:0".to_owned(),
        "total_cluster_links_buffer_limit_exceeded:0".to_owned(),
        String::new(),
    ]
    .join("\r\n")
}

fn links(node: &Node, view: &View) -> Reply {
    let created = node.env.clock.wall_ms().saturating_sub(node.uptime().as_millis() as u64);
    let pair = |name: &str, value: Reply| (bulk(name), value);
    let link = |direction: &str, id: &str| {
        Reply::Map(vec![
            pair("direction", bulk(direction)),
            pair("node", bulk(id)),
            pair("create-time", Reply::Int(created as i64)),
            pair("events", bulk("rw")),
            pair("send-buffer-allocated", Reply::Int(0)),
            pair("send-buffer-used", Reply::Int(0)),
        ])
    };
    let others = view.map.nodes.iter().filter(|n| n.number != view.me && view.reachable(n.number));
    Reply::Array(others.flat_map(|n| [link("to", &n.id), link("from", &n.id)]).collect())
}

fn help() -> Reply {
    let lines: [&'static str; 35] = [
        "CLUSTER <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
        "BUMPEPOCH",
        "    Answers the epoch, which is always agreed on.",
        "COUNT-FAILURE-REPORTS <node-id>",
        "    1 if this node cannot reach <node-id>.",
        "COUNTKEYSINSLOT <slot>",
        "    Number of keys in <slot>, as far as this node leads it.",
        "GETKEYSINSLOT <slot> <count>",
        "    Up to <count> keys of <slot>, as far as this node leads it.",
        "INFO",
        "    State of the cluster as this node sees it.",
        "KEYSLOT <key>",
        "    The hash slot of <key>.",
        "LINKS",
        "    Connections between this node and the others.",
        "MYID",
        "    Identity of this node.",
        "MYSHARDID",
        "    Identity of the first shard that this node leads or follows.",
        "NODES",
        "    One line a node: identity, address, role, slots.",
        "REPLICAS <node-id>",
        "    The lines of the replicas of <node-id>.",
        "SHARDS",
        "    Each shard with its slots and nodes.",
        "SLAVES <node-id>",
        "    As REPLICAS.",
        "SAVECONFIG",
        "    Accepted: the map is on disk.",
        "SLOT-STATS SLOTSRANGE <first> <last> | ORDERBY key-count [LIMIT <n>] [ASC|DESC]",
        "    Keys of the slots that this node leads.",
        "SLOTS",
        "    Slot ranges with the nodes that serve them, leaders first.",
        "HELP",
        "    This list.",
    ];
    Reply::Array(lines.into_iter().map(Reply::Simple).collect())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::meta::{ClusterMap, NodeEntry, initial_shards};
    use crate::shard::ShardId;
    use crate::topology::{Leadership, Topology};
    use weir_raft::NodeId;

    /// Three nodes, three shards; `leaders[i]` leads shard i in term 10 + i.
    pub(crate) fn view(me: NodeId, leaders: &[NodeId]) -> Arc<View> {
        let topology = topology(me);
        for (i, leader) in leaders.iter().enumerate() {
            let heard = Leadership { term: 10 + i as u64, leader: Some(*leader), serving: Some(true) };
            topology.observe(ShardId(i as u32), heard, *leader);
        }
        topology.view()
    }

    pub(crate) fn topology(me: NodeId) -> Topology {
        let topology = Topology::new(me);
        let hex =
            |n: u64, digit: char| format!("{n}").chars().cycle().take(39).chain([digit]).collect::<String>();
        topology.set_map(Arc::new(ClusterMap {
            epoch: 1,
            cluster_id: "c".repeat(40),
            nodes: (1..=3)
                .map(|number| NodeEntry {
                    number,
                    name: format!("n{number}"),
                    id: hex(number, 'a'),
                    host: "127.0.0.1".into(),
                    peer_host: "127.0.0.1".into(),
                    port: 7000 + number as u16,
                })
                .collect(),
            shards: initial_shards(&[1, 2, 3], 3, (1..=3).map(|i| hex(i, 'f')).collect()),
            ..ClusterMap::default()
        }));
        topology
    }

    #[test]
    fn info_counts_slots_with_a_live_leader() {
        let text = info(&view(1, &[1, 2, 3]));
        for line in ["cluster_state:ok", "cluster_slots_ok:16384", "cluster_known_nodes:3", "cluster_size:3"]
        {
            assert!(text.contains(line), "{text}");
        }
        let text = info(&view(1, &[1, 2]));
        assert!(text.contains("cluster_state:fail") && text.contains("cluster_slots_fail:5462"), "{text}");
    }

    #[test]
    fn replicas_are_those_whose_line_follows_the_node() {
        let view = view(1, &[1, 1, 3]);
        let ids = |reply: Reply| match reply {
            Reply::Array(lines) => lines.len(),
            other => panic!("{other:?}"),
        };
        assert_eq!(ids(replicas(&view, view.map.nodes[0].id.as_bytes(), 0, false)), 1);
        assert_eq!(ids(replicas(&view, view.map.nodes[2].id.as_bytes(), 0, false)), 0);
        let text = |reply: Reply| match reply {
            Reply::Error(refusal) => refusal.to_string(),
            other => panic!("{other:?}"),
        };
        assert_eq!(
            text(replicas(&view, view.map.nodes[1].id.as_bytes(), 0, false)),
            "ERR The specified node is not a master"
        );
        assert_eq!(text(replicas(&view, b"abc", 0, false)), "ERR Unknown node abc");
    }
}
