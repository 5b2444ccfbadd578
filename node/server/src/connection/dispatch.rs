//! From one received command to a call in flight.

use super::Connection;
use super::in_flight::{About, Done, Finish, InFlight, Job, Place, Stage, merged, redirected, send};
use crate::command::acl::AclCall;
use crate::command::late::Late;
use crate::command::parse::Refused;
use crate::command::pubsub::PubSubCall;
use crate::command::table::{self, DENYOOM, Keys, LEADER_ONLY, Row, WRITE};
use crate::command::{Block, ClientCall, Control, ReplyMode, Request, control, error, parse_as};
use crate::info;
use crate::route::{Access, Redirect};
use crate::session::{Origin, Queued, Transaction};
use crate::shard::Park;
use bytes::Bytes;
use weir_env::time::Instant;
use weir_stream::{Command, Op, Query, Reply, Slot, key_slot};

/// A command that is parsed and may start.
pub(super) struct Call {
    row: &'static Row,
    request: Request,
    slot: Option<Slot>,
    bytes: usize,
    /// The request is a look at the state, and this makes a refusal of it.
    late: Option<Box<Late>>,
    /// Of a call that waits: its user may lose the right meanwhile.
    origin: Option<Box<Origin>>,
    /// All arguments, for SLOWLOG and MONITOR.
    args: Vec<Bytes>,
}

/// What may be in flight together: answers come in order anyway, but a read must see the writes before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    /// Nothing that matters is in flight.
    Idle,
    /// Writes: their order of submission is their order in the log.
    Writes,
    /// Reads.
    Reads,
    /// One that nothing may overtake: it waits, is routed late, or looks at all before it.
    Alone,
    /// Answered here at once.
    Here,
}

impl Call {
    /// Its row and its arguments, which are taken out.
    pub(super) fn take_seen(&mut self) -> (&'static Row, Vec<Bytes>) {
        (self.row, std::mem::take(&mut self.args))
    }

    fn class(&self) -> Class {
        match &self.request {
            Request::Write(_, Some(_)) | Request::Read(_, Some(_)) => Class::Alone,
            Request::Write(..) | Request::Control(Control::Exec) => Class::Writes,
            // EXEC needs its answer.
            Request::Read(Query::Versions { .. }, _) => Class::Alone,
            Request::Read(..) => Class::Reads,
            Request::Ready(_) => Class::Here,
            // The answers before these are written in the old version, or must be out before the end.
            Request::Control(Control::Hello { .. } | Control::Reset | Control::Quit) => Class::Alone,
            Request::Control(call) if call.looks_at_state() => Class::Alone,
            Request::Control(_) => Class::Here,
        }
    }
}

impl Class {
    /// Whether a call of this class may start while those in flight are of class `running`.
    fn may_join(self, running: Class) -> bool {
        match (running, self) {
            (Class::Alone, _) => false,
            (Class::Idle, _) | (_, Class::Here) => true,
            (running, class) => running == class && class != Class::Alone,
        }
    }
}

impl Connection {
    /// Takes one received command: starts it, answers it, queues it in a transaction, or holds it back.
    pub(super) fn receive(&mut self, args: Vec<Bytes>) {
        if is_http(&args[0]) {
            tracing::warn!(client = %self.session.client.addr, "closing a client that speaks HTTP");
            self.session.closing = true;
            return;
        }
        let name = table::find(&args[0]).map_or("unknown", |row| row.name);
        let mut admitted = false;
        let reply = match self.prepare(args, &mut admitted) {
            Ok(Some(call)) => return self.start_or_hold(call),
            Ok(None) => Reply::Simple("QUEUED"),
            Err(reply) => reply,
        };
        self.answer(name, reply);
        if !admitted {
            self.reject();
        }
    }

