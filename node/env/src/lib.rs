//! The edges of the process: clock, network, disk, randomness and tasks.
//!
//! Everything that a node learns from or does to the world goes through an [`Env`], a cheap handle to five trait
//! objects. [`Env::system`] is the real one; the simulator brings its own. Code elsewhere must not name the system
//! clock, sockets, files, random sources or threads (`clippy.toml` at the root says what to use instead).

mod clock;
mod disk;
mod forgetful;
pub mod hooks;
mod net;
pub mod planted;
mod rng;
mod spawn;
mod system;
pub mod time;

use std::sync::Arc;

pub use clock::Clock;
pub use disk::{Disk, File, OpenMode};
pub use net::{BoxStream, Listener, Net, Stream};
pub use rng::Rng;
pub use spawn::{BoxFuture, Job, Next, Spawn, TaskHandle, Wake, WriterLoop};

/// The world as one node sees it. Clones share it.
#[derive(Clone)]
pub struct Env {
    /// Wall time and monotonic time.
    pub clock: Arc<dyn Clock>,
    /// Listening and dialing.
    pub net: Arc<dyn Net>,
    /// Files and directories.
    pub disk: Arc<dyn Disk>,
    /// Unpredictable bytes.
    pub rng: Arc<dyn Rng>,
    /// Tasks, blocking jobs and the writer's loop.
    pub spawn: Arc<dyn Spawn>,
}

impl Env {
    /// The real world: the system's clock, sockets, file system and random source, tasks on the current tokio
    /// runtime. The monotonic clock starts at zero here.
    pub fn system() -> Self {
        system::env()
    }
}

impl std::fmt::Debug for Env {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Env")
    }
}
