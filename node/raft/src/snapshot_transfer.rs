//! A snapshot on its way to a follower that lags too far behind.
//!
//! The leader names the snapshot first; the follower answers how many bytes of exactly that one it already
//! holds, so a transfer that broke goes on where it stopped, also after the follower was restarted. Each
//! piece carries its checksum. The last step makes the follower install the snapshot.

use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use openraft::StorageError;
use openraft::errors::{NetworkError, StreamingError};
use openraft::raft::SnapshotResponse;
use openraft::storage::Snapshot;
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;
use tonic::Status;
use weir_store::{Error, GroupId, SnapshotStore};

use crate::network::rpc_error;
use crate::peers::method;
use crate::snapshot_file::{Label, Origin, SnapshotData, SnapshotFile, Writing};
use crate::types::{Raft, TypeConfig, Vote};
use crate::{NodeId, Peers, wire};

/// Storing one piece takes no longer than this.
const PIECE_TIMEOUT: Duration = Duration::from_secs(10);
/// Installing a whole snapshot takes no longer than this.
const INSTALL_TIMEOUT: Duration = Duration::from_secs(120);

#[derive(Serialize, Deserialize)]
enum Step {
    /// Names the snapshot.
    Begin(Label),
    /// One piece, whose bytes follow this header.
    Piece { offset: u64, crc32c: u32 },
    /// These are all the bytes: install.
    Install { bytes: u64 },
}

#[derive(Serialize, Deserialize)]
struct Header {
    vote: Vote,
    origin: Origin,
    step: Step,
}

#[derive(Debug, Serialize, Deserialize)]
enum Answer {
    /// Go on with this byte.
    Next(u64),
    /// The snapshot is installed, or the vote was too old for it.
    Installed(SnapshotResponse<TypeConfig>),
}

fn encode(header: &Header, data: &[u8]) -> Bytes {
    let header = wire::to_bytes(header);
    let mut out = BytesMut::with_capacity(4 + header.len() + data.len());
    out.put_u32_le(header.len() as u32);
    out.put_slice(&header);
    out.put_slice(data);
    out.freeze()
}

fn decode(mut message: Bytes) -> Result<(Header, Bytes), wire::DecodeError> {
    if message.len() < 4 {
        return Err(wire::DecodeError::Short);
    }
    let length = message.get_u32_le() as usize;
    if message.len() < length {
        return Err(wire::DecodeError::Short);
    }
    let header = message.split_to(length);
    Ok((wire::from_bytes("snapshot header", &header)?, message))
}

fn unreadable(error: Error) -> StreamingError<TypeConfig> {
    match error {
        Error::Corrupt { .. } | Error::Version { .. } => {
            StreamingError::StorageError(StorageError::from_io_error(
                openraft::ErrorSubject::Snapshot(None),
                openraft::ErrorVerb::Read,
                std::io::Error::other(error),
            ))
        }
        // A newer snapshot may have removed this one; the library asks for the newest and tries again.
        other => NetworkError::new(&other).into(),
    }
}

struct Transfer<'p> {
    peers: &'p Peers,
    group: GroupId,
    to: NodeId,
    vote: Vote,
    origin: Origin,
}

impl Transfer<'_> {
    async fn step(
        &self,
        step: Step,
        data: &[u8],
        timeout: Duration,
    ) -> Result<Answer, StreamingError<TypeConfig>> {
        let message = encode(&Header { vote: self.vote, origin: self.origin, step }, data);
        let answer = self.peers.group_call(self.to, self.group, method::SNAPSHOT, message, timeout).await;
        let answer = answer.map_err(|error| StreamingError::from(rpc_error(error)))?;
        wire::from_bytes("snapshot answer", &answer).map_err(|error| NetworkError::new(&error).into())
    }
}

