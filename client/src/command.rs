//! Commands on their way to the wire.

use crate::EntryId;
use crate::error::Error;
use crate::slot::key_slot;
use bytes::Bytes;
use std::time::Duration;
use weir_resp::{Encoder, Proto};

/// Arguments, already as the bytes that will be sent: each is copied once, from the caller to the wire.
#[derive(Debug, Clone, Default)]
pub(crate) struct Args {
    count: usize,
    wire: Vec<u8>,
}

impl Args {
    pub(crate) fn push(&mut self, arg: impl AsRef<[u8]>) -> &mut Self {
        Encoder::new(Proto::Resp2, &mut self.wire).bulk(arg.as_ref());
        self.count += 1;
        self
    }

    pub(crate) fn push_int(&mut self, n: impl ToString) -> &mut Self {
        self.push(n.to_string())
    }

    pub(crate) fn push_id(&mut self, id: EntryId) -> &mut Self {
        Encoder::new(Proto::Resp2, &mut self.wire).id(id.ms, id.seq);
        self.count += 1;
        self
    }

    pub(crate) fn append(&mut self, other: &Args) -> &mut Self {
        self.wire.extend_from_slice(&other.wire);
        self.count += other.count;
        self
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Bytes on the wire.
    pub(crate) fn len(&self) -> usize {
        self.wire.len()
    }

    /// Appends the whole command to `out`.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        Encoder::new(Proto::Resp2, out).array(self.count);
        out.extend_from_slice(&self.wire);
    }
}

/// Where a command has to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    /// To whoever leads the slot.
    Slot(u16),
    /// Anywhere.
    Any,
    /// Nowhere: its keys belong to different slots.
    Crossing,
}

/// When a command may be sent once more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// Only if it certainly was not done.
    NotDone,
    /// Always, since it changes nothing.
    Read,
    /// Always, since doing it twice is the same as doing it once. Without an answer it may have been done.
    Idempotent,
}

/// One command with all that is known about it.
#[derive(Debug, Clone)]
pub(crate) struct Cmd {
    pub(crate) name: &'static str,
    pub(crate) args: Args,
    pub(crate) target: Target,
    pub(crate) repeat: Repeat,
    /// It may wait this long at the server, on a connection of its own.
    pub(crate) block: Option<Duration>,
}

impl Cmd {
    /// A write with this name (words of a subcommand are separate arguments).
    pub(crate) fn write(name: &'static str) -> Cmd {
        let mut args = Args::default();
        name.split(' ').for_each(|word| {
            args.push(word);
        });
        Cmd { name, args, target: Target::Any, repeat: Repeat::NotDone, block: None }
    }

    /// A read with this name.
    pub(crate) fn read(name: &'static str) -> Cmd {
        Cmd { repeat: Repeat::Read, ..Cmd::write(name) }
    }

    /// Adds a key.
    pub(crate) fn key(mut self, key: impl AsRef<[u8]>) -> Cmd {
        self.add_key(key);
        self
    }

    pub(crate) fn add_key(&mut self, key: impl AsRef<[u8]>) {
        self.route(key.as_ref());
        self.args.push(key);
    }

    /// Notes a key without adding it.
    pub(crate) fn route(&mut self, key: &[u8]) {
        let slot = key_slot(key);
        self.target = match self.target {
            Target::Any => Target::Slot(slot),
            Target::Slot(other) if other == slot => Target::Slot(slot),
            _ => Target::Crossing,
        };
    }

    /// Adds an argument.
    pub(crate) fn arg(mut self, arg: impl AsRef<[u8]>) -> Cmd {
        self.args.push(arg);
        self
    }

    pub(crate) fn int(mut self, n: impl ToString) -> Cmd {
        self.args.push_int(n);
        self
    }

    pub(crate) fn id(mut self, id: EntryId) -> Cmd {
        self.args.push_id(id);
        self
    }

    /// Says that doing it twice is the same as doing it once.
    pub(crate) fn idempotent(mut self) -> Cmd {
        self.repeat = Repeat::Idempotent;
        self
    }

