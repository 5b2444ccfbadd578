//! The inbound side of the peer protocol.
//!
//! Accepts connections, checks on every call that it comes from this cluster and is meant for this node,
//! and hands it to the group or to the server's handler.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use http::{HeaderMap, Request, Response};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use parking_lot::{Mutex, RwLock};
use tonic::body::Body;
use tonic::server::Grpc;
use tonic::{Status, Streaming};
use weir_env::{BoxStream as Connection, Env, Listener, TaskHandle};
use weir_store::GroupId;

use crate::contact::Claim;
use crate::peers::{
    CONNECTION_WINDOW_BYTES, HEADER_CLUSTER, HEADER_FROM, HEADER_FROM_HEX, HEADER_GROUP, HEADER_KIND,
    HEADER_TO, MESSAGE_BYTES_MAX, NO_GROUP, PROBE_AFTER, PROBE_TIMEOUT, RawCodec, STREAM_WINDOW_BYTES,
    method,
};
use crate::types::TypeConfig;
use crate::{Group, NodeId, Peers, wire};

type AppendRequest = openraft::raft::AppendEntriesRequest<TypeConfig>;
type VoteRequest = openraft::raft::VoteRequest<TypeConfig>;

/// A failed accept is tried again after this long.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// The groups of this node; they may register and leave at any time.
#[derive(Clone, Default)]
pub struct Registry(Arc<RwLock<BTreeMap<u32, Group>>>);

impl Registry {
    /// No groups yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// From now on peers reach the group.
    pub fn insert(&self, group: Group) {
        self.0.write().insert(group.id().0, group);
    }

    /// From now on peers hear that there is no such group.
    pub fn remove(&self, id: GroupId) -> Option<Group> {
        self.0.write().remove(&id.0)
    }

    /// The group, if it has registered.
    pub fn get(&self, id: GroupId) -> Option<Group> {
        self.0.read().get(&id.0).cloned()
    }

    /// All groups, in order of their number.
    pub fn all(&self) -> Vec<Group> {
        self.0.read().values().cloned().collect()
    }
}

/// Who made a generic call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallFrom {
    /// Whether cluster id, sender and receiver all match; only then the other fields can be trusted to
    /// name a member of this cluster.
    pub verified: bool,
    /// The number the caller gives itself; 0 before it has one.
    pub node: NodeId,
    /// The identity the caller gives itself, 40 hex digits.
    pub node_hex: String,
    /// The cluster the caller belongs to; empty before it has one.
    pub cluster_id: String,
}

/// What the server answers to its peers besides consensus.
#[async_trait::async_trait]
pub trait PeerHandler: Send + Sync + 'static {
    /// Answers a call, or says in words why not. Unverified callers arrive here too.
    async fn call(&self, from: CallFrom, kind: u16, payload: Bytes) -> Result<Bytes, String>;
}

/// Serves peers until `shutdown` ends, then closes all their connections.
///
/// An accept that fails (too many open files, say) is tried again after a moment.
pub async fn serve_peers(
    env: Env,
    listener: Box<dyn Listener>,
    peers: Peers,
    groups: Registry,
    handler: Arc<dyn PeerHandler>,
    shutdown: impl Future<Output = ()> + Send,
) {
    let service = Arc::new(PeerService { peers, groups, handler });
    let mut connections: Vec<TaskHandle> = Vec::new();
    tokio::pin!(shutdown);
    loop {
        let accepted = tokio::select! {
            biased;
            () = &mut shutdown => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                connections.retain(|connection| !connection.is_finished());
                let serve = serve_connection(service.clone(), stream);
                connections.push(env.spawn.spawn("peer connection", Box::pin(serve)));
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a peer connection");
                weir_env::time::sleep(ACCEPT_RETRY).await;
            }
        }
    }
    for connection in connections {
        connection.abort();
        connection.join().await;
    }
}

async fn serve_connection(service: Arc<PeerService>, stream: Connection) {
    let serve = hyper::service::service_fn(move |request: Request<Incoming>| {
        let service = service.clone();
        async move { Ok::<_, Infallible>(service.handle(request).await) }
    });
    let served = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
        // Nobody reads it, and it is wall time on the wire: runs of one seed would differ.
        .auto_date_header(false)
        .timer(TokioTimer::new())
        .keep_alive_interval(PROBE_AFTER * 4)
        .keep_alive_timeout(PROBE_TIMEOUT * 2)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_concurrent_streams(None)
        .serve_connection(TokioIo::new(stream), serve)
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, "peer connection ended");
    }
}