    /// Starts the call that was held back, if it may by now.
    pub(super) fn start_or_hold(&mut self, call: Call) {
        let looks_first = call.row.name == "exec" && self.class != Class::Idle && self.has_crossed();
        if call.class().may_join(self.class) && !looks_first && !self.is_paused(&call) {
            self.start_seen(call);
        } else {
            self.held = Some(call);
        }
    }

    /// Whether CLIENT PAUSE lets it wait. What ends a pause does not.
    fn is_paused(&self, call: &Call) -> bool {
        if matches!(call.row.name, "client|pause" | "client|unpause") {
            return false;
        }
        let is_write = |row: &Row| row.is(WRITE) || matches!(row.name, "publish" | "spublish");
        let queued = || {
            self.session.transaction.iter().flat_map(|t| &t.queued).any(|(_, origin)| is_write(origin.row))
        };
        let writes = is_write(call.row) || call.row.name == "exec" && queued();
        self.node.pause.holds(writes, || self.node.env.clock.mono())
    }

    /// All checks, in the order of Redis: name, arity, rights, slots, arguments. `None`: queued for EXEC.
    /// `admitted` once only the arguments are left to look at.
    fn prepare(&mut self, args: Vec<Bytes>, admitted: &mut bool) -> Result<Option<Call>, Reply> {
        let row = match table::resolve(&args) {
            Ok(row) => row,
            Err(refused) => return Err(self.refuse_queueing(&args, refused)),
        };
        self.session.client.update(|state| state.command = row.name);
        if let Err(refused) = self.may(row, &args) {
            return Err(self.refuse_queueing(&args, refused));
        }
        let slot = match slot_of(row, &args, self.one_shard()) {
            Ok(slot) => slot,
            Err(redirect) => {
                if let Some(transaction) = &mut self.session.transaction {
                    transaction.broken = true;
                }
                return Err(redirected(&redirect, &self.session.client));
            }
        };
        if let Err(refused) = self.may_while_listening(row).and_then(|()| self.may_while_monitoring(row)) {
            if let Some(transaction) = &mut self.session.transaction {
                transaction.broken = true;
            }
            return Err(refused);
        }
        let bytes = args.iter().map(Bytes::len).sum();
        let runs_at_once = matches!(row.name, "exec" | "discard" | "multi" | "watch" | "quit" | "reset");
        if self.session.transaction.is_some() && !runs_at_once {
            *admitted = true;
            return self.queue(row, args, slot, bytes).map(|()| None);
        }
        *admitted = true;
        if row.name == "watch" && self.session.transaction.is_some() {
            return Err(error("ERR WATCH inside MULTI is not allowed"));
        }
        if row.name == "watch" {
            self.may_watch(slot, args.len() - 1)?;
        }
        let (request, late) = match self.parse(row, &args) {
            Ok(request) => (request, None),
            Err(refused) => match Late::of(row.name, &args, &refused) {
                Some(late) => (Request::Read(late.query.clone(), None), Some(Box::new(late))),
                None => return Err(refused.into()),
            },
        };
        self.may_name(row, &args, &request)?;
        let waits = matches!(&request, Request::Write(_, Some(_)) | Request::Read(_, Some(_)));
        let origin = waits.then(|| Box::new(Origin { row, args: args.clone() }));
        Ok(Some(Call { row, request, slot, bytes, late, origin, args }))
    }

    fn parse(&self, row: &'static Row, args: &[Bytes]) -> Result<Request, Refused> {
        let alone = |refused: Refused| match self.lane.is_some() && refused.0.ends_with(IN_CLUSTER_MODE) {
            // As a Redis with `databases 1`.
            true => Refused::from("ERR DB index is out of range"),
            false => refused,
        };
        parse_as(row, args).map_err(alone)
    }

