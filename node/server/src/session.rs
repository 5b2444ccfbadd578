//! What a connection remembers between commands.

use crate::acl::check::Checked;
use crate::acl::directory::Directory;
use crate::clients::Client;
use crate::command::late::Late;
use crate::command::table::Row;
use crate::command::{Control, ReplyMode};
use crate::metrics::{CommandMetrics, Metrics};
use crate::pubsub::hub::{SubscriptionKind, Subscriptions};
use crate::shard::ShardId;
use bytes::Bytes;
use std::sync::Arc;
use weir_resp::Proto;
use weir_stream::{Op, Reply, Slot};

/// See the module. Changed by the connection's own task alone.
#[derive(Debug)]
pub struct Session {
    /// What others see of the connection.
    pub client: Arc<Client>,
    /// Protocol version of the answers from here on.
    pub proto: Proto,
    /// READONLY: followers may answer reads.
    pub readonly: bool,
    /// Between MULTI and EXEC.
    pub transaction: Option<Transaction>,
    /// WATCH: keys of one slot, and the versions that they had.
    pub watched: Vec<(Bytes, u64)>,
    /// What it listens to.
    pub subscriptions: Subscriptions,
    /// What WAIT has to wait for.
    pub written: Written,
    /// What the connection may do.
    pub user: Arc<Checked>,
    /// It said a password, or there was none to say when it was opened.
    logged_in: bool,
    /// Of the directory, when `user` was last looked up.
    generation: u64,
    /// Close once all answers before are sent.
    pub closing: bool,
    reply_mode: ReplyMode,
    skip_next: bool,
    commands: Vec<(&'static str, Arc<CommandMetrics>)>,
}

impl Session {
    /// Of a new connection.
    pub fn new(client: Arc<Client>, users: &Directory) -> Self {
        let generation = users.generation();
        let user = users.default_user();
        client.update(|state| state.user = user.name.clone());
        Session {
            client,
            logged_in: user.user.nopass && user.user.enabled,
            user,
            generation,
            proto: Proto::default(),
            readonly: false,
            transaction: None,
            watched: Vec::new(),
            subscriptions: Subscriptions::default(),
            written: Written::default(),
            closing: false,
            reply_mode: ReplyMode::On,
            skip_next: false,
            commands: Vec::new(),
        }
    }

    /// AUTH.
    pub fn log_in(&mut self, user: Arc<Checked>) {
        self.client.update(|state| state.user = user.name.clone());
        self.user = user;
        self.logged_in = true;
    }

    /// Whether nothing may be done before AUTH.
    pub fn must_log_in(&self, users: &Directory) -> bool {
        !self.logged_in && users.wants_login()
    }

    /// Of the directory, when the user was last looked up.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Looks the user up again if users were changed; false if it is gone.
    pub fn refresh(&mut self, users: &Directory) -> bool {
        let generation = users.generation();
        if generation == self.generation {
            return true;
        }
        self.generation = generation;
        match users.get(&self.user.name) {
            Some(user) => {
                self.user = user;
                true
            }
            None => false,
        }
    }

    /// RESET: as it was when the connection was opened. What was written stays written.
    pub fn reset(&mut self, users: &Directory) {
        let user = users.default_user();
        self.logged_in = user.user.nopass && user.user.enabled;
        self.client.update(|state| state.user = user.name.clone());
        self.user = user;
        self.set_proto(Proto::default());
        self.set_readonly(false);
        self.transaction = None;
        self.watched.clear();
        self.reply_mode = ReplyMode::On;
        self.skip_next = false;
        self.client.update(|state| {
            state.name = Bytes::new();
            state.queued = None;
            state.monitors = false;
        });
    }

    /// HELLO.
    pub fn set_proto(&mut self, proto: Proto) {
        self.proto = proto;
        self.client.update(|state| state.proto = proto.number());
    }