/// Sends a snapshot and returns once the follower has installed it.
pub(crate) async fn send(
    peers: &Peers,
    group: GroupId,
    to: NodeId,
    vote: Vote,
    file: SnapshotFile,
) -> Result<SnapshotResponse<TypeConfig>, StreamingError<TypeConfig>> {
    let transfer = Transfer { peers, group, to, vote, origin: file.label.origin };
    let lost = |wanted: u64| {
        StreamingError::from(NetworkError::from_string(format!("the follower wants byte {wanted}")))
    };
    let mut offset = match transfer.step(Step::Begin(file.label.clone()), &[], PIECE_TIMEOUT).await? {
        Answer::Next(offset) => offset,
        Answer::Installed(response) => return Ok(response),
    };
    tracing::info!(%group, to, from = offset, bytes = file.bytes(), "sending a snapshot");
    let mut reader = file.open().await.map_err(unreadable)?;
    reader.skip_to(offset).await.map_err(unreadable)?;
    while let Some(piece) = reader.next_chunk().await.map_err(unreadable)? {
        let step = Step::Piece { offset, crc32c: crc32c::crc32c(&piece) };
        match transfer.step(step, &piece, PIECE_TIMEOUT).await? {
            Answer::Next(next) if next == offset + piece.len() as u64 => offset = next,
            Answer::Next(next) => return Err(lost(next)),
            Answer::Installed(response) => return Ok(response),
        }
    }
    match transfer.step(Step::Install { bytes: offset }, &[], INSTALL_TIMEOUT).await? {
        Answer::Installed(response) => Ok(response),
        Answer::Next(next) => Err(lost(next)),
    }
}

/// The receiving side of one group. Holds at most one unfinished snapshot.
pub(crate) struct Receiver {
    snapshots: SnapshotStore,
    incoming: Mutex<Option<Writing>>,
}

impl Receiver {
    pub(crate) fn new(snapshots: SnapshotStore) -> Self {
        Self { snapshots, incoming: Mutex::new(None) }
    }

    pub(crate) async fn receive(&self, raft: &Raft, message: Bytes) -> Result<Bytes, Status> {
        let (header, data) = decode(message).map_err(|error| Status::invalid_argument(error.to_string()))?;
        // Taken out: a call that fails or is dropped leaves nothing half done in the slot. What is on disk
        // is found again by the next beginning.
        let mut slot = self.incoming.lock().await;
        let incoming = slot.take().filter(|writing| writing.label.origin == header.origin);
        let answer = match header.step {
            Step::Begin(label) => {
                let writing = match incoming {
                    Some(writing) => writing,
                    None => SnapshotFile::receive(&self.snapshots, label).await.map_err(storage)?,
                };
                let next = writing.bytes();
                *slot = Some(writing);
                Answer::Next(next)
            }
            Step::Piece { offset, crc32c } => {
                let mut writing = incoming.ok_or_else(|| Status::aborted("no such transfer"))?;
                if crc32c::crc32c(&data) != crc32c {
                    return Err(Status::aborted("the piece arrived damaged"));
                }
                if offset == writing.bytes() {
                    writing.push(&data).await.map_err(storage)?;
                }
                let next = writing.bytes();
                *slot = Some(writing);
                Answer::Next(next)
            }
            Step::Install { bytes } => {
                let mut writing = incoming.ok_or_else(|| Status::aborted("no such transfer"))?;
                if writing.bytes() != bytes {
                    return Err(Status::aborted("the transfer is not complete"));
                }
                // An installation that finds no space would stop the replica.
                writing.seal().await.map_err(storage)?;
                drop(slot);
                let snapshot =
                    Snapshot { meta: writing.label.meta.clone(), snapshot: SnapshotData::Received(writing) };
                let installed = raft.install_full_snapshot(header.vote, snapshot).await;
                Answer::Installed(installed.map_err(|error| Status::unavailable(error.to_string()))?)
            }
        };
        Ok(wire::to_bytes(&answer))
    }
}

fn storage(error: Error) -> Status {
    Status::aborted(error.to_string())
}