    /// Watched keys are compared in one log entry, so they share a slot; and they are not too many.
    fn may_watch(&self, slot: Option<Slot>, keys: usize) -> Result<(), Reply> {
        let watched = &self.session.watched;
        if !self.one_shard() && watched.first().is_some_and(|(key, _)| Some(key_slot(key)) != slot) {
            return Err(redirected(&Redirect::CrossSlot, &self.session.client));
        }
        if watched.len() + keys > self.node.settings.multi_commands_max.size() {
            return Err(error("ERR too many watched keys (multi-commands-max)"));
        }
        Ok(())
    }

    /// A command that cannot be queued breaks the transaction; a bad EXEC ends it.
    fn refuse_queueing(&mut self, args: &[Bytes], refused: Refused) -> Reply {
        if args[0].eq_ignore_ascii_case(b"EXEC") {
            self.end_transaction();
            let why = refused.0.strip_prefix("ERR ").unwrap_or(&refused.0).to_owned();
            return error(format!("EXECABORT Transaction discarded because of: {why}"));
        }
        if let Some(transaction) = &mut self.session.transaction {
            transaction.broken = true;
        }
        refused.into()
    }

    fn queue(
        &mut self,
        row: &'static Row,
        args: Vec<Bytes>,
        slot: Option<Slot>,
        bytes: usize,
    ) -> Result<(), Reply> {
        let parsed = self.parse(row, &args);
        if let Ok(request) = &parsed
            && let Err(refused) = self.may_name(row, &args, request)
        {
            if let Some(transaction) = &mut self.session.transaction {
                transaction.broken = true;
            }
            return Err(refused);
        }
        let elsewhere = slot
            .filter(|_| self.lane.is_none())
            .and_then(|slot| self.node.route_now(slot, Access::Write))
            .and_then(Result::err);
        let commands_max = self.node.settings.multi_commands_max.size();
        let bytes_max = self.node.settings.client_query_buffer_limit.size();
        let out_of_memory = row.is(DENYOOM) && info::out_of_memory(&self.node);
        let Some(transaction) = &mut self.session.transaction else { return Ok(()) };
        let refusal = if let Some(redirect) = elsewhere {
            Some(redirected(&redirect, &self.session.client))
        } else if transaction.queued.len() >= commands_max || transaction.bytes + bytes > bytes_max {
            Some(error("ERR too many commands queued in the transaction (multi-commands-max)"))
        } else {
            out_of_memory.then(|| error(info::OUT_OF_MEMORY))
        };
        if let Some(refusal) = refusal {
            transaction.broken = true;
            return Err(refusal);
        }
        let queued = match parsed {
            // Nothing waits inside a transaction.
            Ok(Request::Write(command, _)) => Queued::Op(Op::Command(command)),
            Ok(Request::Read(query, _)) => Queued::Op(Op::Query(query)),
            Ok(Request::Control(control)) if !control.fits_transaction() => {
                transaction.broken = true;
                return Err(error("ERR Command not allowed inside a transaction"));
            }
            Ok(Request::Control(control)) => Queued::Control(control),
            Ok(Request::Ready(reply)) => Queued::Ready(reply),
            Err(refused) => match Late::of(row.name, &args, &refused) {
                Some(late) => Queued::Late(Box::new(late)),
                None => Queued::Ready(refused.into()),
            },
        };
        // EXEC will do nothing of a broken transaction, and looks at the slots of what was queued before.
        if !transaction.broken {
            transaction.push(queued, Origin { row, args }, slot, bytes);
        }
        let count = transaction.queued.len();
        self.session.client.update(|state| state.queued = Some(count));
        Ok(())
    }

    fn end_transaction(&mut self) -> Option<Transaction> {
        self.session.client.update(|state| state.queued = None);
        self.session.transaction.take()
    }

