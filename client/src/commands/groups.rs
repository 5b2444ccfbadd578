//! XGROUP.

use crate::EntryId;
use crate::client::{Call, Client};
use crate::command::Cmd;

/// Where a group starts to deliver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupStart {
    /// With the first entry.
    First,
    /// With entries added after this moment.
    New,
    /// With the first entry above this id.
    After(EntryId),
}

impl GroupStart {
    pub(crate) fn text(self) -> String {
        match self {
            GroupStart::First => "0".to_owned(),
            GroupStart::New => "$".to_owned(),
            GroupStart::After(id) => id.to_string(),
        }
    }
}

impl Client {
    /// Creates a group, and the stream if it is missing.
    ///
    /// # Errors
    /// [`crate::Error::Server`] with code `BUSYGROUP` if there is a group of this name;
    /// [`crate::Error::Unknown`] when the answer was lost.
    pub fn xgroup_create(
        &self,
        key: impl AsRef<[u8]>,
        group: impl AsRef<[u8]>,
        start: GroupStart,
    ) -> Call<()> {
        self.call(Cmd::write("XGROUP CREATE").key(key).arg(group).arg(start.text()).arg("MKSTREAM"))
    }

    /// Moves the position of a group. What is pending stays pending.
    ///
    /// # Errors
    /// [`crate::Error::Server`] with code `NOGROUP` if there is no such group.
    pub fn xgroup_setid(
        &self,
        key: impl AsRef<[u8]>,
        group: impl AsRef<[u8]>,
        start: GroupStart,
    ) -> Call<()> {
        self.call(Cmd::write("XGROUP SETID").key(key).arg(group).arg(start.text()))
    }

    /// Removes a group with all that it remembers; answers whether there was one.
    pub fn xgroup_destroy(&self, key: impl AsRef<[u8]>, group: impl AsRef<[u8]>) -> Call<bool> {
        self.call(Cmd::write("XGROUP DESTROY").key(key).arg(group))
    }

    /// Creates a consumer; answers whether it is new.
    ///
    /// # Errors
    /// [`crate::Error::Server`] with code `NOGROUP` if there is no such group.
    pub fn xgroup_createconsumer(
        &self,
        key: impl AsRef<[u8]>,
        group: impl AsRef<[u8]>,
        consumer: impl AsRef<[u8]>,
    ) -> Call<bool> {
        self.call(Cmd::write("XGROUP CREATECONSUMER").key(key).arg(group).arg(consumer))
    }

    /// Removes a consumer **together with its pending entries**, which nobody will get again; answers how many
    /// those were.
    ///
    /// # Errors
    /// [`crate::Error::Server`] with code `NOGROUP` if there is no such group.
    pub fn xgroup_delconsumer(
        &self,
        key: impl AsRef<[u8]>,
        group: impl AsRef<[u8]>,
        consumer: impl AsRef<[u8]>,
    ) -> Call<u64> {
        self.call(Cmd::write("XGROUP DELCONSUMER").key(key).arg(group).arg(consumer))
    }
}
