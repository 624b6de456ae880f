//! Takes the requests of a remote handle, and has upstreams compute them: one call for each choice.
//!
//! ```text
//! choice_run       one choice between its submission and its end
//! placement        where a choice may be computed, and by which upstream
//! relayed          one request: its record and its choices
//! ```

mod choice_run;
mod placement;
mod relayed;

use super::config::{REPORTS_MAX, UpstreamModel};
use super::http_call::Report;
use super::upstream_status::UpstreamStatus;
use choice_run::CallKey;
use engine::remote::RelayedCounts;
use placement::Upstreams;
use relayed::Relayed;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::{Wake, Waker};
use std::time::{Duration, Instant};
use text::TextCover;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// Time between two looks at all requests, while there are any.
const TICK: Duration = Duration::from_millis(20);
/// Time for requests to end after a shutdown.
const FINISH_MAX: Duration = Duration::from_secs(5);

/// A running relay. Dropped, it closes its calls and ends its requests with [`stream::End::Lost`].
pub struct UpstreamRelay {
    task: JoinHandle<()>,
}

impl UpstreamRelay {
    /// Takes the requests of the model's handle until the handles are gone or shut down. Must be called inside a tokio
    /// runtime. `cover` is needed where an upstream may return text.
    pub fn start(
        status: Arc<UpstreamStatus>,
        model: UpstreamModel,
        cover: Option<Arc<TextCover>>,
    ) -> Self {
        let refusing = Arc::clone(&status);
        let refusal = move |record: &[u8]| refusing.refusal(record);
        model.inbox.refuse_by(Box::new(refusal));
        let wake = Arc::new(Notify::new());
        let waker = Waker::from(Arc::new(RelayWaker(Arc::clone(&wake))));
        model.inbox.wake_by(waker);
        let (sender, reports) = mpsc::channel(REPORTS_MAX);
        let worker = RelayTask {
            shared: Shared {
                upstreams: Upstreams::new(status.config().addresses.len()),
                status,
                cover,
                sender,
            },
            model,
            requests: BTreeMap::new(),
            last_handle: 0,
            reports,
            wake,
        };
        Self {
            task: tokio::spawn(worker.run()),
        }
    }

    /// Waits until the requests have ended after the handles were shut down, at most five seconds.
    pub async fn finish(mut self) {
        if timeout(FINISH_MAX, &mut self.task).await.is_err() {
            tracing::warn!("not all requests on upstreams ended in time");
        }
    }
}

impl Drop for UpstreamRelay {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct RelayWaker(Arc<Notify>);

impl Wake for RelayWaker {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }
}

/// Shared by all requests.
struct Shared {
    status: Arc<UpstreamStatus>,
    cover: Option<Arc<TextCover>>,
    upstreams: Upstreams,
    sender: mpsc::Sender<(CallKey, Report)>,
}

impl Shared {
    /// Time that a choice waits for an upstream. A client whose choice has no tokens learns early that no upstream can be used, and
    /// may send the request again.
    fn unplaced_max(&self, has_begun: bool) -> Duration {
        let config = self.status.config();
        if has_begun || self.status.is_usable() {
            config.unplaced_max
        } else {
            config.unplaced_max.min(config.unreachable_max)
        }
    }
}

struct RelayTask {
    shared: Shared,
    model: UpstreamModel,
    requests: BTreeMap<u64, Relayed>,
    last_handle: u64,
    reports: mpsc::Receiver<(CallKey, Report)>,
    wake: Arc<Notify>,
}

impl RelayTask {
    async fn run(mut self) {
        while self.poll(now()) {
            let is_idle = self.requests.is_empty();
            tokio::select! {
                () = self.wake.notified() => {}
                report = self.reports.recv() => self.take_reports(report),
                () = sleep(TICK), if !is_idle => {}
            }
        }
    }

    /// Looks at everything once. Returns whether there can be more to do.
    fn poll(&mut self, now: Instant) -> bool {
        let mut taken = Vec::new();
        let is_open = self.model.inbox.take_requests(&mut taken, now);
        for relayed in taken {
            self.last_handle += 1;
            let request = Relayed::new(self.last_handle, relayed, now);
            self.requests.insert(self.last_handle, request);
        }
        for request in self.requests.values_mut() {
            request.poll(&self.model, &mut self.shared, now);
        }
        self.requests.retain(|_, request| !request.has_ended());
        self.publish_counts();
        is_open || !self.requests.is_empty()
    }

    fn take_reports(&mut self, first: Option<(CallKey, Report)>) {
        let mut next = first;
        while let Some((key, report)) = next {
            if let Some(request) = self.requests.get_mut(&key.handle) {
                request.take_report(key, report, &self.model, &mut self.shared, now());
            }
            next = self.reports.try_recv().ok();
        }
    }

    fn publish_counts(&self) {
        let mut counts = RelayedCounts::default();
        for request in self.requests.values() {
            request.count(&mut counts);
        }
        self.model.inbox.publish_counts(counts);
    }
}

fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}
