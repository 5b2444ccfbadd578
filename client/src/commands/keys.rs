//! Keys in general, and plain strings.

use super::{keys, millis};
use crate::Error;
use crate::client::{Call, Client};
use crate::command::Cmd;
use bytes::Bytes;
use std::future::IntoFuture;
use std::time::Duration;
use weir_env::BoxFuture;

/// When a new end of a key is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpireIf {
    /// The key has no end yet.
    None,
    /// The key has an end.
    Some,
    /// The new end is later.
    Later,
    /// The new end is earlier.
    Earlier,
}

/// SET in the making: see [`Client::set`].
#[must_use = "a call does nothing until it is awaited"]
pub struct Set {
    client: Client,
    cmd: Cmd,
}

impl Set {
    /// Only if there is no key; otherwise answers `false`.
    pub fn if_missing(mut self) -> Self {
        self.cmd.args.push("NX");
        self
    }

    /// Only if there is a key; otherwise answers `false`.
    pub fn if_present(mut self) -> Self {
        self.cmd.args.push("XX");
        self
    }

    /// The key ends after this time, in whole milliseconds.
    pub fn expire(mut self, after: Duration) -> Self {
        self.cmd.args.push("PX").push_int(millis(after).max(1));
        self
    }

    /// The key keeps its end.
    pub fn keep_ttl(mut self) -> Self {
        self.cmd.args.push("KEEPTTL");
        self
    }
}

/// Nil means that a condition was not met.
impl IntoFuture for Set {
    type Output = Result<bool, Error>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { Ok(self.client.call::<Option<()>>(self.cmd).await?.is_some()) })
    }
}

impl Client {
    /// Removes keys of one slot and answers how many there were.
    ///
    /// # Errors
    /// [`crate::Error::CrossSlot`] for keys in different slots; [`crate::Error::Unknown`] when the answer was lost.
    pub fn del<K: AsRef<[u8]>>(&self, all: impl IntoIterator<Item = K>) -> Call<u64> {
        self.call(keys(Cmd::write("DEL"), all))
    }

    /// As [`Client::del`]; memory is freed afterwards.
    pub fn unlink<K: AsRef<[u8]>>(&self, all: impl IntoIterator<Item = K>) -> Call<u64> {
        self.call(keys(Cmd::write("UNLINK"), all))
    }

    /// How many of these keys of one slot there are; a key named twice counts twice.
    ///
    /// # Errors
    /// [`crate::Error::CrossSlot`] for keys in different slots.
    pub fn exists<K: AsRef<[u8]>>(&self, all: impl IntoIterator<Item = K>) -> Call<u64> {
        self.call(keys(Cmd::read("EXISTS"), all))
    }

    /// As [`Client::exists`].
    pub fn touch<K: AsRef<[u8]>>(&self, all: impl IntoIterator<Item = K>) -> Call<u64> {
        self.call(keys(Cmd::read("TOUCH"), all))
    }

    /// The type of what is at a key: `stream`, `string`, or `none` if there is nothing.
    pub fn key_type(&self, key: impl AsRef<[u8]>) -> Call<String> {
        self.call(Cmd::read("TYPE").key(key))
    }

    /// Renames a key, over whatever stands at the new name, which must be in the same slot.
    ///
    /// # Errors
    /// [`crate::Error::Server`] with code `ERR` if there is no such key; [`crate::Error::CrossSlot`].
    pub fn rename(&self, key: impl AsRef<[u8]>, new: impl AsRef<[u8]>) -> Call<()> {
        self.call(Cmd::write("RENAME").key(key).key(new))
    }

    /// Renames a key if the new name is free; answers whether it did.
    ///
    /// # Errors
    /// As [`Client::rename`].
    pub fn renamenx(&self, key: impl AsRef<[u8]>, new: impl AsRef<[u8]>) -> Call<bool> {
        self.call(Cmd::write("RENAMENX").key(key).key(new))
    }

    /// Lets a key end after a time, in whole milliseconds; answers whether there is such a key.
    pub fn expire(&self, key: impl AsRef<[u8]>, after: Duration) -> Call<bool> {
        self.call(Cmd::write("PEXPIRE").key(key).int(millis(after)))
    }

    /// As [`Client::expire`], on a condition; answers whether the new end was taken.
    pub fn expire_if(&self, key: impl AsRef<[u8]>, after: Duration, condition: ExpireIf) -> Call<bool> {
        let word = match condition {
            ExpireIf::None => "NX",
            ExpireIf::Some => "XX",
            ExpireIf::Later => "GT",
            ExpireIf::Earlier => "LT",
        };
        self.call(Cmd::write("PEXPIRE").key(key).int(millis(after)).arg(word))
    }

    /// Lets a key end at a Unix time in milliseconds; answers whether there is such a key.
    pub fn expire_at_ms(&self, key: impl AsRef<[u8]>, unix_ms: u64) -> Call<bool> {
        self.call(Cmd::write("PEXPIREAT").key(key).int(unix_ms))
    }

    /// Takes the end of a key away; answers whether it had one.
    pub fn persist(&self, key: impl AsRef<[u8]>) -> Call<bool> {
        self.call(Cmd::write("PERSIST").key(key))
    }

    /// Milliseconds that a key has left; -1 without an end, -2 without the key.
    pub fn pttl(&self, key: impl AsRef<[u8]>) -> Call<i64> {
        self.call(Cmd::read("PTTL").key(key))
    }

    /// Unix time in milliseconds at which a key ends; -1 without an end, -2 without the key.
    pub fn pexpiretime(&self, key: impl AsRef<[u8]>) -> Call<i64> {
        self.call(Cmd::read("PEXPIRETIME").key(key))
    }

    /// Sets the string at a key; answers whether it did, which only a condition can prevent.
    ///
    /// ```no_run
    /// # async fn example(client: weir_client::Client) -> Result<(), weir_client::Error> {
    /// use std::time::Duration;
    /// let mine = client.set("lock", "me").if_missing().expire(Duration::from_secs(10)).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`crate::Error::Unknown`] when the answer was lost.
    pub fn set(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Set {
        Set { client: self.clone(), cmd: Cmd::write("SET").key(key).arg(value) }
    }

    /// The string at a key.
    ///
    /// # Errors
    /// [`crate::Error::Server`] with code `WRONGTYPE` if it holds something else.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Call<Option<Bytes>> {
        self.call(Cmd::read("GET").key(key))
    }
}
