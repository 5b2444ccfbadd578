//! Replies to bytes. The only place that knows protocol versions.

use weir_resp::{Encoder, Proto};
use weir_stream::{Entries, Reply};

/// Appends `reply` in version `proto`.
pub fn encode(reply: &Reply, proto: Proto, out: &mut Vec<u8>) {
    write(reply, &mut Encoder::new(proto, out));
}

fn write(reply: &Reply, to: &mut Encoder<'_>) {
    match reply {
        // Asked for nothing: only a mistake of the caller ends here, and an answer keeps the stream in step.
        Reply::None => to.nil_bulk(),
        Reply::Ok => to.simple("OK"),
        Reply::Simple(text) => to.simple(text),
        Reply::Line(text) => to.simple(&String::from_utf8_lossy(text)),
        Reply::Int(n) => to.int(*n),
        Reply::Bulk(bytes) => to.bulk(bytes),
        Reply::Dump(dump) => to.bulk(&dump.payload()),
        Reply::Id(id) => to.id(id.ms, id.seq),
        Reply::NilBulk => to.nil_bulk(),
        Reply::NilArray => to.nil_array(),
        Reply::Array(items) => {
            to.array(items.len());
            items.iter().for_each(|item| write(item, to));
        }
        Reply::Set(items) => {
            to.set(items.len());
            items.iter().for_each(|item| write(item, to));
        }
        Reply::Push(items) => {
            to.push(items.len());
            items.iter().for_each(|item| write(item, to));
        }
        Reply::Many(replies) => replies.iter().for_each(|reply| write(reply, to)),
        Reply::Double(number) => to.double(*number),
        Reply::Map(pairs) => {
            to.map(pairs.len());
            for (key, value) in pairs {
                write(key, to);
                write(value, to);
            }
        }
        Reply::Entries(list) => entries(list, to),
        Reply::Streams(streams) => {
            match to.proto {
                Proto::Resp2 => to.array(streams.len()),
                Proto::Resp3 => to.map(streams.len()),
            }
            for (key, list) in streams {
                if to.proto == Proto::Resp2 {
                    to.array(2);
                }
                to.bulk(key);
                entries(list, to);
            }
        }
        Reply::Error(refusal) => to.error(&refusal.to_string()),
    }
}

fn entries(list: &Entries, to: &mut Encoder<'_>) {
    // The packed form is close to what is written; one growth instead of many.
    to.out.reserve(list.packed_len() + 32 * list.len());
    to.array(list.len());
    for entry in list.iter() {
        to.array(if entry.delivery.is_some() { 4 } else { 2 });
        to.id(entry.id.ms, entry.id.seq);
        match entry.fields {
            None => to.nil_array(),
            Some(strings) => {
                to.array(strings.len());
                strings.for_each(|string| to.bulk(string));
            }
        }
        if let Some((idle_ms, deliveries)) = entry.delivery {
            let shown = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
            to.int(idle_ms.map_or(-1, shown));
            to.int(shown(deliveries));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use weir_stream::EntryId;

    fn written(reply: &Reply, proto: Proto) -> String {
        let mut out = Vec::new();
        encode(reply, proto, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn streams_are_pairs_or_a_map() {
        let mut list = Entries::new();
        list.push(EntryId::new(1, 2), [&b"f"[..], b"v"].into_iter());
        list.push_gone(EntryId::new(3, 0));
        let reply = Reply::Streams(vec![(Bytes::from_static(b"k"), list)]);
        let body2 = "*2\r\n*2\r\n$3\r\n1-2\r\n*2\r\n$1\r\nf\r\n$1\r\nv\r\n*2\r\n$3\r\n3-0\r\n*-1\r\n";
        let body3 = body2.replace("*-1\r\n", "_\r\n");
        assert_eq!(written(&reply, Proto::Resp2), format!("*1\r\n*2\r\n$1\r\nk\r\n{body2}"));
        assert_eq!(written(&reply, Proto::Resp3), format!("%1\r\n$1\r\nk\r\n{body3}"));
    }
}
