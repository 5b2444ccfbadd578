//! The outbound side of the peer protocol: three connections a peer, shared by all groups, so that a heartbeat does not
//! queue behind a large entry or behind the work of clients.
//!
//! gRPC over the node's [`weir_env::Net`]. Messages are raw bytes, so nothing is generated. Every call
//! carries the cluster id, the sender and the receiver; the receiving side refuses what does not match.
//! A connection is dialed when the first call needs it and dialed again by the next call after it broke.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes};
use http::Uri;
use http::uri::PathAndQuery;
use hyper_util::rt::TokioIo;
use parking_lot::RwLock;
use tonic::codec::{BufferSettings, Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::metadata::MetadataValue;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status, Streaming};
use weir_env::Env;
use weir_store::GroupId;

use crate::{Error, NodeId};

/// Largest message of the peer protocol, in bytes.
pub(crate) const MESSAGE_BYTES_MAX: usize = 1 << 30;
/// Flow-control windows of a connection, in bytes: a large batch must not wait for window updates.
pub(crate) const STREAM_WINDOW_BYTES: u32 = 4 << 20;
pub(crate) const CONNECTION_WINDOW_BYTES: u32 = 16 << 20;
/// A silent connection is probed after this long, and given up when the probe stays unanswered.
pub(crate) const PROBE_AFTER: Duration = Duration::from_millis(1000);
pub(crate) const PROBE_TIMEOUT: Duration = Duration::from_millis(1000);
/// Dialing longer than this is a failure.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);
/// A failed dial takes at least this long, so that callers who retry at once do not spin.
const CONNECT_PENALTY: Duration = Duration::from_millis(20);

pub(crate) const HEADER_CLUSTER: &str = "weir-cluster";
pub(crate) const HEADER_FROM: &str = "weir-from";
pub(crate) const HEADER_FROM_HEX: &str = "weir-from-hex";
pub(crate) const HEADER_TO: &str = "weir-to";
pub(crate) const HEADER_GROUP: &str = "weir-group";
pub(crate) const HEADER_KIND: &str = "weir-kind";

/// Methods of the peer service. The paths are permanent.
pub(crate) mod method {
    pub(crate) const APPEND: &str = "/weir.Peer/Append";
    pub(crate) const BEAT: &str = "/weir.Peer/Beat";
    pub(crate) const VOTE: &str = "/weir.Peer/Vote";
    pub(crate) const PRE_VOTE: &str = "/weir.Peer/PreVote";
    pub(crate) const TRANSFER: &str = "/weir.Peer/Transfer";
    pub(crate) const SNAPSHOT: &str = "/weir.Peer/Snapshot";
    pub(crate) const STANDING: &str = "/weir.Peer/Standing";
    pub(crate) const CALL: &str = "/weir.Peer/Call";

    /// The connection for it. Messages of some may be so large that others should not wait behind them.
    pub(super) fn line(method: &str) -> super::Line {
        if matches!(method, APPEND | SNAPSHOT) { super::Line::Bulk } else { super::Line::Urgent }
    }
}

/// Who this node is to its peers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PeerIdentity {
    /// The cluster's id; empty before the cluster exists.
    pub cluster_id: String,
    /// This node's identity, 40 hex digits.
    pub node_hex: String,
}

/// Clients of all peers. Cheap to clone; all clones share the connections.
#[derive(Clone)]
pub struct Peers(Arc<Inner>);

struct Inner {
    env: Env,
    me: RwLock<Me>,
    peers: RwLock<BTreeMap<NodeId, Arc<Peer>>>,
    /// Connections by address, for calls made before node numbers are known.
    by_addr: RwLock<BTreeMap<String, Channel>>,
}

#[derive(Clone)]
struct Me {
    id: NodeId,
    identity: PeerIdentity,
}

struct Peer {
    addr: RwLock<String>,
    hex: RwLock<Option<String>>,
    /// Entries and snapshots.
    channel: RwLock<Option<Channel>>,
    /// What must not queue behind them: heartbeats, votes, and calls with small answers.
    urgent: RwLock<Option<Channel>>,
    /// What clients of this node want done there.
    work: RwLock<Option<Channel>>,
}

