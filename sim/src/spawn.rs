//! Tasks and randomness of a simulated node. There are no threads: jobs that may block run at
//! once, since the simulated disk never blocks, and the log writer's loop is a task that takes
//! its time before each step, as a disk would.

use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll, Waker},
};

use futures_util::FutureExt;
use rand::{Rng, RngCore, SeedableRng, rngs::StdRng};
use weir_env::{BoxFuture, Job, Next, Spawn, TaskHandle, Wake, WriterLoop, time};

use crate::{disk::medium::lock, outlook::quantiles::Quantiles};

/// The seeded random source of one node. Clones draw from one sequence.
#[derive(Clone)]
pub(crate) struct SimRng(Arc<Mutex<StdRng>>);

impl SimRng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(StdRng::seed_from_u64(seed))))
    }

    fn below(&self, end: u64) -> u64 {
        lock(&self.0).random_range(0..end.max(1))
    }

    fn draw_ms(&self, times: &Quantiles) -> u64 {
        times.draw_ms(&mut *lock(&self.0))
    }
}

impl weir_env::Rng for SimRng {
    fn fill(&self, out: &mut [u8]) {
        lock(&self.0).fill_bytes(out);
    }
}

/// What the world may change about a running node: shared by the node's tasks and the world.
#[derive(Clone, Default)]
pub(crate) struct Controls(Arc<Mutex<Held>>);

#[derive(Default)]
struct Held {
    frozen: bool,
    /// Tasks that wanted to run meanwhile.
    waiting: Vec<Waker>,
    /// Upper bound of the time before a step of the log writer, in milliseconds.
    disk_delay_ms_max: u64,
    /// How long a step of the log writer takes, instead of that.
    sync_times: Option<Quantiles>,
}

impl Controls {
    /// Lets no task of the node run any more, as SIGSTOP does. (Those that libraries started run on, with nobody to
    /// talk to.)
    pub(crate) fn freeze(&self) {
        lock(&self.0).frozen = true;
    }

    /// Lets the node's tasks go on.
    pub(crate) fn thaw(&self) {
        let waiting = {
            let mut held = lock(&self.0);
            held.frozen = false;
            std::mem::take(&mut held.waiting)
        };
        for task in waiting {
            task.wake();
        }
    }

    pub(crate) fn set_disk_delay(&self, ms_max: u64) {
        lock(&self.0).disk_delay_ms_max = ms_max;
    }

    /// Lets a step of the log writer take as long as a sync does on a certain disk.
    pub(crate) fn set_sync_times(&self, times: Quantiles) {
        lock(&self.0).sync_times = Some(times);
    }
}

/// A task that can be made to stand still.
struct Freezable<F> {
    inner: F,
    controls: Controls,
}

impl<F: Future<Output = ()> + Unpin> Future for Freezable<F> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        {
            let mut held = lock(&self.controls.0);
            if held.frozen {
                held.waiting.push(cx.waker().clone());
                return Poll::Pending;
            }
        }
        Pin::new(&mut self.inner).poll(cx)
    }
}

/// Starts work on the simulated node's runtime.
pub(crate) struct SimSpawn {
    pub(crate) rng: SimRng,
    pub(crate) controls: Controls,
}

impl Spawn for SimSpawn {
    fn spawn(&self, _name: &'static str, future: BoxFuture<'static, ()>) -> TaskHandle {
        TaskHandle::new(tokio::spawn(Freezable { inner: future, controls: self.controls.clone() }))
    }

    fn blocking(&self, _name: &'static str, job: Job) {
        job();
    }

    fn writer(&self, name: &'static str, mut body: Box<dyn WriterLoop>, wake: Arc<Wake>) {
        let (rng, controls) = (self.rng.clone(), self.controls.clone());
        let steps = async move {
            loop {
                match body.step() {
                    Next::Again => tokio::task::yield_now().await,
                    Next::Wait(timeout) => wake.wait(timeout).await,
                    Next::End => return,
                }
                let (delay_ms, measured) = {
                    let held = lock(&controls.0);
                    match &held.sync_times {
                        Some(times) => (rng.draw_ms(times), true),
                        None => (rng.below(held.disk_delay_ms_max + 1), false),
                    }
                };
                if delay_ms > 0 {
                    time::sleep(time::Duration::from_millis(delay_ms)).await;
                }
                if measured {
                    // What came meanwhile goes with this step: a step without work would take as long as a sync.
                    let _ = wake.wait(None).now_or_never();
                }
            }
        };
        self.spawn(name, Box::pin(steps));
    }
}
