//! Changing the users of the whole cluster: one change of the map at a time, each made from the state before it.

use super::directory::UserChange;
use super::user::User;
use crate::command::control::UNKNOWN;
use crate::meta::MetaCommand;
use crate::node::Node;
use crate::route::NO_LEADER;
use crate::run::desk::{Handed, change_map, wait_for_map};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use weir_env::time::{Instant, sleep, timeout};

/// Most users of a cluster.
pub const USERS_MAX: usize = 10_000;
/// Most bytes of a user's rules, as ACL LIST shows them.
pub const USER_BYTES_MAX: usize = 64 * 1024;

/// A change that was not seen in the map within this time is proposed again: it is made once at most.
const AGAIN_AFTER: Duration = Duration::from_millis(500);
/// Pause while the meta group has no leader.
const NO_LEADER_PAUSE: Duration = Duration::from_millis(20);

/// What to do to the users.
#[derive(Debug, Default)]
pub struct Edit {
    /// New or changed users.
    pub put: Vec<(Bytes, User)>,
    /// Removed users.
    pub remove: Vec<Bytes>,
}

/// Makes the change that `edit` sees fit for the users as they are, and returns once every node that can be reached
/// has it. `edit` is asked again when somebody else changed something meanwhile. Answers what `edit` answered besides.
///
/// # Errors
/// The error line for the client: `edit`'s own, or that the cluster could not make the change, or that nobody can tell.
pub async fn change<T>(
    node: &Arc<Node>,
    edit: impl Fn(&BTreeMap<Vec<u8>, User>) -> Result<(Edit, T), String> + Send,
) -> Result<T, String> {
    let until = Instant::now() + Duration::from_millis(node.config.write_timeout_ms);
    loop {
        let users = node.topology.map().users.clone();
        let list = users.list(node.acl.required());
        let (edit, answer) = edit(&list)?;
        if edit.put.is_empty() && edit.remove.is_empty() {
            return Ok(answer);
        }
        bounded(&list, &edit)?;
        let change = UserChange {
            id: node.env.rng.u64(),
            base: users.version(),
            put: edit.put.into_iter().map(|(name, user)| (name.to_vec(), user)).collect(),
            remove: edit.remove.iter().map(|name| name.to_vec()).collect(),
        };
        let id = change.id;
        propose_until_seen(node, change, until).await?;
        let map = node.topology.map();
        if map.users.made(id) {
            node.acl.set(&map.users);
            wait_for_map(node, map.epoch).await;
            return Ok(answer);
        }
    }
}

fn bounded(list: &BTreeMap<Vec<u8>, User>, edit: &Edit) -> Result<(), String> {
    let new = edit.put.iter().filter(|(name, _)| !list.contains_key(&name[..])).count();
    if list.len() + new > USERS_MAX {
        return Err(format!("ERR too many users, at most {USERS_MAX}"));
    }
    if edit.put.iter().any(|(name, user)| name.len() + user.describe().len() > USER_BYTES_MAX) {
        return Err(format!("ERR the rules of one user are at most {USER_BYTES_MAX} bytes"));
    }
    Ok(())
}

/// Returns once the users on this node are newer than what the change was made from.
async fn propose_until_seen(node: &Arc<Node>, change: UserChange, until: Instant) -> Result<(), String> {
    let base = change.base;
    let command = MetaCommand::ChangeUsers(change);
    let mut handed_over = false;
    loop {
        let handed = change_map(node, &command).await;
        handed_over |= handed != Handed::No;
        let mut changed = node.topology.changed();
        let seen =
            async { while node.topology.map().users.version() == base && changed.changed().await.is_ok() {} };
        let pause = if handed == Handed::No { NO_LEADER_PAUSE } else { AGAIN_AFTER };
        if timeout(pause, seen).await.is_ok() {
            return Ok(());
        }
        if Instant::now() >= until {
            return Err(if handed_over { UNKNOWN.to_owned() } else { NO_LEADER.to_string() });
        }
        if handed == Handed::No {
            sleep(NO_LEADER_PAUSE).await;
        }
    }
}
