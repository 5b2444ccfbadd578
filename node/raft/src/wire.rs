//! Bytes of the log and of the peer protocol, in one place. Numbers here are permanent.
//!
//! A log entry is one kind byte and a body. Its position is not part of it: the log record and the
//! append request carry that.
//!
//! | kind | body |
//! |---|---|
//! | 0 | empty: a leader's first entry |
//! | 1 | the proposed bytes |
//! | 2 | the membership, postcard |
//!
//! An append request is `version u8`, the leader's vote, two optional positions (previous entry, commit),
//! the entries' first index and count, then each entry as `term u64, length u32, bytes`. All integers are
//! little endian. Entries of one request are consecutive, so one index is enough.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use openraft::EntryPayload;
use openraft::raft::{AppendEntriesRequest, StreamAppendError, StreamAppendResult};
use serde::Serialize;
use serde::de::DeserializeOwned;
use weir_store::{LogEntry, LogPosition};

use crate::types::{Entry, LogId, Proposal, TypeConfig, Vote, log_id, position};

const KIND_BLANK: u8 = 0;
const KIND_NORMAL: u8 = 1;
const KIND_MEMBERSHIP: u8 = 2;

const APPEND_VERSION: u8 = 1;

const ANSWER_MATCHED: u8 = 0;
const ANSWER_CONFLICT: u8 = 1;
const ANSWER_HIGHER_VOTE: u8 = 2;