    pub(super) fn start(&mut self, call: Call) {
        let Call { row, request, slot, bytes, late, origin, args: _ } = call;
        if row.is(DENYOOM) && info::out_of_memory(&self.node) {
            return self.answer(row.name, error(info::OUT_OF_MEMORY));
        }
        match request {
            Request::Ready(reply) => self.answer(row.name, reply),
            Request::Write(command, block) => {
                let Ok(park) = self.park(block) else { return self.answer(row.name, too_many_blocked()) };
                self.submit(row, slot, Job::Write(command, park), bytes, None);
                self.remember(origin);
            }
            Request::Read(query, block) => {
                let access = match self.session.readonly && !row.is(LEADER_ONLY) && late.is_none() {
                    true => Access::FollowerRead,
                    false => Access::Read,
                };
                let Ok(park) = self.park(block) else { return self.answer(row.name, too_many_blocked()) };
                self.submit(row, slot, Job::Read(query, access, park), bytes, late.map(Finish::Late));
                self.remember(origin);
            }
            Request::Control(Control::Multi) => {
                let reply = if self.session.transaction.is_some() {
                    error("ERR MULTI calls can not be nested")
                } else {
                    self.session.transaction = Some(Transaction::default());
                    self.session.client.update(|state| state.queued = Some(0));
                    Reply::Ok
                };
                self.answer(row.name, reply);
            }
            Request::Control(Control::Discard) => {
                let reply = match self.end_transaction() {
                    Some(_) => {
                        self.session.watched.clear();
                        Reply::Ok
                    }
                    // What is watched stays watched.
                    None => error("ERR DISCARD without MULTI"),
                };
                self.answer(row.name, reply);
            }
            Request::Control(Control::Exec) => self.exec(row),
            Request::Control(Control::PubSub(call)) => self.pubsub(row, call, slot),
            Request::Control(Control::Ping(text)) if let Some(pong) = self.pong(text.as_ref()) => {
                self.answer(row.name, pong)
            }
            Request::Control(Control::Client(ClientCall::Reply(mode))) => {
                self.session.takes_silence();
                self.session.set_reply_mode(mode);
                if mode == ReplyMode::On {
                    self.answer(row.name, Reply::Ok);
                }
            }
            Request::Control(call) => match control::now(&self.node, &mut self.session, call) {
                Ok(reply) => self.answer(row.name, reply),
                Err(call) => {
                    let waits =
                        matches!(call, Control::Wait { .. } | Control::WaitAof { .. } | Control::Observe(_));
                    let own_end = match &call {
                        Control::Acl(AclCall::DelUser(names)) => names.contains(&self.session.user.name),
                        _ => false,
                    };
                    if own_end {
                        // Not before the answer.
                        self.session.closing = true;
                        self.session.client.update(|state| state.leaving = true);
                    }
                    let kind = self.session.client.kind;
                    let task = control::later(self.node.clone(), call, self.session.written.clone(), kind);
                    let stage = Stage::Task(Box::pin(async move {
                        let (reply, written_more) = task.await;
                        Done { written_more, ..Done::reply(reply) }
                    }));
                    self.push(row.name, stage, Class::Alone, waits, None);
                }
            },
        }
    }

