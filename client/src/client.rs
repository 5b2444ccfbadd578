//! The client: what all calls share.

use crate::call::Limits;
use crate::command::{Cmd, Unit};
use crate::connection::OpenError;
use crate::error::Error;
use crate::nodes::Nodes;
use crate::options::Options;
use crate::reply::FromValue;
use crate::topology::Topology;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use parking_lot::RwLock;
use std::future::IntoFuture;
use std::marker::PhantomData;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::Notify;
use weir_env::time::{Instant, sleep, timeout, timeout_at};
use weir_env::{BoxFuture, Env};
use weir_resp::Value;

/// While one node that was asked for the map is silent, the next is asked after this long.
const NEXT_NODE_AFTER: Duration = Duration::from_millis(250);
/// Maps are asked for at most this often, however many redirects come.
const MAP_PAUSE: Duration = Duration::from_millis(100);

/// A client of a cluster. Cheap to clone; clones share connections and the map.
///
/// Calls are started by a method named after the command and run when awaited:
///
/// ```no_run
/// # async fn example() -> Result<(), weir_client::Error> {
/// let client = weir_client::Client::connect(["127.0.0.1:7001", "127.0.0.1:7002"]).await?;
/// let id = client.xadd("orders").maxlen_approx(100_000).field("item", "tea").field("count", "2").await?;
/// let entries = client.xrange("orders", id, id).await?;
/// assert_eq!(entries[0].get_str("item"), Some("tea"));
/// # Ok(())
/// # }
/// ```
///
/// # What is repeated, and what is not
///
/// Redirects (`MOVED`, `ASK`) are followed, and what certainly was not done (`TRYAGAIN`, `CLUSTERDOWN`, no connection)
/// is tried again with growing, random pauses until the deadline ([`Options::timeout`]). Reads are also tried again
/// when an answer is lost. A write whose answer is lost is [`Error::Unknown`] at once, never silently repeated.
///
/// Dropping a call's future stops waiting for it; a command that was sent may still be done.
#[derive(Clone)]
pub struct Client {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) options: Options,
    pub(crate) nodes: Nodes,
    pub(crate) topology: RwLock<Topology>,
    seeds: Vec<Arc<str>>,
    map_wanted: Arc<Notify>,
}

impl Client {
    /// Connects to a cluster of which these `host:port`s are some nodes, with [`Options::default`]. One living
    /// address is enough; the rest of the cluster is discovered.
    ///
    /// # Errors
    /// [`Error::Unreachable`] when no address serves within [`Options::timeout`]; [`Error::Auth`],
    /// [`Error::Tls`] and [`Error::Protocol`] as soon as no address can be expected to.
    pub async fn connect<A: Into<String>>(addrs: impl IntoIterator<Item = A>) -> Result<Client, Error> {
        Client::connect_with(addrs, Options::default()).await
    }

    /// As [`Client::connect`], with these options.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub async fn connect_with<A: Into<String>>(
        addrs: impl IntoIterator<Item = A>,
        options: Options,
    ) -> Result<Client, Error> {
        let seeds: Vec<Arc<str>> = addrs.into_iter().map(|addr| addr.into().into()).collect();
        if seeds.is_empty() {
            return Err(Error::Unreachable { tried: Vec::new() });
        }
        let inner = Arc::new(Inner {
            nodes: Nodes::new(options.clone())?,
            topology: RwLock::new(Topology::empty()),
            seeds,
            map_wanted: Arc::default(),
            options,
        });
        inner.first_map().await?;
        let keeper = keep_map(Arc::downgrade(&inner), inner.map_wanted.clone(), inner.options.refresh_every);
        inner.options.env.spawn.spawn("weir-client map", Box::pin(keeper));
        Ok(Client { inner })
    }

    /// The addresses of all nodes, as the client knows them now.
    pub fn nodes(&self) -> Vec<String> {
        self.inner.topology.read().nodes().iter().map(|addr| addr.to_string()).collect()
    }

    /// The address of the node that leads the slot of `key`, if one is known.
    pub fn leader_of(&self, key: impl AsRef<[u8]>) -> Option<String> {
        self.inner.topology.read().owner(crate::key_slot(key)).map(|addr| addr.to_string())
    }

    /// The options it was made with.
    pub fn options(&self) -> &Options {
        &self.inner.options
    }

    pub(crate) fn env(&self) -> &Env {
        &self.inner.options.env
    }

    pub(crate) fn call<T>(&self, cmd: Cmd) -> Call<T> {
        Call { client: self.clone(), cmd, timeout: None, reply: PhantomData }
    }

    /// Runs one unit within `timeout`.
    pub(crate) async fn run(&self, unit: &Unit, timeout: Duration) -> Result<Vec<Value>, Error> {
        let deadline = Instant::now() + timeout + unit.block.unwrap_or_default();
        self.inner.run(unit, Limits { deadline, not_after: None }).await
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("nodes", &self.nodes()).finish_non_exhaustive()
    }
}

