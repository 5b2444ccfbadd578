//! The client connections of this node, for CLIENT LIST, KILL, INFO and UNBLOCK, and for the limit on their number.

use crate::acl::directory::Directory;
use crate::listener::Kind;
use crate::pubsub::inbox::{Delivery, Inbox};
use crate::shard::backlog::Backlog;
use crate::shard::{ShardHandle, Unblock};
use bytes::Bytes;
use futures_util::task::AtomicWaker;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use weir_stream::Slot;

/// All connections by number. Numbers rise and are never used again.
#[derive(Debug, Default)]
pub struct Clients(Mutex<Registry>);

#[derive(Debug, Default)]
struct Registry {
    last_id: u64,
    open: BTreeMap<u64, Arc<Client>>,
}

/// What others may know and do about one connection.
#[derive(Debug)]
pub struct Client {
    /// Its number.
    pub id: u64,
    /// Other end.
    pub addr: SocketAddr,
    /// This end.
    pub local_addr: SocketAddr,
    /// What is spoken there.
    pub kind: Kind,
    /// Monotonic time at which it was accepted.
    pub since: Duration,
    /// Finished answers that wait to be sent.
    pub backlog: Arc<Backlog>,
    /// Messages that wait to be sent.
    pub inbox: Inbox,
    state: Mutex<State>,
    killed: AtomicBool,
    waker: AtomicWaker,
}

/// What CLIENT LIST shows of a connection beyond its addresses.
#[derive(Debug, Default, Clone)]
pub struct State {
    /// CLIENT SETNAME.
    pub name: Bytes,
    /// CLIENT SETINFO LIB-NAME.
    pub library_name: Bytes,
    /// CLIENT SETINFO LIB-VER.
    pub library_version: Bytes,
    /// Name of the command last received.
    pub command: &'static str,
    /// Monotonic time of the last input.
    pub active: Duration,
    /// Protocol version.
    pub proto: i64,
    /// Queued commands; `None` outside a transaction.
    pub queued: Option<usize>,
    /// READONLY.
    pub readonly: bool,
    /// MONITOR.
    pub monitors: bool,
    /// Channels, patterns and shard channels that it listens to.
    pub subscriptions: [usize; 3],
    /// The user it runs as.
    pub user: Bytes,
    /// Goes by itself once its answers are sent: not to be closed before.
    pub leaving: bool,
    /// The shard that a reader of this connection may be parked at.
    pub blocked_at: Option<ShardHandle>,
    /// The slot whose leader a reader of this connection may wait at, wherever that is: it came through the plain port.
    pub forwarded: Option<Slot>,
}

/// Kinds of connections that CLIENT LIST TYPE tells apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientType {
    /// Every client that listens to nothing.
    Normal,
    /// A client that listens to channels.
    PubSub,
    /// Kinds that do not connect here.
    Other,
}

/// Which connections are meant. All conditions must hold.
#[derive(Debug, Clone, Default)]
pub struct ClientFilter {
    /// One of these numbers.
    pub ids: Option<Vec<u64>>,
    /// Of this type.
    pub kind: Option<ClientType>,
    /// With this other end, `ip:port`.
    pub addr: Option<String>,
    /// With this own end.
    pub local_addr: Option<String>,
    /// Running as this user.
    pub user: Option<Bytes>,
    /// Not the caller.
    pub skip_me: bool,
    /// At least this old, in seconds.
    pub age_s_min: u64,
}

impl Clients {
    /// Registers a connection, unless `max` are open.
    pub fn register(
        &self,
        max: usize,
        addr: SocketAddr,
        local_addr: SocketAddr,
        kind: Kind,
        now: Duration,
        backlog: Backlog,
    ) -> Option<Arc<Client>> {
        let mut registry = self.0.lock();
        if registry.open.len() >= max {
            return None;
        }
        registry.last_id += 1;
        let client = Arc::new(Client {
            id: registry.last_id,
            addr,
            local_addr,
            kind,
            since: now,
            backlog: Arc::new(backlog),
            inbox: Inbox::default(),
            state: Mutex::new(State { active: now, proto: 2, command: "NULL", ..State::default() }),
            killed: AtomicBool::new(false),
            waker: AtomicWaker::new(),
        });
        registry.open.insert(client.id, client.clone());
        Some(client)
    }

