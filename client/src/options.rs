//! Settings of a client.

use crate::observe::Observer;
use crate::tls::Tls;
use std::sync::Arc;
use std::time::Duration;
use weir_env::Env;

/// How a [`crate::Client`] behaves. Start from [`Options::default`].
///
/// ```
/// use std::time::Duration;
/// use weir_client::Options;
/// let options = Options::default().timeout(Duration::from_secs(3)).user("app", "secret").name("billing");
/// ```
#[derive(Clone)]
pub struct Options {
    pub(crate) timeout: Duration,
    pub(crate) attempt_timeout: Duration,
    pub(crate) connect_timeout: Duration,
    pub(crate) refresh_every: Duration,
    pub(crate) backoff_min: Duration,
    pub(crate) backoff_max: Duration,
    pub(crate) in_flight_max: usize,
    pub(crate) blocking_max: usize,
    pub(crate) user: Option<(Option<String>, String)>,
    pub(crate) name: Option<String>,
    pub(crate) tls: Option<Tls>,
    pub(crate) observer: Arc<dyn Observer>,
    pub(crate) env: Env,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            timeout: Duration::from_secs(10),
            attempt_timeout: Duration::from_secs(2),
            connect_timeout: Duration::from_secs(1),
            refresh_every: Duration::from_secs(30),
            backoff_min: Duration::from_millis(10),
            backoff_max: Duration::from_millis(500),
            in_flight_max: 4096,
            blocking_max: 1024,
            user: None,
            name: None,
            tls: None,
            observer: Arc::new(crate::observe::Silent),
            env: Env::system(),
        }
    }
}

impl Options {
    /// Longest time a call may take, all attempts together; a blocking read may take its BLOCK time in addition.
    /// Default 10 s: a Weir server answers a write within its own write timeout (5 s) or says `UNKNOWN`, after
    /// waiting up to two elections for a leader.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// How long one attempt of a call that is safe to repeat waits before the next is made. Default 2 s.
    pub fn attempt_timeout(mut self, timeout: Duration) -> Self {
        self.attempt_timeout = timeout;
        self
    }

    /// How long a connection may take to be made, greeting included. Default 1 s.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// How often the map of the cluster is asked for when nothing else gives a reason. Default 30 s.
    pub fn refresh_every(mut self, every: Duration) -> Self {
        self.refresh_every = every;
        self
    }

    /// Pauses between attempts: doubled from `min` to `max`, each then shortened by a random part of up to a half.
    /// Default 10 ms to 500 ms.
    pub fn backoff(mut self, min: Duration, max: Duration) -> Self {
        self.backoff_min = min;
        self.backoff_max = max.max(min);
        self
    }

    /// Calls of one node that may be on their way at once; more wait. Default 4096.
    pub fn in_flight_max(mut self, calls: usize) -> Self {
        self.in_flight_max = calls.max(1);
        self
    }

    /// Connections to one node for blocking reads; more reads wait for one. Default 1024.
    pub fn blocking_max(mut self, connections: usize) -> Self {
        self.blocking_max = connections.max(1);
        self
    }

    /// The user and password to say on every connection.
    pub fn user(mut self, user: impl Into<String>, password: impl Into<String>) -> Self {
        self.user = Some((Some(user.into()), password.into()));
        self
    }

    /// The password of the default user.
    pub fn password(mut self, password: impl Into<String>) -> Self {
        self.user = Some((None, password.into()));
        self
    }

    /// Name of the connections, as `CLIENT LIST` shows it: visible ASCII without spaces.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Secures all connections. The addresses given and those that the cluster tells are then its TLS ports.
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Told what happens, for metrics and traces.
    pub fn observer(mut self, observer: impl Observer + 'static) -> Self {
        self.observer = Arc::new(observer);
        self
    }

    /// The world to live in: network, clock, randomness and tasks. Default: the real one. A simulator brings its own.
    pub fn env(mut self, env: Env) -> Self {
        self.env = env;
        self
    }
}

impl std::fmt::Debug for Options {
    /// Without the password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options")
            .field("timeout", &self.timeout)
            .field("attempt_timeout", &self.attempt_timeout)
            .field("connect_timeout", &self.connect_timeout)
            .field("user", &self.user.as_ref().map(|(user, _)| user))
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
