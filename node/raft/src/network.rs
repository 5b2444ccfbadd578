//! The consensus library's network over [`Peers`].

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use openraft::base::{BoxFuture, BoxStream};
use openraft::errors::{NetworkError, RPCError, ReplicationClosed, StreamingError, Unreachable};
use openraft::network::{
    Backoff, NetBackoff, NetSnapshot, NetStreamAppend, NetTransferLeader, NetVote, RPCOption,
    RaftNetworkFactory,
};
use openraft::raft::{
    AppendEntriesRequest, SnapshotResponse, StreamAppendError, StreamAppendResult, TransferLeaderRequest,
    TransferLeaderResponse, VoteRequest, VoteResponse,
};
use openraft::{BasicNode, OptionalSend};
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::{mpsc, oneshot};
use tonic::Streaming;
use weir_env::time::{Instant, Sleep};
use weir_store::GroupId;

use crate::lost_tail::LostTail;
use crate::peers::{self, method};
use crate::reversion::Reversions;
use crate::snapshot_file::SnapshotData;
use crate::snapshot_transfer;
use crate::types::{LogId, TypeConfig, Vote};
use crate::{Error, NodeId, Peers, wire};

/// A stream whose requests stay unanswered for this long is given up. Dead connections are found by the
/// connection's own probes much earlier; this is for a peer that lives and does not answer, and long
/// enough for a slow disk with a large batch.
const STREAM_IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// Opening a stream takes one round trip.
const STREAM_OPEN_TIMEOUT: Duration = Duration::from_secs(1);
/// The news of a commit waits this long for entries to travel with; a heartbeat may tell it earlier.
const COMMIT_HOLD: Duration = Duration::from_millis(5);
/// Waits between attempts to reach a peer that is gone: doubling, and short, because a peer that comes
/// back should not be left behind.
const BACKOFF_START: Duration = Duration::from_millis(20);
const BACKOFF_MAX: Duration = Duration::from_millis(200);

type RpcError = RPCError<TypeConfig>;
type AppendRequest = AppendEntriesRequest<TypeConfig>;
type AppendAnswer = StreamAppendResult<TypeConfig>;

/// Makes a group's links to its peers.
pub(crate) struct Network {
    pub(crate) peers: Peers,
    pub(crate) group: GroupId,
    pub(crate) lost_tail: Arc<LostTail>,
    pub(crate) reversions: Arc<Reversions>,
}

impl Network {
    fn link(&self, to: NodeId, node: &BasicNode, beats: bool) -> Link {
        self.peers.suggest_addr(to, &node.addr);
        Link {
            peers: self.peers.clone(),
            group: self.group,
            to,
            lost_tail: self.lost_tail.clone(),
            confirmed: Confirmed { to, reversions: self.reversions.clone(), last: Arc::default() },
            beats,
            beat_stream: None,
        }
    }
}

impl RaftNetworkFactory<TypeConfig> for Network {
    type Network = Link;

    async fn new_client(&mut self, target: NodeId, node: &BasicNode) -> Link {
        self.link(target, node, false)
    }

    async fn new_heartbeat_client(&mut self, target: NodeId, node: &BasicNode) -> Link {
        self.link(target, node, true)
    }
}

/// A group's link to one peer; many share one connection.
pub(crate) struct Link {
    peers: Peers,
    group: GroupId,
    to: NodeId,
    lost_tail: Arc<LostTail>,
    confirmed: Confirmed,
    /// Heartbeats come as streams of one request each; they share one stream that stays open.
    beats: bool,
    beat_stream: Option<BeatStream>,
}

/// What a follower confirmed to this leader.
#[derive(Clone)]
struct Confirmed {
    to: NodeId,
    reversions: Arc<Reversions>,
    last: Arc<Mutex<Option<LogId>>>,
}

impl Confirmed {
    /// Lets an answer through unless it takes back what was confirmed.
    fn check(&self, answer: AppendAnswer) -> Result<AppendAnswer, RpcError> {
        match &answer {
            Ok(matched) => {
                let mut last = self.last.lock();
                *last = (*last).max(*matched);
            }
            Err(StreamAppendError::Conflict(at)) => {
                let back = self.last.lock().is_some_and(|last| at.index <= last.index);
                if back {
                    self.reversions.check(self.to, at).map_err(NetworkError::from_string)?;
                    *self.last.lock() = None;
                }
            }
            Err(StreamAppendError::HigherVote(_)) => {}
        }
        Ok(answer)
    }
}

