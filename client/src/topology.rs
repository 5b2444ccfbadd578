//! Who leads which slot, as far as this client has heard.

use crate::slot::SLOTS;
use std::sync::Arc;
use weir_resp::Value;

/// A slot nobody is known to lead.
const NOBODY: u16 = u16::MAX;

/// The map of a cluster.
#[derive(Clone)]
pub(crate) struct Topology {
    /// Index into `nodes` for each slot.
    owners: Vec<u16>,
    nodes: Vec<Arc<str>>,
}

impl Topology {
    /// A map that knows nobody.
    pub(crate) fn empty() -> Topology {
        Topology { owners: vec![NOBODY; usize::from(SLOTS)], nodes: Vec::new() }
    }

    /// A server without cluster support leads everything.
    pub(crate) fn single(addr: &Arc<str>) -> Topology {
        Topology { owners: vec![0; usize::from(SLOTS)], nodes: vec![addr.clone()] }
    }

    /// Reads a reply to CLUSTER SLOTS. A node without a host is at the host that was asked (`asked`).
    pub(crate) fn parse(reply: &Value, asked: &str) -> Option<Topology> {
        let Value::Array(rows) = reply else { return None };
        let asked_host = asked.rsplit_once(':').map_or(asked, |(host, _)| host);
        let mut map = Topology::empty();
        for row in rows {
            let Value::Array(row) = row else { return None };
            let [Value::Int(first), Value::Int(last), nodes @ ..] = row.as_slice() else { return None };
            let (first, last) = (u16::try_from(*first).ok()?, u16::try_from(*last).ok()?);
            if first > last || last >= SLOTS {
                return None;
            }
            for (at, node) in nodes.iter().enumerate() {
                let Value::Array(node) = node else { return None };
                let [host, Value::Int(port), ..] = node.as_slice() else { return None };
                let port = u16::try_from(*port).ok()?;
                let host = match host.bytes() {
                    Some(host) if !host.is_empty() && host.as_ref() != b"?" => {
                        String::from_utf8(host.to_vec()).ok()?
                    }
                    Some(_) => asked_host.to_owned(),
                    None if host.is_nil() => asked_host.to_owned(),
                    None => return None,
                };
                let index = map.index_of(&format!("{host}:{port}"));
                if at == 0 {
                    map.owners[usize::from(first)..=usize::from(last)].fill(index);
                }
            }
        }
        Some(map)
    }

    fn index_of(&mut self, addr: &str) -> u16 {
        let at = self.nodes.iter().position(|node| **node == *addr).unwrap_or_else(|| {
            self.nodes.push(addr.into());
            self.nodes.len() - 1
        });
        u16::try_from(at).unwrap_or(NOBODY)
    }

    /// Who leads the slot.
    pub(crate) fn owner(&self, slot: u16) -> Option<Arc<str>> {
        self.nodes.get(usize::from(*self.owners.get(usize::from(slot))?)).cloned()
    }

    /// Every node, followers included.
    pub(crate) fn nodes(&self) -> &[Arc<str>] {
        &self.nodes
    }

    /// Notes a redirect.
    pub(crate) fn moved(&mut self, slot: u16, addr: &str) {
        let index = self.index_of(addr);
        if let Some(owner) = self.owners.get_mut(usize::from(slot)) {
            *owner = index;
        }
    }

    /// Whether no slot has a leader.
    pub(crate) fn serves_nothing(&self) -> bool {
        self.owners.iter().all(|owner| *owner == NOBODY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::BytesMut;
    use weir_resp::decode_value;

    fn parse(reply: &str) -> Option<Topology> {
        let value = decode_value(&mut BytesMut::from(reply)).unwrap().unwrap();
        Topology::parse(&value, "seed:7000")
    }

    #[test]
    fn the_first_node_of_a_row_leads_it() {
        let map = parse(
            "*2\r\n*3\r\n:0\r\n:0\r\n*2\r\n$1\r\na\r\n:1\r\n*4\r\n:1\r\n:16383\r\n*2\r\n$1\r\nb\r\n:2\r\n*2\r\n$1\r\na\r\n:1\r\n",
        )
        .unwrap();
        assert_eq!(map.owner(0).as_deref(), Some("a:1"));
        assert_eq!(map.owner(16383).as_deref(), Some("b:2"));
        assert_eq!(map.nodes().len(), 2);
    }

    #[test]
    fn a_node_without_a_host_is_where_it_was_asked() {
        for host in ["$0\r\n\r\n", "$-1\r\n", "_\r\n", "$1\r\n?\r\n"] {
            let map = parse(&format!("*1\r\n*3\r\n:5\r\n:6\r\n*2\r\n{host}:1\r\n")).unwrap();
            assert_eq!(map.owner(6).as_deref(), Some("seed:1"));
            assert_eq!(map.owner(7), None);
        }
    }

    #[test]
    fn other_shapes_are_no_map() {
        for reply in [
            ":1\r\n",
            "*1\r\n:1\r\n",
            "*1\r\n*3\r\n:9\r\n:5\r\n*2\r\n$1\r\na\r\n:1\r\n",
            "*1\r\n*3\r\n:0\r\n:16384\r\n*2\r\n$1\r\na\r\n:1\r\n",
            "*1\r\n*3\r\n:0\r\n:-1\r\n*2\r\n$1\r\na\r\n:1\r\n",
            "*1\r\n*3\r\n:0\r\n:1\r\n*2\r\n:1\r\n:1\r\n",
            "*1\r\n*3\r\n:0\r\n:1\r\n*2\r\n$1\r\na\r\n:99999\r\n",
        ] {
            assert!(parse(reply).is_none(), "{reply:?}");
        }
    }

    #[test]
    fn a_redirect_moves_one_slot() {
        let mut map = Topology::single(&"a:1".into());
        map.moved(7, "b:2");
        map.moved(60000, "b:2");
        assert_eq!(map.owner(7).as_deref(), Some("b:2"));
        assert_eq!(map.owner(8).as_deref(), Some("a:1"));
    }
}
