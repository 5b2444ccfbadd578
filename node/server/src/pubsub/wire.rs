//! Messages between nodes, as bytes.
//!
//! `version u8, start u64, number u64`, then each message as `scope u8, channel length u32, payload length u32` and
//! both. Integers are little endian.

use super::{Message, Scope};
use bytes::{Buf, BufMut, Bytes, BytesMut};

/// Kind of the peer call. Permanent.
pub(crate) const KIND_PUBLISH: u16 = 6;

const VERSION: u8 = 1;
const HEAD_BYTES: usize = 17;
const MESSAGE_HEAD_BYTES: usize = 9;

/// What goes to a node in one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Batch {
    /// Which start of the sender this is from.
    pub(super) start: u64,
    /// Rises by one with each batch to the same node.
    pub(super) number: u64,
    pub(super) messages: Vec<Message>,
}

pub(super) fn encode(batch: &Batch) -> Bytes {
    let bytes = |m: &Message| MESSAGE_HEAD_BYTES + m.channel.len() + m.payload.len();
    let mut out = BytesMut::with_capacity(HEAD_BYTES + batch.messages.iter().map(bytes).sum::<usize>());
    out.put_u8(VERSION);
    out.put_u64_le(batch.start);
    out.put_u64_le(batch.number);
    for message in &batch.messages {
        out.put_u8(match message.scope {
            Scope::Cluster => 0,
            Scope::Shard => 1,
        });
        out.put_u32_le(message.channel.len() as u32);
        out.put_u32_le(message.payload.len() as u32);
        out.put_slice(&message.channel);
        out.put_slice(&message.payload);
    }
    out.freeze()
}

pub(super) fn decode(mut bytes: Bytes) -> Result<Batch, String> {
    let short = || "messages end early".to_owned();
    if bytes.len() < HEAD_BYTES {
        return Err(short());
    }
    match bytes.get_u8() {
        VERSION => {}
        other => return Err(format!("messages of version {other}: a newer version of weir?")),
    }
    let (start, number) = (bytes.get_u64_le(), bytes.get_u64_le());
    let mut messages = Vec::new();
    while bytes.has_remaining() {
        if bytes.len() < MESSAGE_HEAD_BYTES {
            return Err(short());
        }
        let scope = match bytes.get_u8() {
            0 => Scope::Cluster,
            1 => Scope::Shard,
            other => return Err(format!("a message of kind {other}: a newer version of weir?")),
        };
        let (channel, payload) = (bytes.get_u32_le() as usize, bytes.get_u32_le() as usize);
        if bytes.len() < channel + payload {
            return Err(short());
        }
        messages.push(Message { scope, channel: bytes.split_to(channel), payload: bytes.split_to(payload) });
    }
    Ok(Batch { start, number, messages })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_reads_back_and_never_when_it_is_cut() {
        let message = |scope, payload: &'static [u8]| Message {
            scope,
            channel: Bytes::from_static(b"news"),
            payload: Bytes::from_static(payload),
        };
        let messages = vec![message(Scope::Cluster, b""), message(Scope::Shard, b"\0\r\n")];
        let batch = Batch { start: 3, number: 9, messages };
        let bytes = encode(&batch);
        assert_eq!(decode(bytes.clone()).as_ref(), Ok(&batch));
        let whole: Vec<usize> =
            (0..bytes.len()).filter(|length| decode(bytes.slice(..*length)).is_ok()).collect();
        // Ends between messages cannot be told from the end.
        assert_eq!(whole, [HEAD_BYTES, HEAD_BYTES + MESSAGE_HEAD_BYTES + 4]);
    }
}