struct BeatStream {
    requests: mpsc::UnboundedSender<Bytes>,
    answers: Streaming<Bytes>,
}

impl Link {
    async fn call<Q: Serialize, A: DeserializeOwned>(
        &self,
        method: &'static str,
        question: &Q,
        timeout: Duration,
    ) -> Result<A, RpcError> {
        let answer = self
            .peers
            .group_call(self.to, self.group, method, wire::to_bytes(question), timeout)
            .await
            .map_err(rpc_error)?;
        wire::from_bytes("answer", &answer).map_err(|error| NetworkError::new(&error).into())
    }

    /// A replica that lost its log's tail asks for no votes that it would not grant.
    fn may_ask(&self, request: &VoteRequest<TypeConfig>) -> Result<(), RpcError> {
        let may = self.lost_tail.may_elect(request.last_log_id.as_ref());
        may.map_err(|why| NetworkError::from_string(why).into())
    }

    /// Sends one heartbeat. The stream is kept only while each request has had its answer: a call that is
    /// given up takes the stream with it, so answers cannot fall out of step.
    async fn beat(&mut self, request: &AppendRequest, timeout: Duration) -> Result<AppendAnswer, RpcError> {
        let mut stream = match self.beat_stream.take() {
            Some(stream) => stream,
            None => {
                let (requests, mut queue) = mpsc::unbounded_channel();
                let input = stream::poll_fn(move |cx| queue.poll_recv(cx));
                let answers =
                    self.peers.append_stream(self.to, self.group, method::BEAT, input, timeout).await;
                BeatStream { requests, answers: answers.map_err(rpc_error)? }
            }
        };
        let ended = || RpcError::from(NetworkError::from_string("the heartbeat stream ended"));
        stream.requests.send(wire::encode_append(request)).map_err(|_| ended())?;
        let answer = match weir_env::time::timeout(timeout, stream.answers.message()).await {
            Ok(Ok(Some(answer))) => answer,
            Ok(Ok(None)) => return Err(ended()),
            Ok(Err(status)) => return Err(rpc_error(peers::refusal(&self.to.to_string(), &status))),
            Err(_) => return Err(NetworkError::from_string("no answer to a heartbeat").into()),
        };
        let answer = wire::decode_append_answer(answer).map_err(|error| NetworkError::new(&error))?;
        if answer.is_ok() {
            self.beat_stream = Some(stream);
        }
        Ok(answer)
    }
}

pub(crate) fn rpc_error(error: Error) -> RpcError {
    match error {
        // The request may have arrived; the next one tells.
        Error::Timeout { .. } | Error::Remote { .. } => NetworkError::new(&error).into(),
        _ => Unreachable::new(&error).into(),
    }
}

