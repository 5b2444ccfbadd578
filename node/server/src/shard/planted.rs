//! What the planted bugs of this crate do that takes more than a condition ([`weir_env::planted`]).

use super::applier::Core;
use super::batcher::Waiting;
use super::handle::{Answer, Park};
use std::time::Duration;
use weir_env::planted::{Bug, planted};
use weir_raft::Nonce;
use weir_stream::{Batch, Command, GroupChange, GroupStart, Key, Machine, Query, Reply, Stamp};

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
