//! XADD, XTRIM and what else changes entries.

use super::{awaits, counted_ids, ids};
use crate::EntryId;
#[cfg(doc)]
use crate::Error;
use crate::client::{Call, Client};
use crate::command::{Args, Cmd};
use crate::reply::FromValue;
use std::marker::PhantomData;
use weir_resp::Value;

/// How far a stream is trimmed. `approx` variants cut only whole blocks, which is much cheaper.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trim {
    /// To exactly this many entries.
    MaxLen(u64),
    /// To this many entries or somewhat more.
    MaxLenApprox(u64),
    /// To entries with this id or above.
    MinId(EntryId),
    /// As `MinId`, or somewhat more.
    MinIdApprox(EntryId),
}

impl Trim {
    pub(crate) fn push(self, args: &mut Args) {
        match self {
            Trim::MaxLen(n) => args.push("MAXLEN").push("=").push_int(n),
            Trim::MaxLenApprox(n) => args.push("MAXLEN").push("~").push_int(n),
            Trim::MinId(id) => args.push("MINID").push("=").push_id(id),
            Trim::MinIdApprox(id) => args.push("MINID").push("~").push_id(id),
        };
    }
}

/// What becomes of references in groups to entries that are removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refs {
    /// They stay: the groups show the entries as gone.
    Keep,
    /// They are removed too.
    Delete,
    /// Entries that a group still has to deliver or has pending are not removed.
    Acked,
}

impl Refs {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Refs::Keep => "KEEPREF",
            Refs::Delete => "DELREF",
            Refs::Acked => "ACKED",
        }
    }
}

/// What became of one entry that was to be removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Removal {
    /// It is removed (or, for XACKDEL, at least acknowledged and gone).
    Done,
    /// It was not there, or not pending.
    Missing,
    /// A group still needs it; for XACKDEL it is acknowledged all the same.
    Held,
}

impl FromValue for Removal {
    fn from_value(value: Value) -> Result<Self, Value> {
        match value {
            Value::Int(1) => Ok(Removal::Done),
            Value::Int(-1) => Ok(Removal::Missing),
            Value::Int(2) => Ok(Removal::Held),
            other => Err(other),
        }
    }
}

/// The id of an entry to add.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AddId {
    /// Chosen by the server: the time, or just above the last id.
    #[default]
    Auto,
    /// The next number within this millisecond.
    AutoSeq(u64),
    /// This one; it must be above the last id of the stream.
    Given(EntryId),
}

/// XADD in the making: see [`Client::xadd`].
#[must_use = "a call does nothing until it is awaited"]
pub struct XAdd<T = EntryId> {
    client: Client,
    key: Vec<u8>,
    add: Add,
    reply: PhantomData<fn() -> T>,
}

/// An entry to be added, with the options of XADD.
#[derive(Debug, Clone, Default)]
pub struct Add {
    no_mkstream: bool,
    pub(crate) idmp: Option<(Vec<u8>, Vec<u8>)>,
    pub(crate) trim: Option<Trim>,
    limit: Option<u64>,
    refs: Option<Refs>,
    id: AddId,
    pub(crate) fields: Args,
}

impl Add {
    /// An entry without fields yet.
    pub fn new() -> Add {
        Add::default()
    }

