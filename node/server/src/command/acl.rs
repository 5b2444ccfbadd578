//! ACL, as the node answers it.

use super::{error, table};
use crate::acl::change::{Edit, change};
use crate::acl::check::{self, Checked};
use crate::acl::facts::{self, CATEGORIES};
use crate::acl::user::{Selector, User};
use crate::node::Node;
use crate::session::Session;
use bytes::Bytes;
use std::sync::Arc;
use weir_stream::Reply;

/// ACL's subcommands.
#[derive(Debug)]
pub enum AclCall {
    /// WHOAMI.
    WhoAmI,
    /// LIST.
    List,
    /// USERS.
    Users,
    /// GETUSER.
    GetUser(Bytes),
    /// SETUSER.
    SetUser {
        /// Which.
        name: Bytes,
        /// In their order.
        rules: Vec<Bytes>,
    },
    /// DELUSER.
    DelUser(Vec<Bytes>),
    /// CAT.
    Categories,
    /// CAT with a category, `@` included.
    Category(&'static str),
    /// GENPASS.
    GenPass {
        /// Length of the answer.
        digits: usize,
    },
    /// LOG.
    Log {
        /// At most so many entries.
        count: usize,
    },
    /// LOG RESET.
    LogReset,
    /// DRYRUN.
    DryRun {
        /// User.
        name: Bytes,
        /// The call to try.
        args: Vec<Bytes>,
    },
}

impl AclCall {
    /// Whether it changes the users of the cluster, which takes a round among the nodes.
    pub fn changes(&self) -> bool {
        matches!(self, AclCall::SetUser { .. } | AclCall::DelUser(_))
    }
}

fn bulk(text: impl Into<Bytes>) -> Reply {
    Reply::Bulk(text.into())
}

fn word(text: &'static str) -> Reply {
    Reply::Bulk(Bytes::from_static(text.as_bytes()))
}

/// Answers what needs no other node; hands back what does.
pub(super) fn now(node: &Node, session: &Session, call: AclCall) -> Result<Reply, AclCall> {
    Ok(match call {
        AclCall::WhoAmI => Reply::Bulk(session.user.name.clone()),
        AclCall::List => {
            let line =
                |user: &Arc<Checked>| bulk([&b"user "[..], &user.name, b" ", &user.user.describe()].concat());
            Reply::Array(node.acl.all().iter().map(line).collect())
        }
        AclCall::Users => Reply::Array(node.acl.all().iter().map(|user| bulk(user.name.clone())).collect()),
        AclCall::GetUser(name) => match node.acl.get(&name) {
            Some(user) => describe(&user.user),
            None => Reply::NilBulk,
        },
        AclCall::Categories => Reply::Array(CATEGORIES.iter().map(|name| word(&name[1..])).collect()),
        AclCall::Category(category) => {
            Reply::Array(facts::of_category(category).into_iter().map(word).collect())
        }
        AclCall::GenPass { digits } => {
            let mut bytes = vec![0; digits.div_ceil(2)];
            node.env.rng.fill(&mut bytes);
            let mut text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            text.truncate(digits);
            bulk(text)
        }
        AclCall::Log { count } => node.acl_log.show(count, node.env.clock.wall_ms()),
        AclCall::LogReset => {
            node.acl_log.reset();
            Reply::Ok
        }
        AclCall::DryRun { name, args } => dry_run(node, &name, &args),
        call @ (AclCall::SetUser { .. } | AclCall::DelUser(_)) => return Err(call),
    })
}

/// Changes the users.
pub(super) async fn later(node: &Arc<Node>, call: AclCall) -> Reply {
    let changed = match call {
        AclCall::SetUser { name, rules } => {
            change(node, |users| {
                let rules: Vec<&[u8]> = rules.iter().map(|rule| &rule[..]).collect();
                let old = users.get(&name[..]).cloned().unwrap_or_default();
                let new = old.with_rules(&rules).map_err(|why| format!("ERR {why}"))?;
                let put = match users.get(&name[..]) == Some(&new) {
                    true => Vec::new(),
                    false => vec![(name.clone(), new)],
                };
                Ok((Edit { put, remove: Vec::new() }, Reply::Ok))
            })
            .await
        }
        AclCall::DelUser(names) => {
            change(node, |users| {
                let mut remove: Vec<Bytes> =
                    names.iter().filter(|name| users.contains_key(&name[..])).cloned().collect();
                remove.sort();
                remove.dedup();
                let count = remove.len() as i64;
                Ok((Edit { put: Vec::new(), remove }, Reply::Int(count)))
            })
            .await
        }
        _ => Err("ERR nothing to change".to_owned()),
    };
    changed.unwrap_or_else(error)
}

fn describe(user: &User) -> Reply {
    let mut fields = vec![
        (word("flags"), Reply::Set(user.flags().into_iter().map(word).collect())),
        (word("passwords"), Reply::Array(user.passwords.iter().map(|hash| bulk(hash.clone())).collect())),
    ];
    fields.extend(describe_selector(&user.root));
    let selectors = user.selectors.iter().map(|selector| Reply::Map(describe_selector(selector)));
    fields.push((word("selectors"), Reply::Array(selectors.collect())));
    Reply::Map(fields)
}

fn describe_selector(selector: &Selector) -> Vec<(Reply, Reply)> {
    vec![
        (word("commands"), bulk(selector.describe_commands())),
        (word("keys"), bulk(selector.describe_keys())),
        (word("channels"), bulk(selector.describe_channels())),
    ]
}

fn dry_run(node: &Node, name: &[u8], args: &[Bytes]) -> Reply {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let Some(user) = node.acl.get(name) else {
        return error(format!("ERR User '{}' not found", text(name)));
    };
    let container = table::find(&args[0]);
    let row = match (container, args.get(1)) {
        (Some(row), Some(sub)) if !row.subs.is_empty() => table::find_sub(row, sub),
        (row, _) => row,
    };
    let Some(row) = row else { return error(format!("ERR Command '{}' not found", text(&args[0]))) };
    if !row.arity_fits(args.len()) {
        return table::wrong_arity(row.name).into();
    }
    match user.check(row, args) {
        Ok(()) => Reply::Ok,
        Err(denied) => bulk(check::refusal(denied, &user, row, args, true)),
    }
}