    /// What is sent and how.
    pub(crate) fn unit(&self) -> Unit {
        let mut frame = Vec::with_capacity(self.args.len() + 16);
        self.args.encode(&mut frame);
        Unit {
            name: self.name,
            frame: frame.into(),
            replies: 1,
            target: self.target,
            repeat: self.repeat,
            block: self.block,
        }
    }
}

/// What is sent in one piece and answered in one piece: a command, or a transaction from MULTI to EXEC.
#[derive(Debug, Clone)]
pub(crate) struct Unit {
    pub(crate) name: &'static str,
    pub(crate) frame: Bytes,
    /// Number of replies; the last one is the unit's own.
    pub(crate) replies: usize,
    pub(crate) target: Target,
    pub(crate) repeat: Repeat,
    pub(crate) block: Option<Duration>,
}

impl Unit {
    /// MULTI, the commands, EXEC.
    pub(crate) fn transaction<'a>(name: &'static str, commands: impl IntoIterator<Item = &'a Cmd>) -> Unit {
        let mut frame = Vec::new();
        let mut replies = 2;
        let mut target = Target::Any;
        let mut repeat = Repeat::Read;
        Args::default().push("MULTI").encode(&mut frame);
        for cmd in commands {
            cmd.args.encode(&mut frame);
            replies += 1;
            target = match (target, cmd.target) {
                (Target::Any, other) | (other, Target::Any) => other,
                (a, b) if a == b => a,
                _ => Target::Crossing,
            };
            repeat = match (repeat, cmd.repeat) {
                (Repeat::NotDone, _) | (_, Repeat::NotDone) => Repeat::NotDone,
                (Repeat::Read, Repeat::Read) => Repeat::Read,
                _ => Repeat::Idempotent,
            };
        }
        Args::default().push("EXEC").encode(&mut frame);
        Unit { name, frame: frame.into(), replies, target, repeat, block: None }
    }

    /// # Errors
    /// Its keys belong to different slots.
    pub(crate) fn slot(&self) -> Result<Option<u16>, Error> {
        match self.target {
            Target::Any => Ok(None),
            Target::Slot(slot) => Ok(Some(slot)),
            Target::Crossing => Err(Error::CrossSlot { command: self.name.to_owned() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(unit: &Unit) -> String {
        String::from_utf8(unit.frame.to_vec()).unwrap()
    }

    #[test]
    fn a_command_is_an_array_of_its_words() {
        let cmd = Cmd::write("XGROUP CREATE").key("s").arg("g").id(EntryId::new(5, 1));
        let unit = cmd.unit();
        assert_eq!(text(&unit), "*5\r\n$6\r\nXGROUP\r\n$6\r\nCREATE\r\n$1\r\ns\r\n$1\r\ng\r\n$3\r\n5-1\r\n");
        assert_eq!(unit.slot(), Ok(Some(key_slot("s"))));
    }

    #[test]
    fn a_transaction_is_one_piece_with_a_reply_more_for_each_end() {
        let unit =
            Unit::transaction("XADD", [&Cmd::write("DEL").key("{a}1"), &Cmd::write("DEL").key("{a}2")]);
        assert!(text(&unit).starts_with("*1\r\n$5\r\nMULTI\r\n*2\r\n$3\r\nDEL\r\n"));
        assert!(text(&unit).ends_with("*1\r\n$4\r\nEXEC\r\n"));
        assert_eq!(unit.replies, 4);
        assert_eq!(unit.slot(), Ok(Some(key_slot("a"))));
    }

    #[test]
    fn keys_of_two_slots_cross() {
        let unit = Cmd::write("DEL").key("a").key("b").unit();
        assert_eq!(unit.slot(), Err(Error::CrossSlot { command: "DEL".into() }));
        let both = Unit::transaction("EXEC", [&Cmd::write("DEL").key("a"), &Cmd::write("DEL").key("b")]);
        assert!(both.slot().is_err());
    }
}
