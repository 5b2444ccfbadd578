//! Whatever has no method of its own: any command, and transactions.

use crate::client::{Call, Client};
use crate::command::{Cmd, Repeat, Target, Unit};
use crate::error::{Error, ServerError};
use crate::reply::FromValue;
use std::time::Duration;
use weir_resp::Value;

/// Any command in the making: see [`Client::raw`].
#[must_use = "a call does nothing until it is sent"]
pub struct Raw {
    client: Client,
    cmd: Cmd,
}

impl Raw {
    /// Adds an argument that is a key: it decides where the command goes.
    pub fn key(mut self, key: impl AsRef<[u8]>) -> Self {
        self.cmd.add_key(key);
        self
    }

    /// Adds an argument.
    pub fn arg(mut self, arg: impl AsRef<[u8]>) -> Self {
        self.cmd.args.push(arg);
        self
    }

    /// Adds arguments.
    pub fn args<A: AsRef<[u8]>>(self, args: impl IntoIterator<Item = A>) -> Self {
        args.into_iter().fold(self, |raw, arg| raw.arg(arg))
    }

    /// Says that the command changes nothing, so that it may be sent again when an answer is lost.
    pub fn is_read(mut self) -> Self {
        self.cmd.repeat = Repeat::Read;
        self
    }

    /// Says that doing the command twice is the same as doing it once, so that it may be sent again when an answer
    /// is lost. If no answer ever comes, the outcome is still [`Error::Unknown`].
    pub fn is_idempotent(mut self) -> Self {
        self.cmd.repeat = Repeat::Idempotent;
        self
    }

    /// Says that the command may wait this long at the server: it gets a connection of its own.
    pub fn blocks(mut self, time: Duration) -> Self {
        self.cmd.block = Some(time);
        self
    }

    /// The call, with its reply read as a `T`; [`Value`] takes any.
    pub fn query<T: FromValue>(self) -> Call<T> {
        self.client.call(self.cmd)
    }
}

/// Commands that are done together or not at all: see [`Client::transaction`].
#[must_use = "a transaction does nothing until it is run"]
pub struct Transaction {
    client: Client,
    cmds: Vec<Cmd>,
}

impl Transaction {
    /// Adds a call or a builder of one; the rest of its options (timeout) count for nothing here.
    pub fn with<T>(mut self, call: Call<T>) -> Self {
        self.cmds.push(call.cmd);
        self
    }

    /// Runs all of it as one step. Answers the reply of each command, which may be an error of its own: as in
    /// Redis, the others are done all the same.
    ///
    /// # Errors
    /// [`Error::CrossSlot`] for keys in different slots; [`Error::Unknown`] when the answer was lost: all of it was
    /// done, or nothing.
    pub async fn run(self) -> Result<Vec<Result<Value, ServerError>>, Error> {
        if self.cmds.iter().any(|cmd| cmd.block.is_some() || cmd.target == Target::Crossing) {
            return Err(Error::Invalid("nothing can wait, and no keys can cross, in a transaction".into()));
        }
        let unit = Unit::transaction("EXEC", &self.cmds);
        let count = self.cmds.len();
        let mut values = self.client.run(&unit, self.client.options().timeout).await?;
        match values.pop() {
            Some(Value::Array(replies)) if replies.len() == count => Ok(replies
                .into_iter()
                .map(|reply| match reply {
                    Value::Error(text) => Err(ServerError::new(&text)),
                    value => Ok(value),
                })
                .collect()),
            other => Err(Error::unexpected("EXEC", &other.unwrap_or(Value::Null))),
        }
    }
}

impl Client {
    /// Any command, by its name; a subcommand is a word of its own. Without a key it goes to any node.
    ///
    /// ```no_run
    /// # async fn example(client: weir_client::Client) -> Result<(), weir_client::Error> {
    /// let id: weir_client::EntryId =
    ///     client.raw("XADD").key("orders").arg("*").args(["item", "tea"]).query().await?;
    /// let length: i64 = client.raw("XLEN").key("orders").is_read().query().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As any write, unless [`Raw::is_read`] or [`Raw::is_idempotent`] says more.
    pub fn raw(&self, name: &'static str) -> Raw {
        Raw { client: self.clone(), cmd: Cmd::write(name) }
    }

    /// Commands on keys of one slot that are done together, as one entry of the shard's log, or not at all.
    ///
    /// ```no_run
    /// # async fn example(client: weir_client::Client) -> Result<(), weir_client::Error> {
    /// let replies = client
    ///     .transaction()
    ///     .with(client.xadd("{order}:log").field("state", "paid").call())
    ///     .with(client.xtrim("{order}:open", weir_client::Trim::MaxLen(0)))
    ///     .run()
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn transaction(&self) -> Transaction {
        Transaction { client: self.clone(), cmds: Vec::new() }
    }

    /// Asks any node whether it is there.
    pub fn ping(&self) -> Call<()> {
        self.call(Cmd::read("PING"))
    }
}