/// Which connection to a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Line {
    Bulk,
    Urgent,
    Work,
}

impl Peers {
    /// Nothing is dialed until the first call.
    pub fn new(env: Env, me: NodeId, identity: PeerIdentity) -> Self {
        Self(Arc::new(Inner {
            env,
            me: RwLock::new(Me { id: me, identity }),
            peers: RwLock::default(),
            by_addr: RwLock::default(),
        }))
    }

    /// Replaces this node's number and identity, for when bootstrap has settled them.
    pub fn set_me(&self, me: NodeId, identity: PeerIdentity) {
        *self.0.me.write() = Me { id: me, identity };
    }

    /// This node's number.
    pub fn me(&self) -> NodeId {
        self.0.me.read().id
    }

    /// This node's identity.
    pub fn identity(&self) -> PeerIdentity {
        self.0.me.read().identity.clone()
    }

    /// Sets where a node is reached (`host:port`). A changed address drops the old connection.
    pub fn set_addr(&self, node: NodeId, addr: String) {
        let peer = self.peer(node);
        if *peer.addr.read() != addr {
            *peer.addr.write() = addr;
            *peer.channel.write() = None;
            *peer.urgent.write() = None;
            *peer.work.write() = None;
        }
    }

    /// Sets the identity that calls of `node` must carry. Calls of a node without one are not checked for it.
    pub fn set_node_hex(&self, node: NodeId, hex: String) {
        *self.peer(node).hex.write() = Some(hex);
    }

    /// Where a node is reached, if known.
    pub fn addr(&self, node: NodeId) -> Option<String> {
        let peer = self.0.peers.read().get(&node).cloned()?;
        let addr = peer.addr.read().clone();
        (!addr.is_empty()).then_some(addr)
    }

    /// Sets the address only where none is known.
    pub(crate) fn suggest_addr(&self, node: NodeId, addr: &str) {
        if self.addr(node).is_none() {
            self.set_addr(node, addr.to_owned());
        }
    }

    pub(crate) fn node_hex(&self, node: NodeId) -> Option<String> {
        self.0.peers.read().get(&node).and_then(|peer| peer.hex.read().clone())
    }

    /// Asks a peer's handler and waits for the answer.
    ///
    /// # Errors
    /// [`Error::Unreachable`] and [`Error::Timeout`] leave open whether the peer acted. After [`Error::NotConnected`],
    /// [`Error::NoAddress`] and [`Error::Refused`] it did not; after [`Error::Remote`] its handler says so in words.
    pub async fn call(
        &self,
        to: NodeId,
        kind: u16,
        payload: Bytes,
        timeout: Duration,
    ) -> Result<Bytes, Error> {
        self.call_on(Line::Urgent, to, kind, payload, timeout).await
    }

    /// As [`Peers::call`], for what is large or takes long: on a connection of its own, behind which neither heartbeats
    /// nor entries wait. Dropping the future tells the peer, which drops what it does for the call.
    ///
    /// # Errors
    /// As [`Peers::call`].
    pub async fn call_work(
        &self,
        to: NodeId,
        kind: u16,
        payload: Bytes,
        timeout: Duration,
    ) -> Result<Bytes, Error> {
        self.call_on(Line::Work, to, kind, payload, timeout).await
    }

    async fn call_on(
        &self,
        line: Line,
        to: NodeId,
        kind: u16,
        payload: Bytes,
        timeout: Duration,
    ) -> Result<Bytes, Error> {
        let channel = self.channel(to, line)?;
        let mut request = Request::new(payload);
        self.sign(&mut request, Some(to));
        put_number(&mut request, HEADER_KIND, u64::from(kind));
        unary(channel, method::CALL, request, &to.to_string(), timeout).await
    }

    /// Asks whoever listens at `addr` (`host:port`); for before node numbers are known. The receiver
    /// decides what an unverified caller may ask.
    ///
    /// # Errors
    /// As [`Peers::call`].
    pub async fn call_addr(
        &self,
        addr: &str,
        kind: u16,
        payload: Bytes,
        timeout: Duration,
    ) -> Result<Bytes, Error> {
        let known = self.0.by_addr.read().get(addr).cloned();
        let channel = known.unwrap_or_else(|| {
            let channel = self.dial(addr.to_owned());
            self.0.by_addr.write().insert(addr.to_owned(), channel.clone());
            channel
        });
        let mut request = Request::new(payload);
        self.sign(&mut request, None);
        put_number(&mut request, HEADER_KIND, u64::from(kind));
        unary(channel, method::CALL, request, addr, timeout).await
    }