/// Bytes that this version cannot read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DecodeError {
    #[error("ends early")]
    Short,
    #[error("unknown {0} {1}, written by a newer version?")]
    Unknown(&'static str, u8),
    #[error("malformed {0}: {1}")]
    Malformed(&'static str, String),
}

impl From<DecodeError> for std::io::Error {
    fn from(error: DecodeError) -> Self {
        std::io::Error::new(std::io::ErrorKind::InvalidData, error)
    }
}

pub(crate) fn to_bytes<T: Serialize>(value: &T) -> Bytes {
    // Serializing our own types into memory has no failing path.
    Bytes::from(postcard::to_allocvec(value).expect("own types serialize"))
}

pub(crate) fn from_bytes<T: DeserializeOwned>(what: &'static str, bytes: &[u8]) -> Result<T, DecodeError> {
    postcard::from_bytes(bytes).map_err(|error| DecodeError::Malformed(what, error.to_string()))
}

fn put_entry(payload: &EntryPayload<Proposal, u64, openraft::BasicNode>, out: &mut BytesMut) {
    match payload {
        EntryPayload::Blank => out.put_u8(KIND_BLANK),
        EntryPayload::Normal(proposal) => {
            out.put_u8(KIND_NORMAL);
            out.put_slice(&proposal.payload);
        }
        EntryPayload::Membership(membership) => {
            out.put_u8(KIND_MEMBERSHIP);
            out.put_slice(&to_bytes(membership));
        }
    }
}

fn body_len(payload: &EntryPayload<Proposal, u64, openraft::BasicNode>) -> usize {
    match payload {
        EntryPayload::Normal(proposal) => proposal.payload.len() + 1,
        _ => 64,
    }
}

/// The form in which an entry goes into the log.
pub(crate) fn encode_entry(entry: &Entry) -> LogEntry {
    let mut out = BytesMut::with_capacity(body_len(&entry.payload));
    put_entry(&entry.payload, &mut out);
    LogEntry { position: position(&entry.log_id), data: out.freeze() }
}

fn decode_body(at: LogPosition, mut data: Bytes) -> Result<Entry, DecodeError> {
    if data.is_empty() {
        return Err(DecodeError::Short);
    }
    let payload = match data.get_u8() {
        KIND_BLANK => EntryPayload::Blank,
        KIND_NORMAL => EntryPayload::Normal(Proposal { payload: data, nonce: None }),
        KIND_MEMBERSHIP => EntryPayload::Membership(from_bytes("membership", &data)?),
        other => return Err(DecodeError::Unknown("log entry kind", other)),
    };
    Ok(Entry { log_id: log_id(at), payload })
}

/// Reads an entry back; the payload shares the given bytes.
pub(crate) fn decode_entry(entry: LogEntry) -> Result<Entry, DecodeError> {
    decode_body(entry.position, entry.data)
}

/// Bytes an entry takes in the log, for deciding when to take a snapshot.
pub(crate) fn entry_bytes(entry: &Entry) -> u64 {
    body_len(&entry.payload) as u64
}

fn put_vote(vote: &Vote, out: &mut BytesMut) {
    out.put_u64_le(vote.leader_id.term);
    out.put_u64_le(vote.leader_id.voted_for);
    out.put_u8(u8::from(vote.committed));
}

fn put_position(id: Option<&LogId>, out: &mut BytesMut) {
    match id {
        None => out.put_u8(0),
        Some(id) => {
            out.put_u8(1);
            out.put_u64_le(id.leader_id.term);
            out.put_u64_le(id.index);
        }
    }
}

/// The form in which a vote is saved.
pub(crate) fn encode_vote(vote: &Vote) -> Bytes {
    let mut out = BytesMut::with_capacity(17);
    put_vote(vote, &mut out);
    out.freeze()
}

pub(crate) fn decode_vote(mut bytes: Bytes) -> Result<Vote, DecodeError> {
    take_vote(&mut bytes)
}

/// The form in which the committed position is saved.
pub(crate) fn encode_position(id: &LogId) -> Bytes {
    let mut out = BytesMut::with_capacity(17);
    put_position(Some(id), &mut out);
    out.freeze()
}

pub(crate) fn decode_position(mut bytes: Bytes) -> Result<LogId, DecodeError> {
    take_position(&mut bytes)?.ok_or(DecodeError::Short)
}

fn need(bytes: &Bytes, wanted: usize) -> Result<(), DecodeError> {
    if bytes.remaining() < wanted { Err(DecodeError::Short) } else { Ok(()) }
}

fn take_vote(bytes: &mut Bytes) -> Result<Vote, DecodeError> {
    need(bytes, 17)?;
    let (term, node) = (bytes.get_u64_le(), bytes.get_u64_le());
    let mut vote = Vote::new(term, node);
    vote.committed = bytes.get_u8() != 0;
    Ok(vote)
}

fn take_position(bytes: &mut Bytes) -> Result<Option<LogId>, DecodeError> {
    need(bytes, 1)?;
    if bytes.get_u8() == 0 {
        return Ok(None);
    }
    need(bytes, 16)?;
    let (term, index) = (bytes.get_u64_le(), bytes.get_u64_le());
    Ok(Some(log_id(LogPosition { term, index })))
}

pub(crate) fn encode_append(request: &AppendEntriesRequest<TypeConfig>) -> Bytes {
    let bodies: usize = request.entries.iter().map(|entry| body_len(&entry.payload) + 12).sum();
    let mut out = BytesMut::with_capacity(64 + bodies);
    out.put_u8(APPEND_VERSION);
    put_vote(&request.vote, &mut out);
    put_position(request.prev_log_id.as_ref(), &mut out);
    put_position(request.leader_commit.as_ref(), &mut out);
    out.put_u64_le(request.entries.first().map_or(0, |entry| entry.log_id.index));
    out.put_u32_le(request.entries.len() as u32);
    for entry in &request.entries {
        out.put_u64_le(entry.log_id.leader_id.term);
        let length_at = out.len();
        out.put_u32_le(0);
        put_entry(&entry.payload, &mut out);
        let length = (out.len() - length_at - 4) as u32;
        out[length_at..length_at + 4].copy_from_slice(&length.to_le_bytes());
    }
    out.freeze()
}

pub(crate) fn decode_append(mut bytes: Bytes) -> Result<AppendEntriesRequest<TypeConfig>, DecodeError> {
    need(&bytes, 1)?;
    match bytes.get_u8() {
        APPEND_VERSION => {}
        other => return Err(DecodeError::Unknown("append version", other)),
    }
    let vote = take_vote(&mut bytes)?;
    let prev_log_id = take_position(&mut bytes)?;
    let leader_commit = take_position(&mut bytes)?;
    need(&bytes, 12)?;
    let first = bytes.get_u64_le();
    let count = bytes.get_u32_le();
    let mut entries = Vec::with_capacity((count as usize).min(bytes.remaining() / 12));
    for offset in 0..u64::from(count) {
        need(&bytes, 12)?;
        let term = bytes.get_u64_le();
        let length = bytes.get_u32_le() as usize;
        need(&bytes, length)?;
        entries.push(decode_body(LogPosition { term, index: first + offset }, bytes.split_to(length))?);
    }
    Ok(AppendEntriesRequest { vote, prev_log_id, entries, leader_commit })
}

pub(crate) fn encode_append_answer(answer: &StreamAppendResult<TypeConfig>) -> Bytes {
    let mut out = BytesMut::with_capacity(20);
    match answer {
        Ok(matched) => {
            out.put_u8(ANSWER_MATCHED);
            put_position(matched.as_ref(), &mut out);
        }
        Err(StreamAppendError::Conflict(at)) => {
            out.put_u8(ANSWER_CONFLICT);
            put_position(Some(at), &mut out);
        }
        Err(StreamAppendError::HigherVote(vote)) => {
            out.put_u8(ANSWER_HIGHER_VOTE);
            put_vote(vote, &mut out);
        }
    }
    out.freeze()
}

pub(crate) fn decode_append_answer(mut bytes: Bytes) -> Result<StreamAppendResult<TypeConfig>, DecodeError> {
    need(&bytes, 1)?;
    match bytes.get_u8() {
        ANSWER_MATCHED => Ok(Ok(take_position(&mut bytes)?)),
        ANSWER_CONFLICT => {
            let at = take_position(&mut bytes)?.ok_or(DecodeError::Short)?;
            Ok(Err(StreamAppendError::Conflict(at)))
        }
        ANSWER_HIGHER_VOTE => Ok(Err(StreamAppendError::HigherVote(take_vote(&mut bytes)?))),
        other => Err(DecodeError::Unknown("append answer", other)),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use openraft::{BasicNode, Membership};

    use super::*;

    fn id(term: u64, index: u64) -> LogId {
        log_id(LogPosition { term, index })
    }

    fn entries() -> Vec<Entry> {
        let nodes = BTreeMap::from([(1, BasicNode::new("n1:1")), (2, BasicNode::new("n2:2"))]);
        let membership = Membership::new(vec![BTreeSet::from([1, 2])], nodes).unwrap();
        let payload = Proposal { payload: Bytes::from_static(b"batch"), nonce: None };
        vec![
            Entry { log_id: id(1, 4), payload: EntryPayload::Blank },
            Entry { log_id: id(1, 5), payload: EntryPayload::Normal(payload) },
            Entry { log_id: id(2, 6), payload: EntryPayload::Membership(membership) },
        ]
    }

    #[test]
    fn an_entry_reads_back_from_the_log_without_its_nonce() {
        for mut entry in entries() {
            let expected = format!("{entry:?}");
            if let EntryPayload::Normal(proposal) = &mut entry.payload {
                proposal.nonce = Some(crate::Nonce(9));
            }
            let back = decode_entry(encode_entry(&entry)).unwrap();
            assert_eq!(format!("{back:?}"), expected);
            if let EntryPayload::Normal(proposal) = back.payload {
                assert_eq!(proposal.nonce, None);
                assert_eq!(proposal.payload, "batch");
            }
        }
    }

    #[test]
    fn an_append_request_reads_back() {
        let mut vote = Vote::new(2, 1);
        vote.committed = true;
        let request = AppendEntriesRequest {
            vote,
            prev_log_id: Some(id(1, 3)),
            entries: entries(),
            leader_commit: Some(id(1, 2)),
        };
        let back = decode_append(encode_append(&request)).unwrap();
        assert_eq!(format!("{back:?}"), format!("{request:?}"));
    }

    #[test]
    fn a_cut_request_is_an_error_at_every_length() {
        let request = AppendEntriesRequest {
            vote: Vote::new(2, 1),
            prev_log_id: None,
            entries: entries(),
            leader_commit: None,
        };
        let whole = encode_append(&request);
        for length in 0..whole.len() {
            assert!(decode_append(whole.slice(..length)).is_err(), "cut at {length}");
        }
    }

    #[test]
    fn a_newer_version_is_named() {
        let error = decode_append(Bytes::from_static(&[9])).unwrap_err();
        assert_eq!(error, DecodeError::Unknown("append version", 9));
        let entry = LogEntry { position: LogPosition { term: 1, index: 1 }, data: Bytes::from_static(&[7]) };
        assert_eq!(decode_entry(entry).unwrap_err(), DecodeError::Unknown("log entry kind", 7));
    }

    #[test]
    fn answers_read_back() {
        for answer in [
            Ok(None),
            Ok(Some(id(3, 9))),
            Err(StreamAppendError::Conflict(id(1, 2))),
            Err(StreamAppendError::HigherVote(Vote::new(5, 2))),
        ] {
            assert_eq!(decode_append_answer(encode_append_answer(&answer)).unwrap(), answer);
        }
    }
}