impl NetStreamAppend<TypeConfig> for Link {
    fn stream_append<'s, S>(
        &'s mut self,
        mut input: S,
        option: RPCOption,
    ) -> BoxFuture<'s, Result<BoxStream<'s, Result<AppendAnswer, RpcError>>, RpcError>>
    where
        S: Stream<Item = AppendRequest> + OptionalSend + Unpin + 'static,
    {
        Box::pin(async move {
            // The first request is pulled before anything is dialed: producing it is where the library
            // waits out its backoff, and without that a dead peer would be dialed in a loop.
            let Some(first) = input.next().await else {
                return Ok(Box::pin(stream::empty()) as BoxStream<'s, _>);
            };
            if self.beats {
                // The library names in a heartbeat what it knows to match.
                *self.confirmed.last.lock() = first.prev_log_id;
                let answer = self.beat(&first, option.hard_ttl()).await;
                let answer = answer.and_then(|answer| self.confirmed.check(answer));
                return Ok(Box::pin(stream::iter([answer])) as BoxStream<'s, _>);
            }
            let sent = Arc::new(AtomicU64::new(0));
            let (alive, ended) = oneshot::channel();
            let requests = Requests {
                first: Some(first),
                rest: Some(input),
                output_dropped: ended,
                sent: sent.clone(),
                held: None,
                hold: Box::pin(weir_env::time::sleep(Duration::ZERO)),
            };
            let answers = self
                .peers
                .append_stream(self.to, self.group, method::APPEND, requests, STREAM_OPEN_TIMEOUT)
                .await
                .map_err(rpc_error)?;
            let confirmed = self.confirmed.clone();
            let reading = Answers { answers, sent, received: 0, confirmed, _alive: alive };
            Ok(Box::pin(stream::unfold(Some(reading), Answers::next)) as BoxStream<'s, _>)
        })
    }
}

/// The requests of one append stream, encoded on the way out.
///
/// It ends as soon as the answers are no longer read. The library keeps a lock inside the stream while it
/// waits for the next request, so a stream left behind by a broken connection would block its successor.
///
/// After each commit the library has news for the followers and no entries: a message a write, and an answer to
/// each, that nobody waits for. Such a request is held for [`COMMIT_HOLD`], and dropped when a later one, which
/// says the same and more, comes in that time. To the library both were sent when they were made, before they
/// really were: its proof of leadership gets no younger by it.
struct Requests<S> {
    first: Option<AppendRequest>,
    rest: Option<S>,
    output_dropped: oneshot::Receiver<()>,
    sent: Arc<AtomicU64>,
    held: Option<AppendRequest>,
    /// Ends the hold; meaningless while nothing is held.
    hold: Pin<Box<Sleep>>,
}

impl<S: Stream<Item = AppendRequest> + Unpin> Requests<S> {
    fn send(&mut self, request: &AppendRequest) -> Poll<Option<Bytes>> {
        self.sent.fetch_add(1, Ordering::Relaxed);
        Poll::Ready(Some(wire::encode_append(request)))
    }

    fn hold(&mut self, request: AppendRequest) {
        if self.held.is_none() {
            self.hold.as_mut().reset(Instant::now() + COMMIT_HOLD);
        }
        self.held = Some(request);
    }
}

impl<S: Stream<Item = AppendRequest> + Unpin> Stream for Requests<S> {
    type Item = Bytes;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let this = &mut *self;
        if Pin::new(&mut this.output_dropped).poll(cx).is_ready() {
            this.rest = None;
        }
        loop {
            let Some(rest) = &mut this.rest else { return Poll::Ready(None) };
            // The first may be a probe, which the library waits for.
            if let Some(first) = this.first.take() {
                return this.send(&first);
            }
            match rest.poll_next_unpin(cx) {
                Poll::Ready(Some(request)) if request.entries.is_empty() => this.hold(request),
                Poll::Ready(Some(request)) => {
                    this.held = None;
                    return this.send(&request);
                }
                Poll::Ready(None) => {
                    this.rest = None;
                    return match this.held.take() {
                        Some(held) => this.send(&held),
                        None => Poll::Ready(None),
                    };
                }
                Poll::Pending if this.held.is_some() => {
                    ready!(this.hold.as_mut().poll(cx));
                    let held = this.held.take().expect("looked at above");
                    return this.send(&held);
                }
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}

struct Answers {
    answers: Streaming<Bytes>,
    sent: Arc<AtomicU64>,
    received: u64,
    confirmed: Confirmed,
    /// Dropped with the answers; ends [`Requests`].
    _alive: oneshot::Sender<()>,
}

impl Answers {
    async fn next(this: Option<Self>) -> Option<(Result<AppendAnswer, RpcError>, Option<Self>)> {
        let mut this = this?;
        let message = loop {
            match weir_env::time::timeout(STREAM_IDLE_TIMEOUT, this.answers.message()).await {
                Ok(message) => break message,
                Err(_) if this.sent.load(Ordering::Relaxed) > this.received => {
                    let error = NetworkError::from_string("no answer on the append stream");
                    return Some((Err(error.into()), None));
                }
                Err(_) => {}
            }
        };
        this.received += 1;
        match message {
            Ok(None) => None,
            Ok(Some(answer)) => match wire::decode_append_answer(answer) {
                Ok(answer) => match this.confirmed.check(answer) {
                    Ok(answer) => Some((Ok(answer), Some(this))),
                    Err(error) => Some((Err(error), None)),
                },
                Err(error) => Some((Err(NetworkError::new(&error).into()), None)),
            },
            Err(status) => Some((Err(rpc_error(peers::refusal("", &status))), None)),
        }
    }
}

impl NetVote<TypeConfig> for Link {
    async fn vote(
        &mut self,
        request: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, RpcError> {
        self.may_ask(&request)?;
        self.call(method::VOTE, &request, option.hard_ttl()).await
    }

    async fn pre_vote(
        &mut self,
        request: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, RpcError> {
        self.may_ask(&request)?;
        self.call(method::PRE_VOTE, &request, option.hard_ttl()).await
    }
}

impl NetTransferLeader<TypeConfig> for Link {
    async fn transfer_leader(
        &mut self,
        request: TransferLeaderRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<TransferLeaderResponse<TypeConfig>, RpcError> {
        self.call(method::TRANSFER, &request, option.hard_ttl()).await
    }
}

impl NetBackoff<TypeConfig> for Link {
    fn backoff(&self) -> Option<Backoff> {
        let waits = std::iter::successors(Some(BACKOFF_START), |wait| Some((*wait * 2).min(BACKOFF_MAX)));
        Some(Backoff::new(waits))
    }
}

impl NetSnapshot<TypeConfig> for Link {
    type SnapshotData = SnapshotData;

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: openraft::alias::SnapshotOf<TypeConfig, SnapshotData>,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<TypeConfig>, StreamingError<TypeConfig>> {
        let SnapshotData::Stored(file) = snapshot.snapshot else {
            return Err(NetworkError::from_string("a snapshot that is not installed here").into());
        };
        let send = snapshot_transfer::send(&self.peers, self.group, self.to, vote, file);
        tokio::select! {
            biased;
            closed = cancel => Err(closed.into()),
            sent = send => sent,
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::StreamExt;
    use openraft::EntryPayload;
    use weir_store::LogPosition;

    use super::*;
    use crate::types::{Entry, Proposal, log_id};

    fn request(prev: u64, commit: u64, entries: u64) -> AppendRequest {
        let at = |index| log_id(LogPosition::new(1, index));
        let entry = |index| Entry {
            log_id: at(index),
            payload: EntryPayload::Normal(Proposal { payload: Bytes::from_static(b"x"), nonce: None }),
        };
        AppendRequest {
            vote: Vote::new_committed(1, 1),
            prev_log_id: Some(at(prev)),
            leader_commit: Some(at(commit)),
            entries: (1..=entries).map(|n| entry(prev + n)).collect(),
        }
    }

    /// (prev, commit, entries) of each message that goes out.
    async fn sent(requests: Vec<AppendRequest>) -> Vec<(u64, u64, usize)> {
        let (alive, ended) = oneshot::channel();
        let sent = Arc::new(AtomicU64::new(0));
        let mut rest = requests.into_iter();
        let stream = Requests {
            first: rest.next(),
            rest: Some(stream::iter(rest)),
            output_dropped: ended,
            sent: sent.clone(),
            held: None,
            hold: Box::pin(weir_env::time::sleep(Duration::ZERO)),
        };
        let messages: Vec<_> = stream
            .map(|message| wire::decode_append(message).expect("it was encoded here"))
            .map(|r| (r.prev_log_id.unwrap().index, r.leader_commit.unwrap().index, r.entries.len()))
            .collect()
            .await;
        assert_eq!(sent.load(Ordering::Relaxed), messages.len() as u64, "each message waits for its answer");
        drop(alive);
        messages
    }

    #[tokio::test]
    async fn news_of_a_commit_travel_with_the_next_entries() {
        let both = vec![request(5, 5, 1), request(6, 6, 0), request(6, 6, 2), request(8, 8, 1)];
        assert_eq!(sent(both).await, [(5, 5, 1), (6, 6, 2), (8, 8, 1)]);
    }

    #[tokio::test]
    async fn only_the_last_news_is_told_when_no_entries_follow() {
        let news = vec![request(5, 5, 3), request(8, 6, 0), request(8, 7, 0), request(8, 8, 0)];
        assert_eq!(sent(news).await, [(5, 5, 3), (8, 8, 0)]);
    }

    #[tokio::test]
    async fn the_first_request_is_a_probe_and_never_held() {
        assert_eq!(sent(vec![request(5, 5, 0), request(5, 5, 1)]).await, [(5, 5, 0), (5, 5, 1)]);
    }

    #[tokio::test]
    async fn news_leave_by_themselves_while_the_stream_stays_open() {
        let (sender, mut queue) = mpsc::unbounded_channel();
        let (_alive, ended) = oneshot::channel();
        let mut stream = Requests {
            first: Some(request(5, 5, 1)),
            rest: Some(stream::poll_fn(move |cx| queue.poll_recv(cx))),
            output_dropped: ended,
            sent: Arc::default(),
            held: None,
            hold: Box::pin(weir_env::time::sleep(Duration::ZERO)),
        };
        sender.send(request(6, 6, 0)).expect("the stream is there");
        stream.next().await.expect("the first");
        let news = wire::decode_append(stream.next().await.expect("the news")).expect("encoded here");
        assert_eq!(news.leader_commit.map(|id| id.index), Some(6));
    }
}