    /// Drops the connections made by address.
    pub fn forget_addrs(&self) {
        self.0.by_addr.write().clear();
    }

    /// One call of a group to the same group on a peer.
    pub(crate) async fn group_call(
        &self,
        to: NodeId,
        group: GroupId,
        method: &'static str,
        payload: Bytes,
        timeout: Duration,
    ) -> Result<Bytes, Error> {
        let channel = self.channel(to, method::line(method))?;
        let mut request = Request::new(payload);
        self.sign(&mut request, Some(to));
        put_number(&mut request, HEADER_GROUP, u64::from(group.0));
        unary(channel, method, request, &to.to_string(), timeout).await.map_err(|error| match error {
            Error::Invalid(reason) if reason == NO_GROUP => {
                Error::NoGroup { peer: to.to_string(), group: group.0 }
            }
            other => other,
        })
    }

    /// Opens a stream of append requests of a group to a peer. `timeout` bounds the opening alone.
    pub(crate) async fn append_stream<S>(
        &self,
        to: NodeId,
        group: GroupId,
        method: &'static str,
        input: S,
        timeout: Duration,
    ) -> Result<Streaming<Bytes>, Error>
    where
        S: futures_util::Stream<Item = Bytes> + Send + 'static,
    {
        let channel = self.channel(to, method::line(method))?;
        let mut request = Request::new(input);
        self.sign(&mut request, Some(to));
        put_number(&mut request, HEADER_GROUP, u64::from(group.0));
        let peer = to.to_string();
        let open = async {
            let mut grpc = client(channel);
            grpc.ready().await.map_err(|error| unreachable(&peer, &error))?;
            let path = PathAndQuery::from_static(method);
            grpc.streaming(request, path, RawCodec).await.map_err(|status| refusal(&peer, &status))
        };
        match weir_env::time::timeout(timeout, open).await {
            Ok(response) => Ok(response?.into_inner()),
            Err(_) => Err(Error::Timeout { peer, millis: timeout.as_millis() as u64 }),
        }
    }

    fn peer(&self, node: NodeId) -> Arc<Peer> {
        if let Some(peer) = self.0.peers.read().get(&node) {
            return peer.clone();
        }
        let fresh = || {
            Arc::new(Peer {
                addr: RwLock::default(),
                hex: RwLock::default(),
                channel: RwLock::default(),
                urgent: RwLock::default(),
                work: RwLock::default(),
            })
        };
        self.0.peers.write().entry(node).or_insert_with(fresh).clone()
    }

    fn channel(&self, to: NodeId, line: Line) -> Result<Channel, Error> {
        let peer = self.peer(to);
        let channel = match line {
            Line::Bulk => &peer.channel,
            Line::Urgent => &peer.urgent,
            Line::Work => &peer.work,
        };
        if let Some(channel) = &*channel.read() {
            return Ok(channel.clone());
        }
        let addr = peer.addr.read().clone();
        if addr.is_empty() {
            return Err(Error::NoAddress(to));
        }
        let mut slot = channel.write();
        Ok(slot.get_or_insert_with(|| self.dial(addr)).clone())
    }

    /// A connection that is made when first used, and made again by the next use after it broke.
    fn dial(&self, addr: String) -> Channel {
        let env = self.0.env.clone();
        let connector = tower::service_fn(move |_: Uri| {
            let (env, addr) = (env.clone(), addr.clone());
            async move {
                let connected = weir_env::time::timeout(CONNECT_TIMEOUT, env.net.connect(&addr)).await;
                let error = match connected {
                    Ok(Ok(stream)) => return Ok(TokioIo::new(stream)),
                    Ok(Err(error)) => error,
                    Err(_) => std::io::Error::new(std::io::ErrorKind::TimedOut, "connect timed out"),
                };
                weir_env::time::sleep(CONNECT_PENALTY).await;
                Err(std::io::Error::new(error.kind(), NotConnected(error.to_string())))
            }
        });
        Endpoint::from_static("http://weir")
            .http2_keep_alive_interval(PROBE_AFTER)
            .keep_alive_timeout(PROBE_TIMEOUT)
            .keep_alive_while_idle(true)
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .connect_with_connector_lazy(connector)
    }

