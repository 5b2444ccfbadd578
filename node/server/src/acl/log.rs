//! What was refused lately on this node: ACL LOG.

use super::check::Denied;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::VecDeque;
use weir_stream::Reply;

/// Like entries this close together are one.
const GROUPING_MS: u64 = 60_000;
/// As many entries are looked at for a like one.
const LOOKED_AT: usize = 10;

/// Why something was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// The command.
    Command,
    /// A key.
    Key,
    /// A channel.
    Channel,
    /// The user or the password.
    Auth,
}

impl From<Denied> for Reason {
    fn from(denied: Denied) -> Reason {
        match denied {
            Denied::Command => Reason::Command,
            Denied::Key(_) => Reason::Key,
            Denied::Channel(_) => Reason::Channel,
        }
    }
}

/// One refusal.
#[derive(Debug, Clone)]
pub struct Event {
    /// Why.
    pub reason: Reason,
    /// Inside MULTI.
    pub in_transaction: bool,
    /// Name of the command, key or channel.
    pub object: Bytes,
    /// Who tried.
    pub user: Bytes,
    /// As CLIENT LIST shows the connection.
    pub client: String,
}

struct Entry {
    event: Event,
    count: i64,
    id: i64,
    created_ms: u64,
    updated_ms: u64,
}

/// The log, newest first. Holds at most `acllog-max-len` entries.
pub struct AclLog {
    entries: Mutex<(VecDeque<Entry>, i64)>,
    len_max: usize,
}

impl AclLog {
    /// An empty log.
    pub fn new(len_max: usize) -> AclLog {
        AclLog { entries: Mutex::default(), len_max }
    }

    /// Notes a refusal.
    pub fn note(&self, event: Event, now_ms: u64) {
        if self.len_max == 0 {
            return;
        }
        let mut log = self.entries.lock();
        let (entries, next_id) = &mut *log;
        let like = |old: &Entry| {
            old.event.reason == event.reason
                && old.event.in_transaction == event.in_transaction
                && old.event.object == event.object
                && old.event.user == event.user
                && now_ms.abs_diff(old.updated_ms) <= GROUPING_MS
        };
        let known = entries.iter().take(LOOKED_AT).position(like).and_then(|at| entries.remove(at));
        let entry = match known {
            Some(mut entry) => {
                entry.count += 1;
                entry.updated_ms = now_ms;
                entry.event.client = event.client;
                entry
            }
            None => {
                *next_id += 1;
                Entry { event, count: 1, id: *next_id - 1, created_ms: now_ms, updated_ms: now_ms }
            }
        };
        entries.push_front(entry);
        entries.truncate(self.len_max);
    }

    /// ACL LOG RESET.
    pub fn reset(&self) {
        self.entries.lock().0.clear();
    }

    /// ACL LOG.
    pub fn show(&self, count: usize, now_ms: u64) -> Reply {
        let log = self.entries.lock();
        Reply::Array(log.0.iter().take(count).map(|entry| entry.show(now_ms)).collect())
    }
}

impl Entry {
    fn show(&self, now_ms: u64) -> Reply {
        let text = |text: &str| Reply::Bulk(Bytes::copy_from_slice(text.as_bytes()));
        let reason = match self.event.reason {
            Reason::Command => "command",
            Reason::Key => "key",
            Reason::Channel => "channel",
            Reason::Auth => "auth",
        };
        let context = if self.event.in_transaction { "multi" } else { "toplevel" };
        let age_s = now_ms.saturating_sub(self.updated_ms) as f64 / 1000.0;
        let fields = [
            ("count", Reply::Int(self.count)),
            ("reason", text(reason)),
            ("context", text(context)),
            ("object", Reply::Bulk(self.event.object.clone())),
            ("username", Reply::Bulk(self.event.user.clone())),
            ("age-seconds", Reply::Double(age_s)),
            ("client-info", text(self.event.client.trim_end())),
            ("entry-id", Reply::Int(self.id)),
            ("timestamp-created", Reply::Int(self.created_ms as i64)),
            ("timestamp-last-updated", Reply::Int(self.updated_ms as i64)),
        ];
        Reply::Map(fields.into_iter().map(|(name, value)| (text(name), value)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn like_refusals_are_counted_and_the_log_is_bounded() {
        let log = AclLog::new(2);
        let event = |object: &'static str| Event {
            reason: Reason::Key,
            in_transaction: false,
            object: Bytes::from_static(object.as_bytes()),
            user: Bytes::from_static(b"a"),
            client: String::new(),
        };
        log.note(event("x"), 1000);
        log.note(event("x"), 2000);
        log.note(event("y"), 2000);
        let shown = |at: usize| match log.show(9, 3000) {
            Reply::Array(entries) => match &entries[at] {
                Reply::Map(fields) => (fields[0].1.clone(), fields[3].1.clone(), fields[7].1.clone()),
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        };
        let named = |name: &'static str| Reply::Bulk(Bytes::from_static(name.as_bytes()));
        assert_eq!(shown(1), (Reply::Int(2), named("x"), Reply::Int(0)));
        log.note(event("x"), 200_000);
        assert_eq!(shown(0), (Reply::Int(1), named("x"), Reply::Int(2)), "too long ago to be one");
        assert!(matches!(log.show(9, 0), Reply::Array(entries) if entries.len() == 2));
    }
}
