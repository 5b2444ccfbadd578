//! Messages that wait for one subscriber.

use super::{Message, Scope};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::VecDeque;
use weir_stream::Reply;

/// What a message counts for beyond its bytes.
const OVERHEAD_BYTES: usize = 128;

/// What is on its way to one client that did not ask for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delivery {
    /// A message.
    Message {
        /// The message.
        message: Message,
        /// The pattern that it fits, for who listens to a pattern.
        pattern: Option<Bytes>,
    },
    /// A line of MONITOR.
    Line(Bytes),
}

impl Delivery {
    /// As it is sent.
    pub fn reply(self) -> Reply {
        let (message, pattern) = match self {
            Delivery::Line(line) => return Reply::Line(line),
            Delivery::Message { message, pattern } => (message, pattern),
        };
        let Message { scope, channel, payload } = message;
        let kind = match (&pattern, scope) {
            (Some(_), _) => "pmessage",
            (None, Scope::Cluster) => "message",
            (None, Scope::Shard) => "smessage",
        };
        let kind = Bytes::from_static(kind.as_bytes());
        let words = [Some(kind), pattern, Some(channel), Some(payload)];
        Reply::Push(words.into_iter().flatten().map(Reply::Bulk).collect())
    }

    fn bytes(&self) -> usize {
        OVERHEAD_BYTES
            + match self {
                Delivery::Line(line) => line.len(),
                Delivery::Message { message, pattern } => {
                    message.channel.len() + message.payload.len() + pattern.as_ref().map_or(0, Bytes::len)
                }
            }
    }
}

/// See the module. Bounded by `pubsub-output-buffer-limit`.
#[derive(Debug, Default)]
pub struct Inbox(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    queue: VecDeque<Delivery>,
    bytes: usize,
    /// One was dropped: nothing is taken any more, since the connection closes.
    over: bool,
}

impl Inbox {
    /// Puts one in; false if that is more than `max` bytes, and then always. One alone always fits.
    pub fn put(&self, delivery: Delivery, max: usize) -> bool {
        let mut waiting = self.0.lock();
        let bytes = waiting.bytes + delivery.bytes();
        waiting.over |= bytes > max && !waiting.queue.is_empty();
        if !waiting.over {
            waiting.bytes = bytes;
            waiting.queue.push_back(delivery);
        }
        !waiting.over
    }

    /// The next one.
    pub fn take(&self) -> Option<Delivery> {
        let mut waiting = self.0.lock();
        let next = waiting.queue.pop_front()?;
        waiting.bytes -= next.bytes();
        if waiting.queue.is_empty() {
            waiting.queue = VecDeque::new();
        }
        Some(next)
    }

    /// Bytes that wait.
    pub fn bytes(&self) -> usize {
        self.0.lock().bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delivery(bytes: usize) -> Delivery {
        let payload = Bytes::from(vec![b'x'; bytes]);
        Delivery::Message {
            message: Message { scope: Scope::Cluster, channel: Bytes::from_static(b"c"), payload },
            pattern: None,
        }
    }

    #[test]
    fn a_full_inbox_takes_nothing_more() {
        let inbox = Inbox::default();
        assert!(inbox.put(delivery(5000), 1000), "one alone");
        assert!(!inbox.put(delivery(1), 1000));
        assert!(inbox.take().is_some());
        assert!(!inbox.put(delivery(1), 1000), "there is a gap now");
        assert_eq!((inbox.take(), inbox.bytes()), (None, 0));
    }
}
