//! Refusals that come after a look at the key.
//!
//! Redis reads the ids of XDEL, XCLAIM and XREADGROUP only once it knows that the key and the group are there, so a
//! malformed one is answered as if it were right where they are missing. It looks whether the key of RESTORE is taken
//! before it looks at the payload.

use super::parse::dump::restore_options;
use super::parse::{BAD_ID, Refused, is};
use bytes::Bytes;
use weir_stream::{Query, Refusal, Reply};

/// A command that makes no sense, and what to look at before that is said.
#[derive(Debug)]
pub struct Late {
    /// Finds out whether the key, or the group, is there.
    pub query: Query,
    refused: Refused,
    /// Behind the text of a missing group.
    no_group_in: &'static str,
}

impl Late {
    /// What has to be looked at before `args` are refused; `None`: nothing.
    pub fn of(name: &str, args: &[Bytes], refused: &Refused) -> Option<Late> {
        let late = |query, no_group_in| Some(Late { query, refused: refused.clone(), no_group_in });
        let pending = |key: &Bytes, group: &Bytes| Query::Xpending {
            key: key.clone(),
            group: group.clone(),
            range: None,
        };
        match name {
            "xdel" => late(Query::Type { key: args[1].clone() }, ""),
            // Options come before the key, what is to be restored comes after it.
            "restore" if restore_options(args).is_ok_and(|options| !options.replace) => {
                late(Query::Exists { keys: vec![args[1].clone()] }, "")
            }
            "xclaim" => late(pending(&args[1], &args[2]), ""),
            "xreadgroup" if refused.0 == BAD_ID => {
                let group = args.get(args.iter().position(|arg| is(arg, "GROUP"))? + 1)?;
                let streams = &args[args.iter().position(|arg| is(arg, "STREAMS"))? + 1..];
                let (keys, ids) = streams.split_at(streams.len() / 2);
                let bad = ids.iter().position(|id| id != ">" && super::parse::id(id).is_err())?;
                late(pending(keys.get(bad)?, group), " in XREADGROUP with GROUP option")
            }
            _ => None,
        }
    }

    /// The answer, once the look has been answered.
    pub fn answer(self, found: Reply) -> Reply {
        match found {
            Reply::Simple("none") => Reply::Int(0),
            // EXISTS.
            Reply::Int(1..) => Reply::Error(Refusal::Text(BUSY_KEY.to_owned())),
            // TYPE refuses nothing by type.
            Reply::Simple("string") => Reply::Error(Refusal::Text(WRONG_TYPE.to_owned())),
            Reply::Error(Refusal::Text(text)) if text.starts_with("NOGROUP ") => {
                Reply::Error(Refusal::Text(format!("{text}{}", self.no_group_in)))
            }
            Reply::Error(other) => Reply::Error(other),
            _ => self.refused.into(),
        }
    }
}

const BUSY_KEY: &str = "BUSYKEY Target key name already exists.";
const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";
