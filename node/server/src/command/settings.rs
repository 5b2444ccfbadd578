//! CONFIG: what is set, and changing it while the node runs.

use super::acl::{self, AclCall};
use super::{error, glob};
use crate::acl::user::DEFAULT;
use crate::config::Durability;
use crate::info;
use crate::node::Node;
use bytes::Bytes;
use std::sync::Arc;
use weir_stream::Reply;

/// What tools ask and tell a Redis, and which only has one value here, with the reason.
const FIXED: [(&str, &str, &str); 9] = [
    ("appendonly", "yes", "every write goes through a log"),
    ("cluster-enabled", "yes", "can't set immutable config"),
    ("databases", "1", "can't set immutable config"),
    ("latency-tracking", "yes", "latencies are always counted"),
    ("list-max-listpack-size", "-2", "there are no lists"),
    ("maxmemory-policy", "noeviction", "nothing is evicted: writes that add are refused instead"),
    ("notify-keyspace-events", "", "there are no keyspace notifications: read a stream with XREAD BLOCK"),
    ("replica-read-only", "yes", "followers never write"),
    ("save", "", "snapshots follow from snapshot-log-bytes"),
];

fn bulk(text: impl Into<String>) -> Reply {
    Reply::Bulk(Bytes::from(text.into()))
}

fn synced(durability: Durability) -> &'static str {
    match durability {
        Durability::Always => "always",
        Durability::EverySec => "everysec",
        Durability::Os => "no",
    }
}

/// CONFIG GET.
pub(super) fn get(node: &Node, patterns: &[Bytes], whole: bool) -> Reply {
    let shown = |(key, value): (&'static str, String)| (key, node.settings.show(key).unwrap_or(value));
    let fixed = FIXED.map(|(key, value, _)| match key {
        // At the plain port.
        "cluster-enabled" if whole => (key, "no".to_owned()),
        _ => (key, value.to_owned()),
    });
    let synced = ("appendfsync", synced(node.config.durability).to_owned());
    let all = node.config.pairs().into_iter().map(shown).chain([synced]).chain(fixed);
    let chosen = all.filter(|(name, _)| patterns.iter().any(|pattern| glob::fits(pattern, name.as_bytes())));
    Reply::Map(chosen.map(|(name, value)| (bulk(name), bulk(value))).collect())
}

/// CONFIG SET: all of it or nothing.
pub(super) async fn set(node: &Arc<Node>, pairs: &[(Bytes, Bytes)]) -> Reply {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let failed = |key: &str, why: &str| {
        error(format!("ERR CONFIG SET failed (possibly related to argument '{key}') - {why}"))
    };
    let (mut checked, mut password) = (Vec::new(), None);
    let known = node.config.pairs();
    let is_known = |key: &str| {
        key == "appendfsync"
            || known.iter().any(|(name, _)| *name == key)
            || FIXED.iter().any(|(name, ..)| *name == key)
    };
    // As in Redis: names first, then values.
    for (at, (key, _)) in pairs.iter().enumerate() {
        let name = text(key).to_ascii_lowercase();
        if !is_known(&name) {
            return error(format!(
                "ERR Unknown option or number of arguments for CONFIG SET - '{}'",
                text(key)
            ));
        }
        if pairs[..at].iter().any(|(other, _)| other.eq_ignore_ascii_case(key)) {
            return failed(&text(key), "duplicate parameter");
        }
    }
    for (key, value) in pairs {
        let (name, value) = (text(key).to_ascii_lowercase(), text(value));
        if name == "requirepass" {
            password = Some(value);
            continue;
        }
        let fixed = FIXED.iter().find(|(known, ..)| *known == name);
        match (node.settings.check(&name, &value), fixed) {
            (Some(Ok(setting)), _) => checked.push(setting),
            (Some(Err(why)), _) => return failed(&name, &why),
            (None, Some((_, only, _))) if only.eq_ignore_ascii_case(&value) => {}
            (None, Some((.., why))) => return failed(&name, why),
            (None, None) if name == "appendfsync" && synced(node.config.durability) == value => {}
            (None, None) if matches!(&*name, "appendfsync" | "durability") => {
                return failed(&name, "the cluster has one durability, fixed when it was first started");
            }
            (None, None) => return failed(&name, "can't set immutable config"),
        }
    }
    if let Some(password) = password {
        // The users are the cluster's: all nodes take it over.
        let rules = match password.is_empty() {
            true => vec![Bytes::from_static(b"nopass")],
            false => vec![Bytes::from_static(b"resetpass"), format!(">{password}").into()],
        };
        let change = AclCall::SetUser { name: Bytes::from_static(DEFAULT), rules };
        match acl::later(node, change).await {
            Reply::Ok => {}
            refused => return refused,
        }
    }
    checked.iter().for_each(crate::settings::Checked::apply);
    // Those that rest look at what holds for them now.
    node.clients.wake_all();
    Reply::Ok
}

/// CONFIG RESETSTAT.
pub(super) fn reset_statistics(node: &Node) -> Reply {
    node.observe.baseline.set(&node.metrics, &info::totals(node));
    node.observe.slow.reset_totals();
    node.metrics.memory_peak.set(0);
    Reply::Ok
}