    fn exec(&mut self, row: &'static Row) {
        let Some(transaction) = self.end_transaction() else {
            return self.answer(row.name, error("ERR EXEC without MULTI"));
        };
        let watched = std::mem::take(&mut self.session.watched);
        let watched_slot = watched.first().map(|(key, _)| key_slot(key));
        let slots_differ =
            transaction.slot.is_some_and(|slot| watched_slot.is_some_and(|other| other != slot));
        let may_cross = self.one_shard();
        if (transaction.crosses_slots || slots_differ) && !may_cross && !watched.is_empty() {
            return self.refuse_crossed(row, watched, transaction.broken);
        }
        if transaction.crosses_slots && !may_cross {
            return self.answer(row.name, redirected(&Redirect::CrossSlot, &self.session.client));
        }
        if transaction.broken {
            return self.answer(row.name, error(ABORTED));
        }
        let mut ops = Vec::new();
        let mut places = Vec::with_capacity(transaction.queued.len());
        for (queued, origin) in transaction.queued {
            self.monitor(origin.row, &origin.args);
            if let Err(refused) = self.still_may(&origin) {
                places.push(Place::Known(refused));
                continue;
            }
            places.push(match queued {
                Queued::Op(op) => {
                    ops.push(op);
                    Place::Logged
                }
                Queued::Late(late) => {
                    ops.push(Op::Query(late.query.clone()));
                    Place::Late(late)
                }
                Queued::Ready(reply) => Place::Known(reply),
                Queued::Control(Control::PubSub(PubSubCall::Publish(message))) => self.publish_after(message),
                Queued::Control(Control::PubSub(PubSubCall::Tell(question))) => {
                    Place::Known(question.answer(&self.node.pubsub))
                }
                Queued::Control(call) => Place::Known(self.control_in_transaction(call)),
            });
        }
        let command = match watched.is_empty() {
            true => Command::Exec(ops),
            false => Command::ExecWatched { watched, ops },
        };
        match transaction.slot.or(watched_slot) {
            None => self.answer(row.name, merged(places, Reply::Array(Vec::new()))),
            slot => {
                let exec = Job::Write(command, None);
                self.submit(row, slot, exec, transaction.bytes, Some(Finish::Merged(places)))
            }
        }
    }

    fn control_in_transaction(&mut self, call: Control) -> Reply {
        match control::now(&self.node, &mut self.session, call) {
            Ok(reply) => reply,
            Err(Control::Info(sections)) => {
                Reply::Bulk(info::info(&self.node, &sections, self.lane.is_some()).into())
            }
            Err(_) => error("ERR this command is not supported inside a transaction"),
        }
    }

    /// When and for whom a reader waits. The bound on their number is the node's.
    fn park(&self, block: Option<Block>) -> Result<Option<Park>, ()> {
        let Some(Block(limit)) = block else { return Ok(None) };
        if self.node.metrics.clients_blocked.get() >= self.node.config.blocked_clients_max as u64 {
            return Err(());
        }
        let deadline = limit.map(|limit| Instant::now().checked_add(limit)).unwrap_or_default();
        Ok(Some(Park { deadline, client: self.session.client.id }))
    }

    pub(super) fn submit(
        &mut self,
        row: &'static Row,
        slot: Option<Slot>,
        job: Job,
        bytes: usize,
        finish: Option<Finish>,
    ) {
        // Every command of a shard has a key, or it could not be routed.
        let Some(slot) = slot else { return self.answer(row.name, error("ERR command without a key")) };
        let waits = job.park().is_some();
        let watched = match &job {
            Job::Read(Query::Versions { keys }, ..) => keys.clone(),
            _ => Vec::new(),
        };
        let class = match &job {
            _ if waits || !watched.is_empty() => Class::Alone,
            Job::Write(..) => Class::Writes,
            Job::Read(..) => Class::Reads,
        };
        if let Some(lane) = &self.lane {
            let writes = job.access() == Access::Write;
            if waits {
                self.session.client.update(|state| state.forwarded = Some(slot));
            }
            let ended = lane.send(job.into_work(&self.node), slot, bytes);
            self.push(row.name, Stage::Lane { ended, slot, writes }, class, waits, finish);
            if let Some(call) = self.in_flight.back_mut() {
                call.about.watched = watched;
            }
            return;
        }
        match self.node.route_now(slot, job.access()) {
            Some(Err(redirect)) => {
                self.push(
                    row.name,
                    Stage::Ready(redirected(&redirect, &self.session.client)),
                    Class::Here,
                    false,
                    None,
                );
            }
            Some(Ok(shard)) => {
                // A copy is cheap beside the log, but only the last call can use it, and EXEC may be long.
                let again =
                    (!waits && finish.is_none() && self.in_flight.is_empty()).then(|| Box::new(job.clone()));
                let access = job.access();
                let pending = job.submit(&shard, &self.session.client);
                let stage = Stage::Shard { pending, shard: shard.id(), slot, access, again };
                self.push(row.name, stage, class, waits, finish);
            }
            None => {
                let until = Instant::now() + self.node.config.hold_max();
                let task = send(self.node.clone(), self.session.client.clone(), slot, job, bytes, until);
                self.push(row.name, Stage::Task(Box::pin(task)), Class::Alone, waits, finish);
            }
        }
        if let Some(call) = self.in_flight.back_mut() {
            call.about.watched = watched;
        }
    }