    /// Forgets a closed connection.
    pub fn remove(&self, id: u64) {
        self.0.lock().open.remove(&id);
    }

    /// Number of open connections.
    pub fn len(&self) -> usize {
        self.0.lock().open.len()
    }

    /// Whether none is open.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Those that `filter` means, by number. `me` is the caller.
    pub fn matching(&self, filter: &ClientFilter, me: u64, now: Duration) -> Vec<Arc<Client>> {
        let all: Vec<Arc<Client>> = self.0.lock().open.values().cloned().collect();
        all.into_iter().filter(|client| client.fits(filter, me, now)).collect()
    }

    /// Closes those that `filter` means, the caller last and after its answer; how many.
    pub fn kill(&self, filter: &ClientFilter, me: u64, now: Duration) -> usize {
        let meant = self.matching(filter, me, now);
        meant.iter().for_each(|client| client.kill());
        meant.len()
    }

    /// Closes all connections, at shutdown.
    pub fn kill_all(&self) {
        let all: Vec<Arc<Client>> = self.0.lock().open.values().cloned().collect();
        all.iter().for_each(|client| client.kill());
    }

    /// Closes those whose user is gone, and wakes the others so that those that wait look whether they still may.
    pub fn users_changed(&self, users: &Directory) {
        let all: Vec<Arc<Client>> = self.0.lock().open.values().cloned().collect();
        for client in all {
            let (user, leaving) = {
                let state = client.state.lock();
                (state.user.clone(), state.leaving)
            };
            match users.get(&user) {
                None if !leaving => client.kill(),
                _ => client.waker.wake(),
            }
        }
    }

    /// Bytes of answers and messages that wait to be sent.
    pub fn backlog_bytes(&self) -> usize {
        self.0.lock().open.values().map(|client| client.waiting_bytes()).sum()
    }

    /// The most that waits for one of them.
    pub fn largest_backlog(&self) -> usize {
        self.0.lock().open.values().map(|client| client.waiting_bytes()).max().unwrap_or(0)
    }

    /// Has all connections look again at what they wait for.
    pub fn wake_all(&self) {
        let all: Vec<Arc<Client>> = self.0.lock().open.values().cloned().collect();
        all.iter().for_each(|client| client.waker.wake());
    }

    /// The slot whose leader a reader of this connection may wait at, if it came through the plain port.
    pub fn forwarded(&self, id: u64) -> Option<Slot> {
        self.0.lock().open.get(&id).and_then(|client| client.state.lock().forwarded)
    }

    /// Ends the wait of a parked reader; false if that connection has none.
    pub fn unblock(&self, id: u64, how: Unblock) -> bool {
        let client = self.0.lock().open.get(&id).cloned();
        let shard = client.and_then(|client| client.state.lock().blocked_at.clone());
        shard.is_some_and(|shard| shard.unblock(id, how))
    }
}

impl Client {
    fn waiting_bytes(&self) -> usize {
        self.backlog.bytes() + self.inbox.bytes()
    }

    /// MONITOR.
    pub fn monitors(&self) -> bool {
        self.state.lock().monitors
    }