    /// READONLY and READWRITE.
    pub fn set_readonly(&mut self, readonly: bool) {
        self.readonly = readonly;
        self.client.update(|state| state.readonly = readonly);
    }

    /// Lets others see how much it listens to.
    pub fn show_subscriptions(&self) {
        let count = |topic| self.subscriptions.count(Some(topic));
        let counts =
            [SubscriptionKind::Channel, SubscriptionKind::Pattern, SubscriptionKind::ShardChannel].map(count);
        self.client.update(|state| state.subscriptions = counts);
    }

    /// Remembers the versions that WATCH was answered; the answer of anything else stays as it is.
    pub fn watch(&mut self, keys: Vec<Bytes>, answer: Reply) -> Reply {
        let Reply::Array(versions) = answer else { return answer };
        if keys.is_empty() || keys.len() != versions.len() {
            return Reply::Array(versions);
        }
        let version = |reply: &Reply| match reply {
            Reply::Int(version) => version.unsigned_abs(),
            // Nothing has this version, so that EXEC would do nothing.
            _ => u64::MAX,
        };
        self.watched.extend(keys.into_iter().zip(versions.iter().map(version)));
        Reply::Ok
    }

    /// CLIENT REPLY. Its own answer is sent only for `On`.
    pub fn set_reply_mode(&mut self, mode: ReplyMode) {
        match mode {
            ReplyMode::Skip if self.reply_mode == ReplyMode::On => self.skip_next = true,
            ReplyMode::Skip => {}
            mode => self.reply_mode = mode,
        }
    }

    /// Whether the answer to the command now starting is kept back; to be asked once a command, before it runs.
    pub fn takes_silence(&mut self) -> bool {
        std::mem::take(&mut self.skip_next) || self.reply_mode == ReplyMode::Off
    }

    /// The numbers of a command; remembered, since a connection uses few.
    pub fn metrics(&mut self, all: &Metrics, name: &'static str) -> Arc<CommandMetrics> {
        match self.commands.iter().find(|(known, _)| std::ptr::eq(*known, name)) {
            Some((_, metrics)) => metrics.clone(),
            None => {
                let metrics = all.command(name);
                self.commands.push((name, metrics.clone()));
                metrics
            }
        }
    }
}

/// What this connection wrote, a shard: the highest log index, or `None` while the last write's index is not known.
#[derive(Debug, Clone, Default)]
pub struct Written(Vec<(ShardId, Option<u64>)>);

impl Written {
    /// Remembers a write that was answered. It stands above all that this connection sent before, so it covers a
    /// write of unknown fate too.
    pub fn note(&mut self, shard: ShardId, index: u64) {
        let entry = self.entry(shard);
        *entry = Some(index.max(entry.unwrap_or(0)));
    }

    /// Remembers a write that may or may not be in the log: nobody can be said to hold it until a later one is
    /// answered.
    pub fn note_unknown(&mut self, shard: ShardId) {
        *self.entry(shard) = None;
    }

    /// Remembers all of `later`.
    pub fn append(&mut self, later: &Written) {
        for (shard, index) in later.iter() {
            match index {
                Some(index) => self.note(shard, index),
                None => self.note_unknown(shard),
            }
        }
    }

    fn entry(&mut self, shard: ShardId) -> &mut Option<u64> {
        let at = self.0.iter().position(|(known, _)| *known == shard).unwrap_or_else(|| {
            self.0.push((shard, Some(0)));
            self.0.len() - 1
        });
        &mut self.0[at].1
    }

    /// All shards written to; `None` for an index that is not known.
    pub fn iter(&self) -> impl Iterator<Item = (ShardId, Option<u64>)> + '_ {
        self.0.iter().copied()
    }