struct PeerService {
    peers: Peers,
    groups: Registry,
    handler: Arc<dyn PeerHandler>,
}

impl PeerService {
    async fn handle(&self, request: Request<Incoming>) -> Response<Body> {
        let request = request.map(Body::new);
        match request.uri().path() {
            method::CALL => self.call(request).await,
            path @ (method::APPEND | method::BEAT) => match self.group(request.headers()) {
                Ok(group) if path == method::BEAT => beats(group, request).await,
                Ok(group) => append(group, request).await,
                Err(status) => status.into_http(),
            },
            path => {
                let Some(method) = UnaryMethod::of(path) else {
                    return Status::unimplemented("no such method").into_http();
                };
                match self.group(request.headers()) {
                    Ok(group) => unary(group, method, request).await,
                    Err(status) => status.into_http(),
                }
            }
        }
    }

    /// The group a verified call is meant for.
    fn group(&self, headers: &HeaderMap) -> Result<Group, Status> {
        self.verify(headers).map_err(Status::permission_denied)?;
        let id = number(headers, HEADER_GROUP).ok_or_else(|| Status::not_found(NO_GROUP))?;
        self.groups.get(GroupId(id as u32)).ok_or_else(|| Status::not_found(NO_GROUP))
    }

    fn verify(&self, headers: &HeaderMap) -> Result<(), String> {
        let identity = self.peers.identity();
        let cluster = text(headers, HEADER_CLUSTER);
        if cluster != identity.cluster_id || cluster.is_empty() {
            return Err(format!("this is cluster {}, not {cluster}", identity.cluster_id));
        }
        let me = self.peers.me();
        if number(headers, HEADER_TO) != Some(me) {
            return Err(format!("this is node {me}, not {}", text(headers, HEADER_TO)));
        }
        let from = number(headers, HEADER_FROM).unwrap_or_default();
        if from == me {
            return Err(format!("the caller claims to be this node, {me}"));
        }
        match self.peers.node_hex(from) {
            Some(known) if known != text(headers, HEADER_FROM_HEX) => {
                Err(format!("the caller is not the node {from} of this cluster"))
            }
            _ => Ok(()),
        }
    }

    async fn call(&self, request: Request<Body>) -> Response<Body> {
        let headers = request.headers();
        let from = CallFrom {
            verified: self.verify(headers).is_ok(),
            node: number(headers, HEADER_FROM).unwrap_or_default(),
            node_hex: text(headers, HEADER_FROM_HEX).to_owned(),
            cluster_id: text(headers, HEADER_CLUSTER).to_owned(),
        };
        // A caller that names the receiver is past bootstrap and must be right about it.
        if headers.contains_key(HEADER_TO)
            && let Err(reason) = self.verify(headers)
        {
            return Status::permission_denied(reason).into_http();
        }
        let kind = number(headers, HEADER_KIND).unwrap_or_default() as u16;
        let handler = self.handler.clone();
        let answer = tower::service_fn(move |request: tonic::Request<Bytes>| {
            let (handler, from) = (handler.clone(), from.clone());
            async move {
                let answer = handler.call(from, kind, request.into_inner()).await;
                answer.map(tonic::Response::new).map_err(Status::aborted)
            }
        });
        server().unary(answer, request).await
    }
}

fn server() -> Grpc<RawCodec> {
    Grpc::new(RawCodec).max_decoding_message_size(MESSAGE_BYTES_MAX)
}

fn text<'h>(headers: &'h HeaderMap, name: &str) -> &'h str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

fn number(headers: &HeaderMap, name: &str) -> Option<u64> {
    text(headers, name).parse().ok()
}

#[derive(Clone, Copy)]
enum UnaryMethod {
    Vote,
    PreVote,
    Transfer,
    Snapshot,
    Standing,
}

impl UnaryMethod {
    fn of(path: &str) -> Option<Self> {
        Some(match path {
            method::VOTE => Self::Vote,
            method::PRE_VOTE => Self::PreVote,
            method::TRANSFER => Self::Transfer,
            method::SNAPSHOT => Self::Snapshot,
            method::STANDING => Self::Standing,
            _ => return None,
        })
    }
}

async fn unary(group: Group, method: UnaryMethod, request: Request<Body>) -> Response<Body> {
    let answer = tower::service_fn(move |request: tonic::Request<Bytes>| {
        let group = group.clone();
        async move { answer(group, method, request.into_inner()).await.map(tonic::Response::new) }
    });
    server().unary(answer, request).await
}

