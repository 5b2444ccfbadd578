//! The users on this node, and logging in.

use super::check::Checked;
use super::user::{DEFAULT, User, hash};
use bytes::Bytes;
use parking_lot::RwLock;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// All users, as part of the cluster map.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Users {
    /// Rises with each change; 0 = nobody changed anything yet, and there is the default user alone.
    version: u64,
    list: BTreeMap<Vec<u8>, User>,
    /// Ids of the last changes, oldest first.
    recent: Vec<u64>,
}

/// As many changes can tell afterwards that they were made.
const RECENT_MAX: usize = 64;

/// A change of users. It is made if nothing else was changed since `base`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserChange {
    /// Drawn by the proposer, to recognise it.
    pub id: u64,
    /// Version of the users that it was made from.
    pub base: u64,
    /// New or changed users.
    pub put: Vec<(Vec<u8>, User)>,
    /// Names of removed users.
    pub remove: Vec<Vec<u8>>,
}

impl Users {
    /// Version of the list.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Whether the change with this id is among the last that were made.
    pub fn made(&self, id: u64) -> bool {
        self.recent.contains(&id)
    }

    /// The users, by name; with `required` as the hash of the default user's password if it never was changed.
    pub fn list(&self, required: Option<&str>) -> BTreeMap<Vec<u8>, User> {
        let mut list = self.list.clone();
        list.entry(DEFAULT.to_vec()).or_insert_with(|| {
            let mut user = User::first_default();
            if let Some(hash) = required {
                user.nopass = false;
                user.passwords.push(hash.to_owned());
            }
            user
        });
        list
    }

    /// Makes a change; false if it was made from an older version or was made before.
    pub fn change(&mut self, change: UserChange) -> bool {
        if change.base != self.version || self.made(change.id) {
            return false;
        }
        for name in &change.remove {
            self.list.remove(name);
        }
        self.list.extend(change.put);
        self.version += 1;
        if self.recent.len() == RECENT_MAX {
            self.recent.remove(0);
        }
        self.recent.push(change.id);
        true
    }
}

/// The users on this node now. Sessions keep the user they run as and look here again when [`Directory::generation`]
/// has changed.
pub struct Directory {
    /// Hash of `requirepass`.
    required: Option<String>,
    now: RwLock<Arc<Now>>,
    generation: AtomicU64,
}

/// One state of the directory.
struct Now {
    version: u64,
    users: BTreeMap<Vec<u8>, Arc<Checked>>,
}

impl Directory {
    /// Nobody but the default user, with the password `requirepass` unless that is empty.
    pub fn new(requirepass: &str) -> Directory {
        let required = (!requirepass.is_empty()).then(|| hash(requirepass.as_bytes()));
        let now = Now::of(&Users::default(), required.as_deref(), None);
        Directory { required, now: RwLock::new(Arc::new(now)), generation: AtomicU64::new(1) }
    }

    /// Takes the agreed users, if they are newer.
    pub fn set(&self, users: &Users) {
        let mut now = self.now.write();
        if users.version() > now.version {
            *now = Arc::new(Now::of(users, self.required.as_deref(), Some(&now)));
            self.generation.fetch_add(1, Ordering::Release);
        }
    }

    /// Changes whenever a user did.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Version of the agreed users that this is from.
    pub fn version(&self) -> u64 {
        self.now.read().version
    }

    /// Hash of the password that `requirepass` set.
    pub(super) fn required(&self) -> Option<&str> {
        self.required.as_deref()
    }

    /// The user of this name.
    pub fn get(&self, name: &[u8]) -> Option<Arc<Checked>> {
        self.now.read().users.get(name).cloned()
    }

    /// The user of connections that did not log in.
    pub fn default_user(&self) -> Arc<Checked> {
        match self.get(DEFAULT) {
            Some(user) => user,
            None => unreachable!("it cannot be removed"),
        }
    }

    /// All users, by name.
    pub fn all(&self) -> Vec<Arc<Checked>> {
        self.now.read().users.values().cloned().collect()
    }

    /// The user, if name and password are right and it is enabled.
    pub fn log_in(&self, name: &[u8], password: &[u8]) -> Option<Arc<Checked>> {
        self.get(name).filter(|user| user.user.lets_in(password))
    }

    /// Whether a connection has to log in before it may do anything.
    pub fn wants_login(&self) -> bool {
        let user = self.default_user();
        !user.user.nopass || !user.user.enabled
    }
}

impl Now {
    /// Users that did not change stay the same object.
    fn of(users: &Users, required: Option<&str>, before: Option<&Now>) -> Now {
        let checked = |(name, user): (Vec<u8>, User)| {
            let old = before.and_then(|before| before.users.get(&name)).filter(|old| old.user == user);
            let new = || Arc::new(Checked::new(Bytes::from(name.clone()), user.clone()));
            (name.clone(), old.cloned().unwrap_or_else(new))
        };
        Now { version: users.version(), users: users.list(required).into_iter().map(checked).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(id: u64, base: u64, name: &str) -> UserChange {
        UserChange { id, base, put: vec![(name.into(), User::new())], remove: Vec::new() }
    }

    #[test]
    fn a_change_is_made_once_and_only_on_what_it_was_made_from() {
        let mut users = Users::default();
        assert!(users.change(change(7, 0, "a")));
        assert!(!users.change(change(7, 0, "a")), "proposed twice");
        assert!(!users.change(change(8, 0, "b")), "made from an old state");
        assert!(users.change(change(9, 1, "b")));
        assert_eq!(users.list(None).keys().collect::<Vec<_>>(), [&b"a"[..], b"b", b"default"]);
        assert!(users.made(7) && !users.made(8));
    }

    #[test]
    fn the_set_password_holds_until_somebody_changes_the_default_user() {
        let directory = Directory::new("secret");
        assert!(directory.wants_login());
        assert!(directory.log_in(b"default", b"secret").is_some());
        assert!(directory.log_in(b"default", b"other").is_none());
        let mut users = Users::default();
        let put = vec![(DEFAULT.to_vec(), User::first_default())];
        assert!(users.change(UserChange { id: 1, base: 0, put, remove: Vec::new() }));
        let before = directory.generation();
        directory.set(&users);
        assert!(!directory.wants_login() && directory.generation() > before);
        directory.set(&Users::default());
        assert_eq!(directory.version(), 1, "an older state does not come back");
    }
}
