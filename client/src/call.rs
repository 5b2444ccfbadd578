//! One call from its first attempt to its end: where to, what the answer means, whether to try again and when.

use crate::client::Inner;
use crate::command::{Args, Repeat, Unit};
use crate::connection::{Broken, NotAfter, OpenError};
use crate::error::{Error, ServerError};
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use weir_env::time::{Instant, sleep_until, timeout_at};
use weir_resp::Value;

/// An attempt without an answer for this long makes the client look for a newer map.
const SLOW: Duration = Duration::from_secs(1);

/// What one answer means.
#[derive(Debug, PartialEq)]
enum Verdict {
    /// The command was done, or refused for good.
    Final,
    /// Not done: ask this node. `for_good` tells MOVED from ASK.
    Elsewhere { slot: u16, addr: String, for_good: bool },
    /// Not done: ask again later.
    Later(String),
    /// The server cannot tell whether it was done.
    Unknown(String),
}

/// The limits of a call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) deadline: Instant,
    /// No attempt is sent after this.
    pub(crate) not_after: Option<NotAfter>,
}

impl Inner {
    /// Runs a unit to its end and answers its replies, which are of the expected number and hold no redirect.
    pub(crate) async fn run(self: &Arc<Self>, unit: &Unit, limits: Limits) -> Result<Vec<Value>, Error> {
        let started = Instant::now();
        let result = Call { inner: self, unit, limits, started, attempts: 0, doubtful: None }.run().await;
        self.options.observer.called(unit.name, started.elapsed(), result.as_ref().map(|_| ()));
        result
    }
}

struct Call<'a> {
    inner: &'a Arc<Inner>,
    unit: &'a Unit,
    limits: Limits,
    started: Instant,
    attempts: u32,
    /// An attempt that may have been done.
    doubtful: Option<String>,
}

/// How an attempt ended.
enum Attempt {
    Answered(Vec<Value>),
    NotSent(String),
    Lost(String),
    Never(Error),
}