/// A command that will be sent when awaited and answers a `T`.
#[must_use = "a call does nothing until it is awaited"]
pub struct Call<T> {
    client: Client,
    pub(crate) cmd: Cmd,
    timeout: Option<Duration>,
    reply: PhantomData<fn() -> T>,
}

impl<T> Call<T> {
    /// Another limit than [`Options::timeout`] for this call.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }
}

impl<T: FromValue + Send + 'static> IntoFuture for Call<T> {
    type Output = Result<T, Error>;
    type IntoFuture = BoxFuture<'static, Result<T, Error>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let Call { client, cmd, timeout, .. } = self;
            let timeout = timeout.unwrap_or(client.inner.options.timeout);
            let mut values = client.run(&cmd.unit(), timeout).await?;
            let value = values.pop().unwrap_or(Value::Null);
            T::from_value(value).map_err(|got| Error::unexpected(cmd.name, &got))
        })
    }
}

impl<T> std::fmt::Debug for Call<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Call").field("command", &self.cmd.name).finish_non_exhaustive()
    }
}

impl Inner {
    /// The node for a slot: its leader if known, else any, but if possible not `avoid`.
    pub(crate) fn choose(&self, slot: Option<u16>, avoid: Option<&Arc<str>>) -> Arc<str> {
        let topology = self.topology.read();
        if let Some(owner) = slot.and_then(|slot| topology.owner(slot))
            && Some(&owner) != avoid
        {
            return owner;
        }
        let known: Vec<&Arc<str>> = if topology.nodes().is_empty() { &self.seeds } else { topology.nodes() }
            .iter()
            .filter(|addr| Some(*addr) != avoid)
            .collect();
        match known.as_slice() {
            [] => avoid.unwrap_or(&self.seeds[0]).clone(),
            known => known[self.below(known.len())].clone(),
        }
    }

    fn below(&self, end: usize) -> usize {
        usize::try_from(self.options.env.rng.u64() % (end.max(1) as u64)).unwrap_or(0)
    }

    /// How long to wait after the `attempts`th attempt: doubling, then shortened by up to a half.
    pub(crate) fn backoff(&self, attempts: u32) -> Duration {
        jittered(&self.options.env, self.options.backoff_min, self.options.backoff_max, attempts)
    }

    /// Has the map refreshed soon, in the background.
    pub(crate) fn ask_for_map(&self) {
        self.map_wanted.notify_one();
    }

