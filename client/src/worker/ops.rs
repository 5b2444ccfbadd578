//! What a worker asks of the server, one step each.

use super::{Config, Taken};
use crate::client::Client;
use crate::command::Cmd;
use crate::commands::{Add, Trim};
use crate::error::Error;
use crate::{Entry, EntryId, PendingEntry};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Creates the group unless it is there.
pub(super) async fn make_group(client: &Client, config: &Config) -> Result<(), Error> {
    let cmd = Cmd::write("XGROUP CREATE").key(&config.stream).arg(&config.group).arg(config.start.text());
    match client.call::<()>(cmd.arg("MKSTREAM").idempotent()).await {
        Err(Error::Server(error)) if error.code() == "BUSYGROUP" => Ok(()),
        // An earlier attempt without an answer made it, and this one found it there.
        Err(Error::Unknown { why }) if why.contains("BUSYGROUP") => Ok(()),
        other => other,
    }
}

/// New entries, at most `count`.
pub(super) async fn read_new(
    client: Client,
    config: Config,
    count: usize,
    block: Duration,
) -> Result<Vec<Entry>, Error> {
    let read = client.xreadgroup(&config.group, &config.consumer).new_of(&config.stream);
    // Longer than the block, so that a silent node is noticed; what it delivered is then found pending.
    Ok(read.count(count as u64).block(block).timeout(Duration::from_secs(3)).await?.into_only())
}

/// Which pending entries to take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Whose {
    /// This consumer's, from an earlier life or from a lost answer.
    Own,
    /// Those idle for this long, of anyone.
    Idle(Duration),
}

/// Takes pending entries that are not in hand. Answers them, and whether there may be more.
pub(super) async fn take(
    client: Client,
    config: Config,
    whose: Whose,
    count: usize,
    in_hand: BTreeSet<EntryId>,
) -> Result<(Vec<Taken>, bool), Error> {
    let wanted = count + in_hand.len();
    let pending = client.xpending_entries(&config.stream, &config.group, wanted as u64);
    let (rows, min_idle) = match whose {
        Whose::Own => (pending.consumer(&config.consumer).await?, Duration::ZERO),
        Whose::Idle(idle) => (pending.idle(idle).await?, idle),
    };
    let more = rows.len() == wanted;
    let fresh: Vec<PendingEntry> =
        rows.into_iter().filter(|row| !in_hand.contains(&row.id)).take(count).collect();
    if fresh.is_empty() {
        return Ok((Vec::new(), more));
    }
    let ids: Vec<EntryId> = fresh.iter().map(|row| row.id).collect();
    let entries = client.xclaim(&config.stream, &config.group, &config.consumer, min_idle, ids).await?;
    let deliveries: BTreeMap<EntryId, u64> = fresh.iter().map(|row| (row.id, row.deliveries + 1)).collect();
    let taken = entries.into_iter().map(|entry| {
        let deliveries = deliveries.get(&entry.id).copied().unwrap_or(1);
        (entry, deliveries)
    });
    Ok((taken.collect(), more))
}

/// Acknowledges. Doing it twice is harmless.
pub(super) async fn ack(client: Client, config: Config, ids: Vec<EntryId>) -> Result<(), Error> {
    let mut cmd = Cmd::write("XACK").key(&config.stream).arg(&config.group).idempotent();
    ids.iter().for_each(|id| {
        cmd.args.push_id(*id);
    });
    client.call::<()>(cmd).await
}

/// Renews the hold on entries. With `doubtful`, looks first which of them are still this consumer's. Answers those
/// that are not.
pub(super) async fn renew(
    client: Client,
    config: Config,
    ids: Vec<EntryId>,
    doubtful: bool,
) -> Result<Vec<EntryId>, Error> {
    let (Some(first), Some(last)) = (ids.first().copied(), ids.last().copied()) else {
        return Ok(Vec::new());
    };
    let (ours, lost) = if doubtful {
        let rows = client
            .xpending_entries(&config.stream, &config.group, 10_000)
            .range(first, last)
            .consumer(&config.consumer)
            .await?;
        let own: BTreeSet<EntryId> = rows.into_iter().map(|row| row.id).collect();
        ids.into_iter().partition(|id| own.contains(id))
    } else {
        (ids, Vec::new())
    };
    if !ours.is_empty() {
        let cmd = Cmd::write("XCLAIM").key(&config.stream).arg(&config.group).arg(&config.consumer).int(0);
        let mut cmd = cmd.idempotent();
        ours.iter().for_each(|id| {
            cmd.args.push_id(*id);
        });
        client.call::<Vec<EntryId>>(cmd.arg("JUSTID")).timeout(config.lease / 3).await?;
    }
    Ok(lost)
}

/// Counts one more delivery of an entry to this consumer; `None` if it left the stream meanwhile.
pub(super) async fn deliver_again(
    client: Client,
    config: Config,
    id: EntryId,
) -> Result<Option<Entry>, Error> {
    let claimed =
        client.xclaim(&config.stream, &config.group, &config.consumer, Duration::ZERO, [id]).await?;
    Ok(claimed.into_iter().next())
}

/// Copies an entry to the dead-letter stream and then acknowledges it: whatever stops this in between, it is not
/// lost. The copy carries an idempotent id, so doing it again does not double it while the server remembers.
pub(super) async fn bury(
    client: Client,
    config: Config,
    dead_letters: Bytes,
    entry: Entry,
    deliveries: u64,
    reason: String,
) -> Result<(), Error> {
    let mut add = Add::fields(entry.fields.iter().map(|(name, value)| (name, value)));
    for (name, value) in [
        ("dead-stream", config.stream.as_ref()),
        ("dead-group", config.group.as_ref()),
        ("dead-id", entry.id.to_string().as_bytes()),
        ("dead-deliveries", deliveries.to_string().as_bytes()),
        ("dead-reason", reason.as_bytes()),
    ] {
        add = add.field(name, value);
    }
    if config.dead_letters_max < u64::MAX {
        add.trim = Some(Trim::MaxLenApprox(config.dead_letters_max));
    }
    add.idmp = Some((
        [b"dead:", config.group.as_ref()].concat(),
        [config.stream.as_ref(), b":", entry.id.to_string().as_bytes()].concat(),
    ));
    match client.call::<EntryId>(add.cmd(&dead_letters).idempotent()).await {
        Ok(_) => {}
        // A server that takes the word IDMP for an id.
        Err(Error::Server(error)) if error.message().starts_with("Invalid stream ID") => {
            add.idmp = None;
            client.call::<EntryId>(add.cmd(&dead_letters)).await?;
        }
        Err(error) => return Err(error),
    }
    ack(client, config, vec![entry.id]).await
}