    /// Whether keys need not share a slot: the client knows no cluster, and all slots are in one shard.
    fn one_shard(&self) -> bool {
        self.lane.is_some() && self.node.topology.map().shards.len() == 1
    }

    /// Answers at once, behind whatever is in flight.
    pub(super) fn answer(&mut self, name: &'static str, reply: Reply) {
        self.push(name, Stage::Ready(reply), Class::Here, false, None);
    }

    fn push(&mut self, name: &'static str, stage: Stage, class: Class, waits: bool, finish: Option<Finish>) {
        if class != Class::Here {
            self.class = class;
        }
        let metrics = self.session.metrics(&self.node.metrics, name);
        let silent = self.session.takes_silence();
        if waits {
            self.node.metrics.clients_blocked.inc();
        }
        let about = About {
            metrics,
            started: Instant::now(),
            silent,
            waits,
            finish,
            watched: Vec::new(),
            origin: None,
            revoked: None,
            args: Vec::new(),
            row: None,
            rejected: false,
        };
        self.in_flight.push_back(InFlight { stage, about });
    }
}

pub(super) const ABORTED: &str = "EXECABORT Transaction discarded because of previous errors.";

/// How the refusal of a command for other databases ends.
const IN_CLUSTER_MODE: &str = " is not allowed in cluster mode";

fn too_many_blocked() -> Reply {
    error("ERR too many blocked clients (blocked-clients-max)")
}

/// The one slot of all keys; of the first if they may differ.
fn slot_of(row: &Row, args: &[Bytes], may_differ: bool) -> Result<Option<Slot>, Redirect> {
    if row.keys == Keys::None {
        return Ok(None);
    }
    let mut slot = None;
    for at in row.key_positions(args) {
        let this = key_slot(&args[at]);
        match slot {
            Some(known) if known != this && !may_differ => return Err(Redirect::CrossSlot),
            Some(_) => {}
            None => slot = Some(this),
        }
    }
    Ok(slot)
}

/// The first word of an HTTP request or of its header. A web page can make a browser send one here, with commands
/// in its body, so the connection ends before they are read (Redis does the same).
fn is_http(word: &[u8]) -> bool {
    word.eq_ignore_ascii_case(b"post") || word.eq_ignore_ascii_case(b"host:")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_join_only_their_own() {
        use Class::{Alone, Here, Idle, Reads, Writes};
        for (running, next, may) in [
            (Idle, Alone, true),
            (Idle, Writes, true),
            (Writes, Writes, true),
            (Reads, Reads, true),
            (Writes, Reads, false),
            (Reads, Writes, false),
            (Writes, Alone, false),
            (Writes, Here, true),
            (Alone, Here, false),
            (Alone, Writes, false),
        ] {
            assert_eq!(next.may_join(running), may, "{next:?} while {running:?}");
        }
    }

    #[test]
    fn keys_of_two_slots_cross() {
        let args =
            |line: &str| line.split(' ').map(|w| Bytes::copy_from_slice(w.as_bytes())).collect::<Vec<_>>();
        let slot = |line: &str| slot_of(table::resolve(&args(line)).unwrap(), &args(line), false);
        assert_eq!(slot("DEL {a}1 {a}2"), Ok(Some(key_slot(b"a"))));
        assert_eq!(slot("DEL a b"), Err(Redirect::CrossSlot));
        assert_eq!(slot("XREAD STREAMS a b 0 0"), Err(Redirect::CrossSlot));
        assert_eq!(slot("PING"), Ok(None));
    }
}