    /// Adds a field.
    pub fn field(mut self, name: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Add {
        self.fields.push(name).push(value);
        self
    }

    /// An entry of these fields.
    pub fn fields<N: AsRef<[u8]>, V: AsRef<[u8]>>(fields: impl IntoIterator<Item = (N, V)>) -> Add {
        fields.into_iter().fold(Add::new(), |add, (name, value)| add.field(name, value))
    }

    pub(crate) fn cmd(&self, key: &[u8]) -> Cmd {
        let mut cmd = Cmd::write("XADD").key(key);
        if self.no_mkstream {
            cmd.args.push("NOMKSTREAM");
        }
        if let Some(refs) = self.refs {
            cmd.args.push(refs.word());
        }
        if let Some((producer, id)) = &self.idmp {
            cmd.args.push("IDMP").push(producer).push(id);
        }
        if let Some(trim) = self.trim {
            trim.push(&mut cmd.args);
            if let Some(limit) = self.limit {
                cmd.args.push("LIMIT").push_int(limit);
            }
        }
        match self.id {
            AddId::Auto => cmd.args.push("*"),
            AddId::AutoSeq(ms) => cmd.args.push(format!("{ms}-*")),
            AddId::Given(id) => cmd.args.push_id(id),
        };
        cmd.args.append(&self.fields);
        cmd
    }
}

impl<N: AsRef<[u8]>, V: AsRef<[u8]>, const COUNT: usize> From<[(N, V); COUNT]> for Add {
    fn from(fields: [(N, V); COUNT]) -> Add {
        Add::fields(fields)
    }
}

impl<N: AsRef<[u8]>, V: AsRef<[u8]>> From<Vec<(N, V)>> for Add {
    fn from(fields: Vec<(N, V)>) -> Add {
        Add::fields(fields)
    }
}

impl<T> XAdd<T> {
    /// Adds a field.
    pub fn field(mut self, name: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Self {
        self.add.fields.push(name).push(value);
        self
    }

    /// Adds fields.
    pub fn fields<N: AsRef<[u8]>, V: AsRef<[u8]>>(self, fields: impl IntoIterator<Item = (N, V)>) -> Self {
        fields.into_iter().fold(self, |xadd, (name, value)| xadd.field(name, value))
    }

    /// With this id instead of one that the server chooses.
    pub fn id(mut self, id: AddId) -> Self {
        self.add.id = id;
        self
    }

    /// Trims the stream in the same step.
    pub fn trim(mut self, to: Trim) -> Self {
        self.add.trim = Some(to);
        self
    }

    /// Trims the stream to exactly this many entries.
    pub fn maxlen(self, entries: u64) -> Self {
        self.trim(Trim::MaxLen(entries))
    }

    /// Trims the stream to this many entries or somewhat more.
    pub fn maxlen_approx(self, entries: u64) -> Self {
        self.trim(Trim::MaxLenApprox(entries))
    }

    /// An approximate trim removes at most this many entries now.
    pub fn limit(mut self, entries: u64) -> Self {
        self.add.limit = Some(entries);
        self
    }

    /// What a trim does with references in groups.
    pub fn refs(mut self, refs: Refs) -> Self {
        self.add.refs = Some(refs);
        self
    }

    /// Says who appends and a name of this append. If the stream remembers the pair, nothing is added and the id of
    /// the first append is answered. The call itself is still not repeated when its answer is lost, since only the
    /// caller knows how long the stream remembers; see [`crate::Producer`].
    pub fn idmp(mut self, producer: impl AsRef<[u8]>, id: impl AsRef<[u8]>) -> Self {
        self.add.idmp = Some((producer.as_ref().to_vec(), id.as_ref().to_vec()));
        self
    }

    /// Does nothing and answers `None` if the stream is missing.
    pub fn no_mkstream(mut self) -> XAdd<Option<EntryId>> {
        self.add.no_mkstream = true;
        XAdd { client: self.client, key: self.key, add: self.add, reply: PhantomData }
    }

    fn into_cmd(self) -> Cmd {
        self.add.cmd(&self.key)
    }
}

awaits!(XAdd<EntryId> => EntryId);
awaits!(XAdd<Option<EntryId>> => Option<EntryId>);

impl Client {
    /// Appends an entry to a stream, which is created if it is missing, and answers the id of the entry. An entry
    /// needs at least one field.
    ///
    /// ```no_run
    /// # async fn example(client: weir_client::Client) -> Result<(), weir_client::Error> {
    /// let id = client.xadd("orders").field("item", "tea").await?;
    /// let none = client.xadd("orders").no_mkstream().maxlen(10).field("item", [0xff, 0x00]).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Unknown`] when the answer was lost: the entry may have been added. [`crate::Producer`] knows how to
    /// go on from there. [`Error::Server`] with code `WRONGTYPE` if the key holds something else, `ERR` if a given id
    /// is not above the last one.
    pub fn xadd(&self, key: impl AsRef<[u8]>) -> XAdd {
        XAdd { client: self.clone(), key: key.as_ref().to_vec(), add: Add::new(), reply: PhantomData }
    }

    /// Removes the oldest entries of a stream and answers how many.
    ///
    /// # Errors
    /// As any write: [`Error::Unknown`] when the answer was lost.
    pub fn xtrim(&self, key: impl AsRef<[u8]>, to: Trim) -> Call<u64> {
        let mut cmd = Cmd::write("XTRIM").key(key);
        to.push(&mut cmd.args);
        self.call(cmd)
    }

    /// Removes entries by id and answers how many were there.
    ///
    /// # Errors
    /// As any write: [`Error::Unknown`] when the answer was lost; doing it again is harmless.
    pub fn xdel(&self, key: impl AsRef<[u8]>, entries: impl IntoIterator<Item = EntryId>) -> Call<u64> {
        self.call(ids(Cmd::write("XDEL").key(key), entries))
    }

    /// Removes entries by id, and says what becomes of references in groups; what became of each.
    ///
    /// # Errors
    /// As [`Client::xdel`].
    pub fn xdelex(
        &self,
        key: impl AsRef<[u8]>,
        refs: Refs,
        entries: impl IntoIterator<Item = EntryId>,
    ) -> Call<Vec<Removal>> {
        self.call(counted_ids(Cmd::write("XDELEX").key(key).arg(refs.word()), entries))
    }

    /// Sets the last id of a stream; entries added later get higher ones.
    ///
    /// # Errors
    /// [`Error::Server`] with code `ERR` if the stream is missing or has an entry above `last`.
    pub fn xsetid(&self, key: impl AsRef<[u8]>, last: EntryId) -> Call<()> {
        self.call(Cmd::write("XSETID").key(key).id(last))
    }

    /// Sets how long (`duration_s`, 1 to 86400 seconds) and how many (`maxsize`, 1 to 10000 a producer) ids of
    /// idempotent appends a stream remembers. A change forgets those remembered so far.
    ///
    /// # Errors
    /// [`Error::Server`] with code `ERR` if the stream is missing or a number is out of range.
    pub fn xcfgset(&self, key: impl AsRef<[u8]>, duration_s: u64, maxsize: u64) -> Call<()> {
        let cmd = Cmd::write("XCFGSET").key(key);
        self.call(cmd.arg("IDMP-DURATION").int(duration_s).arg("IDMP-MAXSIZE").int(maxsize))
    }
}
