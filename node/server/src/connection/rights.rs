//! What the connection's user may do: looked at when a command arrives, when it runs inside EXEC, and again while it
//! waits if users were changed.

use super::Connection;
use super::in_flight::Stage;
use crate::acl::check::{self, Denied};
use crate::acl::log::{Event, Reason};
use crate::command::parse::Refused;
use crate::command::table::{NO_AUTH, Row};
use crate::command::{Request, error};
use crate::session::Origin;
use crate::shard::Unblock;
use bytes::Bytes;
use weir_stream::Reply;

impl Connection {
    /// Whether the user may run this call.
    pub(super) fn may(&mut self, row: &'static Row, args: &[Bytes]) -> Result<(), Refused> {
        if !self.session.refresh(&self.node.acl) {
            // The user is gone, and the connection goes with it.
            self.session.closing = true;
            return Err(Refused::from(NO_AUTH_YET));
        }
        if !row.is(NO_AUTH) && self.session.must_log_in(&self.node.acl) {
            return Err(Refused::from(NO_AUTH_YET));
        }
        match self.session.user.check(row, args) {
            Ok(()) => Ok(()),
            Err(denied) => {
                self.note(denied, row, args);
                Err(self.no_permission(denied, row, args))
            }
        }
    }

    /// Whether the keys that the parsed call names are those that were checked. They always are, unless the table and
    /// a parser disagree about where keys stand; then nothing is done.
    pub(super) fn may_name(&self, row: &'static Row, args: &[Bytes], request: &Request) -> Result<(), Reply> {
        if self.session.user.may_all() {
            return Ok(());
        }
        let named_were_checked = match request {
            Request::Write(command, _) => check::named_keys_were_checked(row, args, command.keys()),
            Request::Read(query, _) => check::named_keys_were_checked(row, args, query.keys()),
            Request::Control(_) | Request::Ready(_) => true,
        };
        match named_were_checked {
            true => Ok(()),
            false => Err(self.no_permission(Denied::Key(0), row, args).into()),
        }
    }

    /// Whether a queued call may still be run.
    pub(super) fn still_may(&mut self, origin: &Origin) -> Result<(), Reply> {
        self.session.user.check(origin.row, &origin.args).map_err(|denied| {
            self.note(denied, origin.row, &origin.args);
            let why = match denied {
                Denied::Command => "no permission to execute the command or subcommand",
                Denied::Key(_) => "no permission to touch the specified keys",
                Denied::Channel(_) => "no permission to access one of the channels used as arguments to the command",
            };
            error(format!(
                "NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call. This \
                 command is no longer allowed for the following reason: {why}"
            ))
        })
    }

    /// Keeps the call with the one that was just started.
    pub(super) fn remember(&mut self, origin: Option<Box<Origin>>) {
        if let Some(call) = self.in_flight.back_mut().filter(|call| call.about.waits) {
            call.about.origin = origin;
        }
    }

    /// Ends a wait for which the user lost the right.
    pub(super) fn recheck_waiting(&mut self) {
        let Some(at) = self.in_flight.iter().position(|call| call.about.origin.is_some()) else { return };
        if self.in_flight[at].about.revoked.is_none() {
            if self.session.generation() == self.node.acl.generation()
                || !self.session.refresh(&self.node.acl)
            {
                return;
            }
            let Some(origin) = self.in_flight[at].about.origin.take() else { return };
            if let Err(denied) = self.session.user.check(origin.row, &origin.args) {
                self.note(denied, origin.row, &origin.args);
                let refused = self.no_permission(denied, origin.row, &origin.args);
                self.in_flight[at].about.revoked = Some(refused.into());
            }
            self.in_flight[at].about.origin = Some(origin);
        }
        if self.lane.is_some()
            && let Some(refused) = self.in_flight[at].about.revoked.take()
        {
            // Dropped, it is taken back from wherever it waits.
            self.in_flight[at].stage = Stage::Ready(refused);
            self.in_flight[at].about.origin = None;
            return;
        }
        if self.in_flight[at].about.revoked.is_some()
            && let Some(shard) = self.session.client.state().blocked_at
        {
            // Not parked just now means that it is being answered; it is looked at again when that was for nothing.
            shard.unblock(self.session.client.id, Unblock::Error);
        }
    }

    fn no_permission(&self, denied: Denied, row: &Row, args: &[Bytes]) -> Refused {
        let why = check::refusal(denied, &self.session.user, row, args, false);
        Refused::from(format!("NOPERM {why}"))
    }

    fn note(&self, denied: Denied, row: &'static Row, args: &[Bytes]) {
        let metrics = &self.node.metrics;
        let (counter, object) = match denied {
            Denied::Command => (&metrics.acl_denied_cmd, Bytes::from_static(row.name.as_bytes())),
            Denied::Key(at) => (&metrics.acl_denied_key, args[at].clone()),
            Denied::Channel(at) => (&metrics.acl_denied_channel, args[at].clone()),
        };
        counter.inc();
        let event = Event {
            reason: Reason::from(denied),
            in_transaction: self.session.transaction.is_some(),
            object,
            user: self.session.user.name.clone(),
            client: self.session.client.line(self.node.env.clock.mono()),
        };
        self.node.acl_log.note(event, self.node.env.clock.wall_ms());
    }
}

const NO_AUTH_YET: &str = "NOAUTH Authentication required.";
