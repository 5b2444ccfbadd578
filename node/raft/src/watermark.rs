//! A position that only rises and can be awaited.

use std::sync::Arc;

use tokio::sync::watch;

/// A rising log index, shared. The end of its owner wakes all who wait.
#[derive(Debug, Clone)]
pub struct Watermark(Arc<watch::Sender<u64>>);

impl Watermark {
    pub(crate) fn new(start: u64) -> Self {
        Self(Arc::new(watch::Sender::new(start)))
    }

    /// Where it stands.
    pub fn get(&self) -> u64 {
        *self.0.borrow()
    }

    /// Raises it to `index`; a lower index changes nothing.
    pub(crate) fn raise(&self, index: u64) {
        self.0.send_if_modified(|current| {
            let rises = index > *current;
            *current = index.max(*current);
            rises
        });
    }

    /// Returns once it stands at `index` or above. A dropped future leaves nothing behind.
    pub async fn reached(&self, index: u64) {
        let mut receiver = self.0.subscribe();
        // The sender lives in `self`, so this cannot end early.
        let _ = receiver.wait_for(|current| *current >= index).await;
    }

    /// A receiver that sees every rise (the latest of them).
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.0.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn waits_until_reached_and_never_falls() {
        let mark = Watermark::new(3);
        mark.raise(2);
        assert_eq!(mark.get(), 3);
        let waiting = tokio::spawn({
            let mark = mark.clone();
            async move { mark.reached(5).await }
        });
        mark.raise(4);
        mark.raise(6);
        waiting.await.unwrap();
        mark.reached(1).await;
    }
}