    /// Whether nothing was written.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Commands queued since MULTI.
#[derive(Debug, Default)]
pub struct Transaction {
    /// A command was refused when it was queued: EXEC does nothing.
    pub broken: bool,
    /// Two commands have keys of different slots: EXEC does nothing.
    pub crosses_slots: bool,
    /// Slot of all keys so far.
    pub slot: Option<Slot>,
    /// In order, each with the call that it came from, since rights may change before EXEC.
    pub queued: Vec<(Queued, Origin)>,
    /// Bytes of arguments queued.
    pub bytes: usize,
}

/// The call behind a queued command.
#[derive(Debug)]
pub struct Origin {
    /// Its row.
    pub row: &'static Row,
    /// All arguments.
    pub args: Vec<Bytes>,
}

/// One queued command.
#[derive(Debug)]
pub enum Queued {
    /// Runs in the log entry.
    Op(Op),
    /// Runs here, when EXEC comes.
    Control(Control),
    /// Known already: a syntax error, a help text.
    Ready(Reply),
    /// A refusal that has to look at the state first, in the log entry.
    Late(Box<Late>),
}

impl Transaction {
    /// Adds a command with keys in `slot`.
    pub fn push(&mut self, queued: Queued, origin: Origin, slot: Option<Slot>, bytes: usize) {
        if let Some(slot) = slot {
            self.crosses_slots |= self.slot.is_some_and(|known| known != slot);
            self.slot = Some(slot);
        }
        self.bytes += bytes;
        self.queued.push((queued, origin));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clients::Clients;
    use crate::listener::Kind;
    use crate::shard::backlog::Backlog;
    use std::net::SocketAddr;
    use std::time::Duration;

    fn session() -> Session {
        let addr = SocketAddr::from(([127, 0, 0, 1], 1));
        let clients = Clients::default();
        let client = clients.register(1, addr, addr, Kind::Plain, Duration::ZERO, Backlog::new(9)).unwrap();
        Session::new(client, &Directory::new(""))
    }

    #[test]
    fn skip_silences_one_answer_and_off_all() {
        let mut session = session();
        session.set_reply_mode(ReplyMode::Skip);
        assert_eq!([session.takes_silence(), session.takes_silence()], [true, false]);
        session.set_reply_mode(ReplyMode::Off);
        session.set_reply_mode(ReplyMode::Skip);
        assert_eq!([session.takes_silence(), session.takes_silence()], [true, true]);
        session.set_reply_mode(ReplyMode::On);
        assert!(!session.takes_silence());
    }

    #[test]
    fn a_transaction_notices_a_second_slot() {
        let mut transaction = Transaction::default();
        let mut push = |slot| {
            let row = crate::command::table::find(b"ping").unwrap();
            transaction.push(Queued::Ready(Reply::Ok), Origin { row, args: Vec::new() }, slot, 0);
            transaction.crosses_slots
        };
        assert!(!push(Some(Slot(1))) && !push(None) && !push(Some(Slot(1))));
        push(Some(Slot(2)));
        assert!(transaction.crosses_slots);
    }

    #[test]
    fn the_highest_index_of_each_shard_is_kept() {
        let mut written = Written::default();
        written.note(ShardId(1), 5);
        written.note(ShardId(2), 1);
        written.note(ShardId(1), 3);
        assert_eq!(written.iter().collect::<Vec<_>>(), [(ShardId(1), Some(5)), (ShardId(2), Some(1))]);
    }

    #[test]
    fn a_write_of_unknown_fate_is_covered_by_the_next_one_alone() {
        let mut written = Written::default();
        assert!(written.is_empty());
        written.note_unknown(ShardId(1));
        assert!(!written.is_empty());
        written.note(ShardId(2), 4);
        assert_eq!(written.iter().collect::<Vec<_>>(), [(ShardId(1), None), (ShardId(2), Some(4))]);
        let mut later = Written::default();
        later.note(ShardId(1), 9);
        later.note_unknown(ShardId(2));
        written.append(&later);
        assert_eq!(written.iter().collect::<Vec<_>>(), [(ShardId(1), Some(9)), (ShardId(2), None)]);
    }
}