impl Call<'_> {
    async fn run(mut self) -> Result<Vec<Value>, Error> {
        let slot = self.unit.slot()?;
        let mut asking: Option<Arc<str>> = None;
        let mut avoid: Option<Arc<str>> = None;
        loop {
            self.attempts += 1;
            let ask = asking.is_some();
            let at = match asking.take() {
                Some(at) => at,
                None => self.inner.choose(slot, avoid.take().as_ref()),
            };
            let why = match self.attempt(&at, ask).await {
                Attempt::Answered(values) => match verdict(&values) {
                    Verdict::Final => return self.finish(values),
                    Verdict::Elsewhere { slot, addr, for_good } => {
                        self.inner.options.observer.redirected(self.unit.name, &addr);
                        if for_good {
                            self.inner.topology.write().moved(slot, &addr);
                            self.inner.ask_for_map();
                        } else {
                            asking = Some(addr.as_str().into());
                        }
                        if self.attempts == 1 {
                            continue;
                        }
                        format!("{at} sends to {addr}")
                    }
                    Verdict::Later(why) => {
                        self.inner.ask_for_map();
                        format!("{at}: {why}")
                    }
                    Verdict::Unknown(why) => {
                        self.inner.ask_for_map();
                        self.doubt(format!("{at}: {why}"))?
                    }
                },
                Attempt::NotSent(why) => {
                    self.inner.ask_for_map();
                    avoid = Some(at);
                    why
                }
                Attempt::Lost(why) => {
                    self.inner.ask_for_map();
                    avoid = Some(at);
                    self.doubt(why)?
                }
                Attempt::Never(error) => return Err(self.end(error)),
            };
            self.pause(why).await?;
        }
    }

    /// One attempt at one node.
    async fn attempt(&self, at: &Arc<str>, ask: bool) -> Attempt {
        let inner = self.inner;
        let now = Instant::now();
        if now >= self.limits.deadline {
            return Attempt::NotSent("the deadline has passed".into());
        }
        // What cannot be repeated is waited for as long as there is time: a later answer is better than none.
        let patience = match self.unit.repeat {
            Repeat::Read | Repeat::Idempotent => {
                now + inner.options.attempt_timeout + self.unit.block.unwrap_or_default()
            }
            Repeat::NotDone => self.limits.deadline,
        };
        let until = patience.min(self.limits.deadline);
        let failed = |error| match error {
            OpenError::Later(why) => Attempt::NotSent(format!("{at}: {why}")),
            OpenError::Never(error) => Attempt::Never(error),
        };
        let no_connection = || Attempt::NotSent(format!("{at}: no connection in time"));
        let (connection, lent) = if self.unit.block.is_some() {
            match timeout_at(until, inner.nodes.lend(at)).await {
                Ok(Ok(lent)) => (lent.connection.clone(), Some(lent)),
                Ok(Err(error)) => return failed(error),
                Err(_) => return no_connection(),
            }
        } else {
            match timeout_at(until, inner.nodes.shared(at)).await {
                Ok(Ok(connection)) => (connection, None),
                Ok(Err(error)) => return failed(error),
                Err(_) => return no_connection(),
            }
        };
        let (frame, replies) =
            if ask { asking(self.unit) } else { (self.unit.frame.clone(), self.unit.replies) };
        let answer = {
            let call = connection.call(frame, replies, self.limits.not_after, until);
            let mut call = std::pin::pin!(call);
            tokio::select! {
                biased;
                answer = &mut call => answer,
                () = sleep_until(now + SLOW + self.unit.block.unwrap_or_default()) => {
                    inner.ask_for_map();
                    call.await
                }
            }
        };
        match answer {
            Ok(mut values) => {
                if let Some(lent) = lent {
                    lent.put_back();
                }
                if ask {
                    values.remove(0);
                }
                Attempt::Answered(values)
            }
            Err(broken) => {
                // It may be dead without having said so.
                inner.nodes.set_aside(&connection).await;
                match broken {
                    Broken::NotSent(why) => Attempt::NotSent(why),
                    Broken::Lost(why) => Attempt::Lost(why),
                    Broken::Garbage(detail) if self.unit.repeat == Repeat::Read => {
                        Attempt::Never(Error::Protocol { addr: at.to_string(), detail })
                    }
                    Broken::Garbage(why) => Attempt::Lost(why),
                }
            }
        }
    }

    /// Notes that the command may have been done; an error unless it may be repeated all the same.
    fn doubt(&mut self, why: String) -> Result<String, Error> {
        match self.unit.repeat {
            Repeat::NotDone => Err(Error::unknown(why)),
            Repeat::Read | Repeat::Idempotent => {
                self.doubtful = Some(why.clone());
                Ok(why)
            }
        }
    }

    /// Waits before the next attempt.
    async fn pause(&self, why: String) -> Result<(), Error> {
        let pause = self.inner.backoff(self.attempts);
        let until = Instant::now() + pause;
        let over = |bound: NotAfter| bound.is_over(&*self.inner.options.env.clock);
        if until >= self.limits.deadline || self.limits.not_after.is_some_and(over) {
            return Err(self.end(Error::Unavailable { waited: self.started.elapsed(), last: why }));
        }
        self.inner.options.observer.retried(self.unit.name, &why, pause);
        tracing::debug!(target: "weir_client", command = self.unit.name, why, ?pause, "trying again");
        sleep_until(until).await;
        Ok(())
    }

    /// The error to end with, unless an earlier attempt may have been done. A read in doubt has done nothing.
    fn end(&self, error: Error) -> Error {
        match &self.doubtful {
            Some(why) if self.unit.repeat == Repeat::Idempotent => {
                Error::unknown(format!("{why}; then {error}"))
            }
            _ => error,
        }
    }

    fn finish(self, values: Vec<Value>) -> Result<Vec<Value>, Error> {
        match values.last() {
            Some(Value::Error(text)) => {
                let error = ServerError::new(text);
                let about_users = matches!(error.code(), "NOAUTH" | "WRONGPASS" | "NOPERM");
                Err(self.end(if about_users { Error::Auth(error) } else { Error::Server(error) }))
            }
            _ => Ok(values),
        }
    }
}

