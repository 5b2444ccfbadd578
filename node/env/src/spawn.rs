use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// A task's body.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A piece of work that may block.
pub type Job = Box<dyn FnOnce() + Send>;

/// Starts work. All of it needs a tokio runtime around the caller, except [`Spawn::writer`].
pub trait Spawn: Send + Sync {
    /// Starts a task. It goes on when the handle is dropped. A panic is logged under `name`.
    fn spawn(&self, name: &'static str, future: BoxFuture<'static, ()>) -> TaskHandle;

    /// Runs a job that may block, elsewhere if there are threads, otherwise before this returns.
    /// Jobs may run in any order and at the same time.
    fn blocking(&self, name: &'static str, job: Job);

    /// Runs a loop that blocks on the disk: on its own OS thread, or as a task in simulation. `wake` is the one that
    /// the loop's users call; see [`Next`] for when the loop is stepped. The loop may start [`Spawn::blocking`] jobs
    /// if there is a tokio runtime around the caller. It is dropped when it ends, when it
    /// panics, and when the simulated node crashes.
    fn writer(&self, name: &'static str, body: Box<dyn WriterLoop>, wake: Arc<Wake>);
}

/// A loop that does blocking work in steps, so that whoever runs it decides how to wait between them.
pub trait WriterLoop: Send {
    /// Does what is there to do (the log's writer: take what is queued, write, sync, complete the callbacks). May
    /// block on the disk, never on anything else.
    fn step(&mut self) -> Next;
}

/// What the runner of a [`WriterLoop`] does after a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Step again soon: there may be more to do.
    Again,
    /// Step again when woken, or after this time if one is given.
    Wait(Option<Duration>),
    /// Never step again: drop the loop.
    End,
}

/// Wakes a [`WriterLoop`]. A call while the loop is busy is remembered, several are remembered as one.
#[derive(Default)]
pub struct Wake {
    woken: Mutex<bool>,
    condvar: Condvar,
    notify: Notify,
}

impl Wake {
    /// A wake that nobody has called.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Makes the current or the next wait end. Cheap, and fine to call from anywhere.
    pub fn wake(&self) {
        let mut woken = self.woken.lock();
        if !*woken {
            *woken = true;
            drop(woken);
            self.condvar.notify_one();
            self.notify.notify_one();
        }
    }

    /// Blocks the thread until woken or until the time is over.
    pub fn wait_blocking(&self, timeout: Option<Duration>) {
        let mut woken = self.woken.lock();
        match timeout {
            Some(timeout) => {
                self.condvar.wait_while_for(&mut woken, |woken| !*woken, timeout);
            }
            None => self.condvar.wait_while(&mut woken, |woken| !*woken),
        }
        *woken = false;
    }

    /// Waits until woken or until the time is over, without blocking the thread.
    pub async fn wait(&self, timeout: Option<Duration>) {
        let woken = async {
            loop {
                if std::mem::take(&mut *self.woken.lock()) {
                    return;
                }
                self.notify.notified().await;
            }
        };
        match timeout {
            Some(timeout) => {
                let _ = tokio::time::timeout(timeout, woken).await;
            }
            None => woken.await,
        }
    }
}

/// A started task.
#[derive(Debug)]
pub struct TaskHandle(JoinHandle<()>);

impl TaskHandle {
    /// Wraps a tokio task.
    pub fn new(task: JoinHandle<()>) -> Self {
        Self(task)
    }

    /// Ends the task at its next await.
    pub fn abort(&self) {
        self.0.abort();
    }

    /// Whether the task has ended.
    pub fn is_finished(&self) -> bool {
        self.0.is_finished()
    }

    /// Waits for the end of the task; `false` when it panicked or was aborted.
    pub async fn join(self) -> bool {
        self.0.await.is_ok()
    }
}