    /// Changes what is shown.
    pub fn update(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock());
    }

    /// A copy of what is shown.
    pub fn state(&self) -> State {
        self.state.lock().clone()
    }

    /// Closes the connection after what is ready was sent.
    pub fn kill(&self) {
        self.killed.store(true, Ordering::Release);
        self.waker.wake();
    }

    /// Gives it a message; false, and it is closed, if more than `max` bytes would wait.
    pub fn deliver(&self, delivery: Delivery, max: usize) -> bool {
        let fits = self.inbox.put(delivery, max);
        match fits {
            true => self.waker.wake(),
            false => self.kill(),
        }
        fits
    }

    /// Whether it was killed. The connection's task is woken when it is.
    pub fn poll_killed(&self, cx: &mut std::task::Context<'_>) -> bool {
        self.waker.register(cx.waker());
        self.killed.load(Ordering::Acquire)
    }

    /// What CLIENT LIST TYPE calls it.
    fn client_type(&self) -> ClientType {
        match self.state.lock().subscriptions {
            [0, 0, 0] => ClientType::Normal,
            _ => ClientType::PubSub,
        }
    }

    fn fits(&self, filter: &ClientFilter, me: u64, now: Duration) -> bool {
        filter.ids.as_ref().is_none_or(|ids| ids.contains(&self.id))
            && filter.kind.is_none_or(|kind| kind == self.client_type())
            && filter.addr.as_ref().is_none_or(|addr| *addr == self.addr.to_string())
            && filter.local_addr.as_ref().is_none_or(|addr| *addr == self.local_addr.to_string())
            && filter.user.as_ref().is_none_or(|user| *user == self.state.lock().user)
            && !(filter.skip_me && self.id == me)
            && now.saturating_sub(self.since).as_secs() >= filter.age_s_min
    }

    /// One line of CLIENT LIST, with its line end.
    pub fn line(&self, now: Duration) -> String {
        let state = self.state();
        let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
        let mut flags = String::new();
        for (set, flag) in [
            (state.monitors, 'O'),
            (state.subscriptions != [0; 3], 'P'),
            (state.blocked_at.is_some() || state.forwarded.is_some(), 'b'),
            (state.queued.is_some(), 'x'),
            (state.readonly, 'r'),
        ] {
            if set {
                flags.push(flag);
            }
        }
        if flags.is_empty() {
            flags.push('N');
        }
        let mut line = String::new();
        let _ = writeln!(
            line,
            "id={} addr={} laddr={} fd=0 name={} age={} idle={} flags={flags} db=0 sub={} psub={} ssub={} multi={} \
             watch=0 qbuf=0 qbuf-free=0 argv-mem=0 multi-mem=0 rbs=0 rbp=0 obl=0 oll=0 omem={} tot-mem=0 events=r \
             cmd={} user={} redir=-1 resp={} lib-name={} lib-ver={}",
            self.id,
            self.addr,
            self.local_addr,
            text(&state.name),
            now.saturating_sub(self.since).as_secs(),
            now.saturating_sub(state.active).as_secs(),
            state.subscriptions[0],
            state.subscriptions[1],
            state.subscriptions[2],
            state.queued.map_or(-1, |n| n as i64),
            self.waiting_bytes(),
            state.command,
            text(&state.user),
            state.proto,
            text(&state.library_name),
            text(&state.library_version),
        );
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addr(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    #[test]
    fn the_number_of_connections_is_bounded_and_places_come_back() {
        let clients = Clients::default();
        let open =
            |port| clients.register(2, addr(port), addr(7001), Kind::Plain, Duration::ZERO, Backlog::new(9));
        let (first, second) = (open(1), open(2));
        assert!(open(3).is_none());
        clients.remove(first.unwrap().id);
        assert_eq!(open(3).unwrap().id, 3);
        drop(second);
    }

    #[test]
    fn a_kill_means_those_that_fit_all_conditions() {
        let clients = Clients::default();
        let me =
            clients.register(9, addr(1), addr(7001), Kind::Plain, Duration::ZERO, Backlog::new(9)).unwrap();
        let old =
            clients.register(9, addr(2), addr(7001), Kind::Plain, Duration::ZERO, Backlog::new(9)).unwrap();
        let young = clients
            .register(9, addr(3), addr(7001), Kind::Plain, Duration::from_secs(60), Backlog::new(9))
            .unwrap();
        let now = Duration::from_secs(61);
        let count = |filter: ClientFilter| clients.matching(&filter, me.id, now).len();
        assert_eq!(count(ClientFilter::default()), 3);
        assert_eq!(count(ClientFilter { skip_me: true, ..Default::default() }), 2);
        assert_eq!(count(ClientFilter { skip_me: true, age_s_min: 30, ..Default::default() }), 1);
        assert_eq!(count(ClientFilter { addr: Some("127.0.0.1:3".into()), ..Default::default() }), 1);
        assert_eq!(count(ClientFilter { kind: Some(ClientType::Other), ..Default::default() }), 0);
        assert_eq!(
            count(ClientFilter { ids: Some(vec![old.id]), addr: Some("x".into()), ..Default::default() }),
            0
        );
        young.update(|state| state.name = Bytes::from_static(b"worker"));
        assert!(
            young.line(now).starts_with(
                "id=3 addr=127.0.0.1:3 laddr=127.0.0.1:7001 fd=0 name=worker age=1 idle=1 flags=N"
            )
        );
    }
}
