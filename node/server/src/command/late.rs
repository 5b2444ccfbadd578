//! Refusals that come after a look at the key.
//!
//! Redis reads many arguments only once it knows that the key is there, of the right type and with the group, so a
//! malformed one is answered as if it were right where they are not.

use super::parse::dump::restore_options;
use super::parse::groups::are_too_many;
use super::parse::{BAD_ID, Refused, SYNTAX, is};
use bytes::Bytes;
use weir_stream::{EntryId, Query, ReadId, Refusal, Reply};

/// A command that makes no sense, and what to look at before that is said.
#[derive(Debug)]
pub struct Late {
    /// Finds out whether the key, or the group, is there.
    pub query: Query,
    refused: Refused,
    look: Look,
}

/// What the look may find that is said instead.
#[derive(Debug)]
enum Look {
    /// The key must not be there.
    Taken,
    /// A key that is there must hold a stream.
    Type,
    /// There must be a stream; else this is the answer.
    Stream(Reply),
    /// There must be a key of any type; else the answer is nil.
    Key,
    /// There must be a key, else the answer is 0, and a string.
    Condition,
    /// There must be a group, in the words of XGROUP.
    Group,
    /// Any refusal of the look.
    Refusal,
}

/// Whether XREAD or XREADGROUP is refused for one of its ids.
fn is_of_an_id(refused: &Refused) -> bool {
    refused.0 == BAD_ID || (refused.0.starts_with("ERR The ") && refused.0.contains(" ID "))
}

impl Late {
    /// What has to be looked at before `args` are refused; `None`: nothing.
    pub fn of(name: &str, args: &[Bytes], refused: &Refused) -> Option<Late> {
        let no_such_key = || Reply::Error(Refusal::Text("ERR no such key".to_owned()));
        let type_of = |at: usize| Query::Type { key: args[at].clone() };
        let late_create = || refused.0 == BAD_ID || are_too_many(args, true);
        let (query, look) = match name {
            "xdel" => (type_of(1), Look::Stream(Reply::Int(0))),
            // The ids of a key that is not there are never read.
            "xdelex" if refused.0 == BAD_ID => {
                let count = args.get(args.iter().skip(2).position(|arg| is(arg, "IDS"))? + 3)?;
                let count: usize = std::str::from_utf8(count).ok()?.parse().ok()?;
                (type_of(1), Look::Stream(Reply::Array(vec![Reply::Int(-1); count])))
            }
            "xdelex" | "xackdel" => (type_of(1), Look::Type),
            "delex" if args.len() == 4 => (Query::Get { key: args[1].clone() }, Look::Condition),
            "xcfgset" => (type_of(1), Look::Stream(no_such_key())),
            "xinfo|stream" => (type_of(2), Look::Stream(no_such_key())),
            // Options come before the key, what is to be restored comes after it.
            "restore" if restore_options(args).is_ok_and(|options| !options.replace) => {
                (Query::Exists { keys: vec![args[1].clone()] }, Look::Taken)
            }
            "object|freq" | "object|idletime" => (Query::RefCount { key: args[2].clone() }, Look::Key),
            "xgroup|create" if late_create() && args[5..].iter().any(|arg| is(arg, "MKSTREAM")) => {
                (type_of(2), Look::Type)
            }
            "xgroup|create" if late_create() => {
                (type_of(2), Look::Stream(Reply::Error(Refusal::Text(XGROUP_WITHOUT_KEY.to_owned()))))
            }
            "xgroup|setid" if refused.0 == BAD_ID || are_too_many(args, false) => {
                (Query::XinfoConsumers { key: args[2].clone(), group: args[3].clone() }, Look::Group)
            }
            "getex" if refused.0 != SYNTAX => (Query::Get { key: args[1].clone() }, Look::Key),
            "xclaim" | "xnack" => {
                let (key, group) = (args[1].clone(), args[2].clone());
                (Query::Xpending { key, group, range: None }, Look::Refusal)
            }
            // Keys are looked at one after another, each before its id is read.
            "xread" if is_of_an_id(refused) => {
                let streams = &args[args.iter().position(|arg| is(arg, "STREAMS"))? + 1..];
                let (keys, ids) = streams.split_at(streams.len() / 2);
                let fits = |id: &Bytes| matches!(&id[..], b"$" | b"+") || super::parse::id(id).is_ok();
                let bad = ids.iter().position(|id| !fits(id))?;
                let behind_all = ReadId::After(EntryId::MAX);
                let keys = keys[..=bad].iter().map(|key| (key.clone(), behind_all)).collect();
                (Query::Xread { keys, count: None }, Look::Refusal)
            }
            "xreadgroup" if is_of_an_id(refused) => {
                let group = args.get(args.iter().position(|arg| is(arg, "GROUP"))? + 1)?;
                let streams = &args[args.iter().position(|arg| is(arg, "STREAMS"))? + 1..];
                let (keys, ids) = streams.split_at(streams.len() / 2);
                let bad = ids.iter().position(|id| id != ">" && super::parse::id(id).is_err())?;
                let (keys, group) = (keys[..=bad].to_vec(), group.clone());
                (Query::HaveGroup { keys, group }, Look::Refusal)
            }
            _ => return None,
        };
        Some(Late { query, refused: refused.clone(), look })
    }

    /// The answer, once the look has been answered.
    pub fn answer(self, found: Reply) -> Reply {
        match (self.look, found) {
            (Look::Taken, Reply::Int(1..)) => {
                Reply::Error(Refusal::Text("BUSYKEY Target key name already exists.".to_owned()))
            }
            (Look::Stream(missing), Reply::Simple("none")) => missing,
            (Look::Key, Reply::NilBulk) => Reply::NilBulk,
            (Look::Condition, Reply::NilBulk) => Reply::Int(0),
            (Look::Condition, Reply::Error(_)) => Reply::Error(Refusal::Text(
                "ERR Key should be of string type if conditions are specified".to_owned(),
            )),
            (Look::Stream(_) | Look::Type, Reply::Simple(kind)) if !matches!(kind, "none" | "stream") => {
                Reply::Error(Refusal::Text(WRONG_TYPE.to_owned()))
            }
            (Look::Group, Reply::Error(Refusal::Text(text))) if text == "ERR no such key" => {
                Reply::Error(Refusal::Text(XGROUP_WITHOUT_KEY.to_owned()))
            }
            (_, Reply::Error(other)) => Reply::Error(other),
            _ => self.refused.into(),
        }
    }
}

const XGROUP_WITHOUT_KEY: &str = "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may \
                                  want to use the MKSTREAM option to create an empty stream automatically.";
const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";