/// The unit behind ASKING; inside a transaction every command needs its own, but MULTI carries it on.
fn asking(unit: &Unit) -> (Bytes, usize) {
    let mut frame = Vec::with_capacity(unit.frame.len() + 16);
    Args::default().push("ASKING").encode(&mut frame);
    frame.extend_from_slice(&unit.frame);
    (frame.into(), unit.replies + 1)
}

/// What the replies of a unit mean. The last one decides; a transaction that was not run because one of its commands
/// was redirected when it was queued means the same as that redirect.
fn verdict(values: &[Value]) -> Verdict {
    let Some(Value::Error(last)) = values.last() else { return Verdict::Final };
    if last.starts_with(b"EXECABORT") {
        let early = values.iter().filter_map(Value::error).map(|text| of_error(text));
        return early.into_iter().find(|verdict| *verdict != Verdict::Final).unwrap_or(Verdict::Final);
    }
    of_error(last)
}

fn of_error(text: &[u8]) -> Verdict {
    let text = String::from_utf8_lossy(text);
    let mut words = text.split(' ');
    let code = words.next().unwrap_or_default();
    match code {
        "MOVED" | "ASK" => {
            let slot = words.next().and_then(|slot| slot.parse().ok()).filter(|slot| *slot < crate::SLOTS);
            // Redis leaves the host out when it does not know it; the map will tell.
            let addr = words.next().filter(|addr| !addr.starts_with(':') && addr.contains(':'));
            match (slot, addr) {
                (Some(slot), Some(addr)) => {
                    Verdict::Elsewhere { slot, addr: addr.to_owned(), for_good: code == "MOVED" }
                }
                _ => Verdict::Later(text.into_owned()),
            }
        }
        "TRYAGAIN" | "CLUSTERDOWN" | "LOADING" | "BUSY" | "MASTERDOWN" | "READONLY" => {
            Verdict::Later(text.into_owned())
        }
        "UNKNOWN" => Verdict::Unknown(text.into_owned()),
        _ => Verdict::Final,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &'static str) -> Value {
        Value::Error(Bytes::from_static(text.as_bytes()))
    }

    #[test]
    fn each_error_has_one_meaning() {
        let elsewhere =
            |addr: &str, for_good| Verdict::Elsewhere { slot: 5, addr: addr.to_owned(), for_good };
        for (text, meaning) in [
            ("MOVED 5 h:1", elsewhere("h:1", true)),
            ("ASK 5 [::1]:1", elsewhere("[::1]:1", false)),
            ("MOVED 5 :1", Verdict::Later("MOVED 5 :1".into())),
            ("MOVED", Verdict::Later("MOVED".into())),
            ("MOVED 99999 h:1", Verdict::Later("MOVED 99999 h:1".into())),
            ("CLUSTERDOWN x", Verdict::Later("CLUSTERDOWN x".into())),
            ("UNKNOWN x", Verdict::Unknown("UNKNOWN x".into())),
            ("ERR x", Verdict::Final),
            ("", Verdict::Final),
        ] {
            assert_eq!(verdict(&[error(text)]), meaning, "{text}");
        }
    }

    #[test]
    fn a_transaction_means_what_stopped_it() {
        let ok = || Value::Simple(Bytes::from_static(b"OK"));
        let aborted = || error("EXECABORT Transaction discarded because of previous errors.");
        let moved = Verdict::Elsewhere { slot: 1, addr: "h:1".into(), for_good: true };
        assert_eq!(verdict(&[ok(), error("MOVED 1 h:1"), aborted()]), moved);
        assert_eq!(verdict(&[ok(), error("OOM x"), aborted()]), Verdict::Final);
        assert_eq!(verdict(&[ok(), ok(), Value::Array(vec![error("WRONGTYPE x")])]), Verdict::Final);
        assert_eq!(verdict(&[ok(), ok(), error("UNKNOWN x")]), Verdict::Unknown("UNKNOWN x".into()));
    }
}