async fn answer(group: Group, method: UnaryMethod, payload: Bytes) -> Result<Bytes, Status> {
    let malformed = |error: wire::DecodeError| Status::invalid_argument(error.to_string());
    let stopped = |error: &dyn std::fmt::Display| Status::unavailable(error.to_string());
    let raft = group.raft();
    Ok(match method {
        UnaryMethod::Vote => {
            let request: VoteRequest = wire::from_bytes("vote request", &payload).map_err(malformed)?;
            group.may_elect(request.last_log_id.as_ref())?;
            wire::to_bytes(&raft.vote(request).await.map_err(|error| stopped(&error))?)
        }
        UnaryMethod::PreVote => {
            let request: VoteRequest = wire::from_bytes("vote request", &payload).map_err(malformed)?;
            group.may_elect(request.last_log_id.as_ref())?;
            wire::to_bytes(&raft.pre_vote(request).await.map_err(|error| stopped(&error))?)
        }
        UnaryMethod::Transfer => {
            let request = wire::from_bytes("transfer request", &payload).map_err(malformed)?;
            if *group.tail_lost().borrow() {
                return Err(Status::unavailable("it may have lost its log's tail and does not lead yet"));
            }
            wire::to_bytes(&raft.handle_transfer_leader(request).await.map_err(|error| stopped(&error))?)
        }
        UnaryMethod::Snapshot => group.receive_snapshot(payload).await?,
        UnaryMethod::Standing => {
            let question = wire::from_bytes("standing question", &payload).map_err(malformed)?;
            wire::to_bytes(&group.standing(question).await?)
        }
    })
}

async fn append(group: Group, request: Request<Body>) -> Response<Body> {
    let answer = tower::service_fn(move |request: tonic::Request<Streaming<Bytes>>| {
        let group = group.clone();
        async move {
            // A broken or malformed message ends the stream; the leader opens another.
            // Every request has its answer, in order.
            let claims = Arc::new(Mutex::new(VecDeque::new()));
            let claimed = claims.clone();
            let requests = futures_util::stream::unfold(request.into_inner(), next_request)
                .inspect(move |request| claimed.lock().push_back(claim(request)));
            let raft = group.raft().clone();
            let answers = raft.stream_append(requests).map(move |answer| match answer {
                Ok(answer) => {
                    let claim = claims.lock().pop_front();
                    if let (Ok(_), Some(claim)) = (&answer, claim) {
                        group.contact().accepted(claim);
                    }
                    Ok(wire::encode_append_answer(&answer))
                }
                Err(fatal) => Err(Status::unavailable(fatal.to_string())),
            });
            Ok::<_, Status>(tonic::Response::new(Box::pin(answers) as BoxStream<'static, _>))
        }
    });
    server().streaming(answer, request).await
}

/// Answers heartbeats one by one, see [`Group::beat`].
async fn beats(group: Group, request: Request<Body>) -> Response<Body> {
    let answer = tower::service_fn(move |request: tonic::Request<Streaming<Bytes>>| {
        let group = group.clone();
        async move {
            let answers = futures_util::stream::unfold(request.into_inner(), move |messages| {
                let group = group.clone();
                async move {
                    let (request, messages) = next_request(messages).await?;
                    let claim = claim(&request);
                    let answer = group.beat(request).await;
                    if let Ok(Ok(_)) = &answer {
                        group.contact().accepted(claim);
                    }
                    let answer = answer.map(|answer| wire::encode_append_answer(&answer));
                    Some((answer.map_err(|fatal| Status::unavailable(fatal.to_string())), messages))
                }
            });
            Ok::<_, Status>(tonic::Response::new(Box::pin(answers) as BoxStream<'static, _>))
        }
    });
    server().streaming(answer, request).await
}

fn claim(request: &AppendRequest) -> Claim {
    Claim::arrived(&request.vote, request.leader_commit.as_ref())
}

async fn next_request(mut messages: Streaming<Bytes>) -> Option<(AppendRequest, Streaming<Bytes>)> {
    let message = match messages.message().await {
        Ok(message) => message?,
        Err(status) => {
            tracing::debug!(%status, "an append stream broke");
            return None;
        }
    };
    match wire::decode_append(message) {
        Ok(request) => Some((request, messages)),
        Err(error) => {
            tracing::error!(%error, "an append request does not decode");
            None
        }
    }
}
