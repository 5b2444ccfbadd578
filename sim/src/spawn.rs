//! Tasks and randomness of a simulated node. There are no threads: jobs that may block run at
//! once, since the simulated disk never blocks, and the log writer's loop is a task that takes
//! its time before each step, as a disk would.

use std::sync::{Arc, Mutex};

use rand::{Rng, RngCore, SeedableRng, rngs::StdRng};
use weir_env::{BoxFuture, Job, Next, Spawn, TaskHandle, Wake, WriterLoop, time};

use crate::disk::medium::lock;

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
}

impl weir_env::Rng for SimRng {
    fn fill(&self, out: &mut [u8]) {
        lock(&self.0).fill_bytes(out);
    }
}

/// Starts work on the simulated node's runtime.
pub(crate) struct SimSpawn {
    pub(crate) rng: SimRng,
    /// Upper bound of the time before a step of the log writer, in milliseconds.
    pub(crate) disk_delay_ms_max: u64,
}

impl Spawn for SimSpawn {
    fn spawn(&self, _name: &'static str, future: BoxFuture<'static, ()>) -> TaskHandle {
        TaskHandle::new(tokio::spawn(future))
    }

    fn blocking(&self, _name: &'static str, job: Job) {
        job();
    }

    fn writer(&self, _name: &'static str, mut body: Box<dyn WriterLoop>, wake: Arc<Wake>) {
        let (rng, delay_ms_max) = (self.rng.clone(), self.disk_delay_ms_max);
        tokio::spawn(async move {
            loop {
                match body.step() {
                    Next::Again => tokio::task::yield_now().await,
                    Next::Wait(timeout) => wake.wait(timeout).await,
                    Next::End => return,
                }
                let delay_ms = rng.below(delay_ms_max + 1);
                if delay_ms > 0 {
                    time::sleep(time::Duration::from_millis(delay_ms)).await;
                }
            }
        });
    }
}
