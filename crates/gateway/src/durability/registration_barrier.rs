//! A barrier for requests that name a stream: until the journal is read, this process does not know whether the stream
//! exists.

use std::time::Duration;
use tokio::sync::watch;

/// Longest wait of a request. A journal of this project's size is read in a fraction of that time.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// Whether the streams of earlier processes are registered. Open unless closed.
#[derive(Debug)]
pub struct RegistrationBarrier {
    is_open: watch::Sender<bool>,
}

impl Default for RegistrationBarrier {
    fn default() -> Self {
        Self {
            is_open: watch::Sender::new(true),
        }
    }
}

impl RegistrationBarrier {
    /// A journal is about to be read.
    pub fn close(&self) {
        self.is_open.send_replace(false);
    }

    /// Recovered streams are registered.
    pub fn open(&self) {
        self.is_open.send_replace(true);
    }

    /// Waits until the streams are registered. False: the wait took too long.
    pub async fn wait(&self) -> bool {
        if *self.is_open.borrow() {
            return true;
        }
        let mut is_open = self.is_open.subscribe();
        let opened = is_open.wait_for(|is_open| *is_open);
        tokio::time::timeout(WAIT_MAX, opened).await.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn requests_wait_until_streams_are_registered() {
        let barrier = RegistrationBarrier::default();
        assert!(barrier.wait().await, "no journal");
        barrier.close();
        assert!(!barrier.wait().await, "the wait is bounded");
        let (waited, ()) = tokio::join!(barrier.wait(), async { barrier.open() });
        assert!(waited);
    }
}
