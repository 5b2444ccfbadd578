//! Answers of one connection that are finished and wait to be sent, counted in bytes.
//!
//! A small command can have a large answer, and many may be submitted before the first is sent. Above
//! [`DEFER_BYTES`] reads are no longer done but handed back, to be done when it is their turn. What a write answers
//! cannot be put off: above `client-output-buffer-limit` it is dropped, and the connection closes.

use super::handle::Answer;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tokio::sync::oneshot;
use weir_stream::Reply;

/// Finished answers of a connection above this put its further reads off.
pub const DEFER_BYTES: usize = 8 << 20;
/// Smaller answers are not counted: there are at most `pipeline-commands-max` of them.
const COUNTED_BYTES_MIN: usize = 1024;

/// One connection's finished answers.
#[derive(Debug)]
pub struct Backlog {
    bytes: AtomicUsize,
    /// `client-output-buffer-limit`.
    max: usize,
    /// A read was put off: those after it are too, or they would show an older state than it.
    defers: AtomicBool,
    overflowed: AtomicBool,
}

impl Backlog {
    /// Nothing waits. `max`: bytes above which an answer is dropped.
    pub fn new(max: usize) -> Self {
        Self { bytes: AtomicUsize::new(0), max, defers: false.into(), overflowed: false.into() }
    }

    /// Bytes that wait.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Whether an answer was dropped because too many bytes waited before it: the connection must close.
    pub fn overflowed(&self) -> bool {
        self.overflowed.load(Ordering::Relaxed)
    }

    /// An answer that was counted is being sent.
    pub fn take(&self, reply: &Reply) {
        let bytes = counted(reply);
        if bytes > 0 {
            self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    /// Nothing is in flight any more: reads may be done ahead again.
    pub fn drained(&self) {
        self.defers.store(false, Ordering::Relaxed);
    }
}

/// Where an answer goes.
#[derive(Debug)]
pub(super) struct AnswerSender {
    sender: oneshot::Sender<Answer>,
    /// Of the connection that waits.
    backlog: Option<Arc<Backlog>>,
}

impl AnswerSender {
    pub(super) fn new(sender: oneshot::Sender<Answer>, backlog: Option<Arc<Backlog>>) -> Self {
        Self { sender, backlog }
    }

    /// Answers, unless nobody listens any more.
    pub(super) fn send(self, mut answer: Answer) {
        if let Some(backlog) = &self.backlog
            && let Answer::Reply { reply, .. } = &answer
        {
            let bytes = counted(reply);
            if bytes > 0 && !self.sender.is_closed() {
                let before = backlog.bytes.fetch_add(bytes, Ordering::Relaxed);
                if before > 0 && before + bytes > backlog.max {
                    backlog.bytes.fetch_sub(bytes, Ordering::Relaxed);
                    backlog.overflowed.store(true, Ordering::Relaxed);
                    answer = Answer::Unknown;
                }
            }
        }
        // The connection may have closed meanwhile; its count goes with it.
        let _ = self.sender.send(answer);
    }

    pub(super) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// Whether a read for this answer has to wait for its turn.
    pub(super) fn defers(&self) -> bool {
        self.backlog.as_ref().is_some_and(|backlog| {
            if backlog.bytes() > DEFER_BYTES {
                backlog.defers.store(true, Ordering::Relaxed);
            }
            backlog.defers.load(Ordering::Relaxed)
        })
    }
}

impl From<oneshot::Sender<Answer>> for AnswerSender {
    fn from(sender: oneshot::Sender<Answer>) -> Self {
        Self::new(sender, None)
    }
}

/// What an answer counts for; 0 for small ones.
fn counted(reply: &Reply) -> usize {
    let bytes = bytes_of(reply);
    if bytes < COUNTED_BYTES_MIN { 0 } else { bytes }
}

fn bytes_of(reply: &Reply) -> usize {
    match reply {
        Reply::Bulk(bytes) | Reply::Line(bytes) => bytes.len(),
        Reply::Dump(dump) => dump.size_hint(),
        Reply::Array(replies) | Reply::Push(replies) | Reply::Many(replies) => {
            replies.iter().map(|reply| 16 + bytes_of(reply)).sum()
        }
        Reply::Map(pairs) => pairs.iter().map(|(key, value)| 32 + bytes_of(key) + bytes_of(value)).sum(),
        Reply::Entries(entries) => entries.packed_len(),
        Reply::Streams(streams) => {
            streams.iter().map(|(key, entries)| key.len() + entries.packed_len()).sum()
        }
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn large(bytes: usize) -> Answer {
        Answer::Reply { reply: Reply::Bulk(Bytes::from(vec![b'x'; bytes])), index: 0 }
    }

    #[test]
    fn reads_are_put_off_above_the_bound_until_all_is_drained() {
        let backlog = Arc::new(Backlog::new(usize::MAX));
        let sender = || {
            let (sender, receiver) = oneshot::channel();
            (AnswerSender::new(sender, Some(backlog.clone())), receiver)
        };
        let (first, mut answered) = sender();
        assert!(!first.defers());
        first.send(large(DEFER_BYTES + 1));
        assert_eq!(backlog.bytes(), DEFER_BYTES + 1);
        assert!(sender().0.defers());
        let Ok(Answer::Reply { reply, .. }) = answered.try_recv() else { panic!("not answered") };
        backlog.take(&reply);
        assert_eq!(backlog.bytes(), 0);
        assert!(sender().0.defers(), "one before it was put off");
        backlog.drained();
        assert!(!sender().0.defers());
    }

    #[test]
    fn an_answer_above_the_limit_is_dropped_and_told() {
        let backlog = Arc::new(Backlog::new(10_000));
        let send = |bytes| {
            let (sender, mut receiver) = oneshot::channel();
            AnswerSender::new(sender, Some(backlog.clone())).send(large(bytes));
            receiver.try_recv()
        };
        assert!(matches!(send(8_000), Ok(Answer::Reply { .. })));
        assert!(matches!(send(900), Ok(Answer::Reply { .. })), "small ones are not counted");
        assert!(!backlog.overflowed());
        assert!(matches!(send(3_000), Ok(Answer::Unknown)));
        assert!(backlog.overflowed());
        assert_eq!(backlog.bytes(), 8_000);
    }
}