    fn sign<T>(&self, request: &mut Request<T>, to: Option<NodeId>) {
        let me = self.0.me.read().clone();
        put_text(request, HEADER_CLUSTER, &me.identity.cluster_id);
        put_number(request, HEADER_FROM, me.id);
        put_text(request, HEADER_FROM_HEX, &me.identity.node_hex);
        if let Some(to) = to {
            put_number(request, HEADER_TO, to);
        }
    }
}

/// The text by which a peer says that it does not have the group.
pub(crate) const NO_GROUP: &str = "no such group";

fn put_text<T>(request: &mut Request<T>, header: &'static str, value: &str) {
    // Ids are hex digits; anything else is left out and the receiver refuses the call.
    if let Ok(value) = MetadataValue::try_from(value) {
        request.metadata_mut().insert(header, value);
    }
}

fn put_number<T>(request: &mut Request<T>, header: &'static str, value: u64) {
    request.metadata_mut().insert(header, MetadataValue::from(value));
}

fn client(channel: Channel) -> tonic::client::Grpc<Channel> {
    tonic::client::Grpc::new(channel).max_decoding_message_size(MESSAGE_BYTES_MAX)
}

async fn unary(
    channel: Channel,
    method: &'static str,
    request: Request<Bytes>,
    peer: &str,
    timeout: Duration,
) -> Result<Bytes, Error> {
    let call = async {
        let mut grpc = client(channel);
        grpc.ready().await.map_err(|error| unreachable(peer, &error))?;
        let path = PathAndQuery::from_static(method);
        grpc.unary(request, path, RawCodec).await.map_err(|status| refusal(peer, &status))
    };
    match weir_env::time::timeout(timeout, call).await {
        Ok(response) => Ok(response?.into_inner()),
        Err(_) => Err(Error::Timeout { peer: peer.to_owned(), millis: timeout.as_millis() as u64 }),
    }
}

/// Why a dial failed; found in the causes of what the transport reports. A request that gets this as its end was never
/// given to a connection: the transport hands the failure of a dial to the one request that it was made for.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct NotConnected(String);

fn is_not_connected(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        let io = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        if error.is::<NotConnected>() || io.is_some_and(|inner| inner.is::<NotConnected>()) {
            return true;
        }
        next = error.source();
    }
    false
}

fn unreachable(peer: &str, error: &dyn std::error::Error) -> Error {
    Error::Unreachable { peer: peer.to_owned(), reason: innermost(error) }
}

/// The last cause of an error chain: the one that names the address or the system error.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}

pub(crate) fn refusal(peer: &str, status: &Status) -> Error {
    let peer = peer.to_owned();
    let reason = status.message().to_owned();
    match status.code() {
        Code::PermissionDenied => Error::Refused { peer, reason },
        Code::NotFound if reason == NO_GROUP => Error::Invalid(reason),
        Code::Aborted => Error::Remote { peer, reason },
        Code::DeadlineExceeded => Error::Timeout { peer, millis: 0 },
        _ if is_not_connected(status) => Error::NotConnected { peer, reason: innermost(status) },
        _ => Error::Unreachable { peer, reason: innermost(status) },
    }
}

/// Messages as they are: bytes in, bytes out.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RawCodec;

impl Codec for RawCodec {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = RawCodec;
    type Decoder = RawCodec;

    fn encoder(&mut self) -> RawCodec {
        RawCodec
    }

    fn decoder(&mut self) -> RawCodec {
        RawCodec
    }
}

impl Encoder for RawCodec {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, out: &mut EncodeBuf<'_>) -> Result<(), Status> {
        out.reserve(item.len());
        out.put_slice(&item);
        Ok(())
    }

    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::new(8 << 10, 64 << 10)
    }
}

impl Decoder for RawCodec {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, message: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(message.copy_to_bytes(message.remaining())))
    }
}
