//! What the planted bugs of this crate do that takes more than a condition ([`weir_env::planted`]).

use super::applier::Core;
use super::batcher::Waiting;
use super::handle::{Answer, Park};
use bytes::Bytes;
use std::borrow::Cow;
use std::time::Duration;
use weir_env::planted::{Bug, planted};
use weir_raft::Nonce;
use weir_stream::{
    Batch, Command, EntryId, GroupChange, GroupStart, Key, Machine, PendingRange, Query, Refs, Reply, Stamp,
};

/// Answers the clients of a batch with what it would come to, before anybody has it.
pub(super) fn answer_early(core: &Core, batch: &Batch, waiting: &mut [Waiting]) {
    if planted(Bug::ReplyBeforeCommit) {
        answer_foreseen(core, batch, waiting);
    }
}

/// Answers the clients of a proposal that is not done as if it were.
pub(super) fn answer_done(core: &Core, nonce: Nonce) {
    if !planted(Bug::DoneThoughOverwritten) {
        return;
    }
    let proposal = core.in_flight.lock().take(nonce);
    if let Some(mut proposal) = proposal {
        answer_foreseen(core, &proposal.batch, &mut proposal.waiting);
    }
}

fn answer_foreseen(core: &Core, batch: &Batch, waiting: &mut [Waiting]) {
    let mut foreseen = core.lock().machine.clone();
    for (command, client) in batch.commands.iter().zip(waiting) {
        let reply = foreseen.apply(batch.stamp, command, true).reply;
        if !matches!(reply, Reply::NilArray)
            && let Some(sender) = client.sender.take()
        {
            sender.send(Answer::Reply { reply, index: 0 });
        }
    }
}

/// What a parked reader asked for, as it is proposed again.
pub(super) fn with_noack_forgotten(mut command: Command) -> Command {
    if let Command::Xreadgroup(read) | Command::XreadgroupWithin { read, .. } = &mut command {
        read.noack &= !planted(Bug::ForgetNoack);
    }
    command
}

/// How a parked reader waits on when it was woken for nothing: as if it had just come.
pub(super) fn with_its_time_again(mut park: Park) -> Park {
    if planted(Bug::DeadlineStartsAgain) {
        park.deadline = park.deadline.map(|at| at + Duration::from_millis(400));
    }
    park
}

/// Whether a read takes the key for gone by the node's own clock.
pub(super) fn is_hidden(core: &Core, machine: &Machine, query: &Query) -> bool {
    let wall_ms = core.clock.wall_ms();
    planted(Bug::ExpiryByClock) && matches!(machine.query(wall_ms, query), weir_stream::Answer::Due(_))
}

/// What is applied in the place of a command.
pub(super) fn spoiled<'a>(
    machine: &mut Machine,
    stamp: Stamp,
    command: &'a Command,
    proposed_here: bool,
) -> Cow<'a, Command> {
    match command {
        Command::Exec(ops) if planted(Bug::HalfExec) && !proposed_here && ops.len() > 1 => {
            Cow::Owned(Command::Exec(ops[..ops.len() - 1].to_vec()))
        }
        Command::Xdelex { key, refs: Refs::Delete, ids } if planted(Bug::ForgetAGroup) => {
            let acked: Vec<Bytes> = ids.iter().map(|id| Bytes::from(id.to_string())).collect();
            for group in groups_of(machine, key).into_iter().take(1) {
                machine.apply(stamp, &Command::Xack { key: key.clone(), group, ids: acked.clone() }, false);
            }
            Cow::Owned(Command::Xdelex { key: key.clone(), refs: Refs::Keep, ids: ids.clone() })
        }
        _ => Cow::Borrowed(command),
    }
}

fn groups_of(machine: &Machine, key: &Key) -> Vec<Key> {
    let streams = machine.stream_stats(None, usize::MAX);
    let of_key = streams.into_iter().filter(|(name, _)| name == key);
    of_key.flat_map(|(_, stats)| stats.groups.into_iter().map(|group| group.name)).collect()
}

/// Ids that were given back in a group.
fn released(machine: &Machine, key: &Key, group: &Key) -> Vec<Bytes> {
    let all = PendingRange {
        min_idle_ms: 0,
        start: EntryId::MIN,
        end: EntryId::MAX,
        count: u64::MAX,
        consumer: None,
    };
    let query = Query::Xpending { key: key.clone(), group: group.clone(), range: Some(all) };
    let Reply::Array(rows) = machine.query_as_logged(machine.last_stamp_ms(), &query) else {
        return Vec::new();
    };
    let id = |row: Reply| match row {
        Reply::Array(row) => match &row[..] {
            [Reply::Id(id), Reply::Bulk(owner), ..] if owner.is_empty() => Some(Bytes::from(id.to_string())),
            _ => None,
        },
        _ => None,
    };
    rows.into_iter().filter_map(id).collect()
}

/// Whether a stream remembers idempotent adds.
fn remembers(machine: &Machine, key: &Key) -> bool {
    let query = Query::XinfoStream { key: key.clone(), full: None };
    let Reply::Map(fields) = machine.query_as_logged(machine.last_stamp_ms(), &query) else { return false };
    let tracked = |name: &Reply| matches!(name, Reply::Bulk(name) if name.as_ref() == b"iids-tracked");
    fields.iter().any(|(name, count)| tracked(name) && *count != Reply::Int(0))
}

/// Takes out of a restored machine what a snapshot that forgot it would not have brought.
pub(super) fn forget(machine: &mut Machine) {
    let stamp = Stamp { now_ms: machine.last_stamp_ms() };
    for (key, stats) in machine.stream_stats(None, usize::MAX) {
        if planted(Bug::SnapshotWithoutDedup) && remembers(machine, &key) {
            // Another setting and back: what was remembered goes.
            for seconds in [101, 100] {
                let command = Command::Xcfgset { key: key.clone(), duration_s: Some(seconds), maxsize: None };
                machine.apply(stamp, &command, false);
            }
        }
        for group in stats.groups.iter().filter(|_| planted(Bug::SnapshotWithoutReleased)) {
            let ids = released(machine, &key, &group.name);
            machine.apply(stamp, &Command::Xack { key: key.clone(), group: group.name.clone(), ids }, false);
        }
        for group in stats.groups.into_iter().filter(|_| planted(Bug::SnapshotWithoutPending)) {
            let at = GroupStart::Id(group.last_delivered_id);
            let again = GroupChange::Create { at, mkstream: false, entries_read: None };
            for change in [GroupChange::Destroy, again] {
                let command = Command::Xgroup { key: key.clone(), group: group.name.clone(), change };
                machine.apply(stamp, &command, false);
            }
        }
    }
}
