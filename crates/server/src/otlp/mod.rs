//! Figures for OpenTelemetry: `gen_ai.server.*`, sent to a collector each `metrics.export_interval_ms`.
//!
//! ```text
//! target   a setting            -> where to, and with which header fields
//! payload  the figures as read  -> an `ExportMetricsServiceRequest`
//! post     its bytes            -> what the collector said
//! journal  that                 -> two counts, and a line in the log where it changed
//! ```
//!
//! All of it happens on one thread of its own (`otlp`): looking up a name, waiting for a collector that does
//! not answer, encoding. Requests and streams never meet it; it reads the same atomic words as `/metrics`.
//! Figures are cumulative, so what could not be sent is in the next message: nothing is kept to be sent again,
//! and one message, of a size that does not depend on traffic, is all there ever is.

mod journal;
mod payload;
mod post;
mod target;

pub use target::OtlpTarget;

use crate::app::App;
use journal::Journal;
use payload::Origin;
use post::Problem;
use prost::Message;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};
use wire::clock;

/// How long a collector may take for one message.
const EXPORT_TIME_MAX: Duration = Duration::from_secs(5);
/// How long a server that leaves waits for its last message.
const LAST_EXPORT_TIME_MAX: Duration = Duration::from_secs(2);

/// The thread that sends. Dropped, it ends without a last message.
pub(crate) struct Exporter {
    stop: oneshot::Sender<()>,
    over: oneshot::Receiver<()>,
}

impl Exporter {
    /// Sends from now on, where the configuration names a collector. `local` is where the server listens.
    pub(crate) fn start(app: &App, local: SocketAddr) -> Option<Self> {
        let target = app.config.now().otlp.clone()?;
        let (stop, stopped) = oneshot::channel();
        let (done, over) = oneshot::channel();
        let sending = Sending {
            journal: Journal::new(Arc::clone(&app.metrics), target.to_string()),
            origin: Origin {
                model: app.models.first().id.clone(),
                address: local,
                since: clock::wall(clock::now()),
            },
            app: app.clone(),
            target,
        };
        let thread = std::thread::Builder::new().name("otlp".to_owned());
        let spawned = thread.spawn(move || {
            sending.run(stopped);
            // Nobody waits where the server was dropped.
            let _ = done.send(());
        });
        match spawned {
            Ok(_) => Some(Self { stop, over }),
            Err(error) => {
                tracing::error!(%error, "cannot start the thread that exports metrics: they are available at /metrics only");
                None
            }
        }
    }

    /// One last message, for as long as a server that leaves can wait.
    pub(crate) async fn stop(self) {
        // It may have ended by itself.
        let _ = self.stop.send(());
        let _ = timeout(LAST_EXPORT_TIME_MAX, self.over).await;
    }
}

struct Sending {
    app: App,
    target: OtlpTarget,
    origin: Origin,
    journal: Journal,
}

impl Sending {
    /// Runs on a small runtime of its own, because name resolution blocks.
    fn run(mut self, stopped: oneshot::Receiver<()>) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .max_blocking_threads(1)
            .thread_name("otlp")
            .enable_io()
            .enable_time()
            .build();
        match runtime {
            Ok(runtime) => {
                runtime.block_on(self.each_interval(stopped));
                // A name service that does not answer is not waited for.
                runtime.shutdown_background();
            }
            Err(error) => tracing::error!(%error, "metrics are not exported"),
        }
    }

    async fn each_interval(&mut self, mut stopped: oneshot::Receiver<()>) {
        loop {
            let interval = self.app.config.now().metrics_export_interval;
            let stop = tokio::select! {
                stop = &mut stopped => Some(stop),
                () = sleep(interval) => None,
            };
            if matches!(stop, Some(Err(_))) {
                return;
            }
            self.once().await;
            if stop.is_some() {
                return;
            }
        }
    }

    async fn once(&mut self) {
        let figures = self.app.metrics.generations.operations.read();
        let message = payload::payload(&self.origin, &figures, clock::wall(clock::now()));
        let sent = post::post(&self.target, message.encode_to_vec());
        let told = timeout(EXPORT_TIME_MAX, sent).await;
        self.journal.note(told.unwrap_or(Err(Problem::Slow)));
    }
}