    /// Tries until a map is there or the deadline passes.
    async fn first_map(self: &Arc<Self>) -> Result<(), Error> {
        let deadline = Instant::now() + self.options.timeout;
        let mut tried = Vec::new();
        let mut round = 0;
        loop {
            match timeout_at(deadline, self.refresh()).await {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(failures)) => {
                    let hopeless = failures.iter().all(|(_, error)| matches!(error, OpenError::Never(_)));
                    if hopeless && let Some((_, OpenError::Never(error))) = failures.first() {
                        return Err(error.clone());
                    }
                    let text = |error: OpenError| match error {
                        OpenError::Later(why) => why,
                        OpenError::Never(error) => error.to_string(),
                    };
                    tried = failures.into_iter().map(|(addr, e)| (addr.to_string(), text(e))).collect();
                }
                Err(_) if tried.is_empty() => {
                    tried = self.seeds.iter().map(|a| (a.to_string(), "no answer in time".into())).collect();
                }
                Err(_) => {}
            }
            round += 1;
            let pause = self.backoff(round);
            if Instant::now() + pause >= deadline {
                return Err(Error::Unreachable { tried });
            }
            sleep(pause).await;
        }
    }

    /// Asks nodes for the map, in random order, the next one while the last is still silent; takes the first.
    async fn refresh(self: &Arc<Self>) -> Result<(), Vec<(Arc<str>, OpenError)>> {
        let mut addrs: Vec<Arc<str>> = self.topology.read().nodes().to_vec();
        for seed in &self.seeds {
            if !addrs.contains(seed) {
                addrs.push(seed.clone());
            }
        }
        for i in (1..addrs.len()).rev() {
            addrs.swap(i, self.below(i + 1));
        }
        let mut addrs = addrs.into_iter();
        let mut asked = FuturesUnordered::new();
        let mut failures = Vec::new();
        loop {
            if let Some(addr) = addrs.next() {
                asked.push(self.ask_map(addr));
            } else if asked.is_empty() {
                return Err(failures);
            }
            match timeout(NEXT_NODE_AFTER, asked.next()).await {
                Ok(Some(Ok(map))) => {
                    self.options.observer.map_refreshed(map.nodes().len());
                    *self.topology.write() = map;
                    return Ok(());
                }
                Ok(Some(Err(failure))) => failures.push(failure),
                Ok(None) | Err(_) => {}
            }
        }
    }

    async fn ask_map(&self, addr: Arc<str>) -> Result<Topology, (Arc<str>, OpenError)> {
        let asked = async {
            let connection = self.nodes.shared(&addr).await?;
            let unit = Cmd::read("CLUSTER SLOTS").unit();
            let until = Instant::now() + self.options.attempt_timeout;
            let mut replies = match connection.call(unit.frame, unit.replies, None, until).await {
                Ok(replies) => replies,
                Err(broken) => {
                    self.nodes.set_aside(&connection).await;
                    return Err(OpenError::Later(broken.to_string()));
                }
            };
            match replies.pop() {
                Some(Value::Error(text)) => {
                    let text = String::from_utf8_lossy(&text);
                    if text.contains("cluster support disabled") || text.contains("unknown command") {
                        // A server on its own leads everything.
                        Ok(Topology::single(&addr))
                    } else {
                        Err(OpenError::Later(text.into_owned()))
                    }
                }
                Some(value) => match Topology::parse(&value, &addr) {
                    Some(map) if map.serves_nothing() => Err(OpenError::Later("it knows no leader".into())),
                    Some(map) => Ok(map),
                    None => Err(OpenError::Never(Error::unexpected("CLUSTER SLOTS", &value))),
                },
                None => Err(OpenError::Later("no reply".into())),
            }
        };
        asked.await.map_err(|error| (addr, error))
    }
}

/// `min` doubled for each attempt up to `max`, then shortened by a random part of up to a half.
pub(crate) fn jittered(env: &Env, min: Duration, max: Duration, attempts: u32) -> Duration {
    let full = min.saturating_mul(1 << attempts.saturating_sub(1).min(16)).min(max);
    let half_us = u64::try_from((full / 2).as_micros()).unwrap_or(u64::MAX);
    full - Duration::from_micros(env.rng.u64() % half_us.saturating_add(1))
}

/// Refreshes the map when it is wanted and from time to time, as long as the client lives.
async fn keep_map(client: Weak<Inner>, wanted: Arc<Notify>, every: Duration) {
    loop {
        let _ = timeout(every, wanted.notified()).await;
        let Some(inner) = client.upgrade() else { return };
        if let Err(failures) = inner.refresh().await {
            tracing::debug!(target: "weir_client", ?failures, "no node tells the map");
        }
        drop(inner);
        sleep(MAP_PAUSE).await;
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // The keeper of the map looks around and ends.
        self.map_wanted.notify_one();
    }
}
