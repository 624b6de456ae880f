//! Export of the OpenTelemetry metrics `gen_ai.server.*` to a collector, each `metrics.export_interval_ms`.
//!
//! ```text
//! target      a setting     -> address and header fields of the collector
//! payload     the metrics   -> an `ExportMetricsServiceRequest`
//! post        the request   -> the response of the collector
//! export_log  the response  -> two counters, and a log line on a change
//! ```
//!
//! Name resolution, encoding and waiting for the collector happen on one separate thread (`otlp`), which reads the
//! same atomic integers as `/metrics` and never delays requests or streams. The metrics are cumulative, so the values
//! of a failed export are part of the next one. Nothing is stored for a retry: there is at most one message, and the
//! size of the message does not depend on traffic.

mod export_log;
mod payload;
mod post;
mod target;

pub use target::OtlpTarget;

use crate::app::App;
use export_log::ExportLog;
use payload::ResourceAttributes;
use post::ExportError;
use prost::Message;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};
use wire::clock;

/// Time that the collector may take for one export.
const EXPORT_TIME_MAX: Duration = Duration::from_secs(5);
/// Time that a shutdown waits for the last export.
const LAST_EXPORT_TIME_MAX: Duration = Duration::from_secs(2);

/// The export thread. Dropping the exporter ends the thread without a last export.
pub(crate) struct Exporter {
    stop: oneshot::Sender<()>,
    over: oneshot::Receiver<()>,
}

impl Exporter {
    /// Starts the exports if the configuration names a collector. `local` is the listening address.
    pub(crate) fn start(app: &App, local: SocketAddr) -> Option<Self> {
        let target = app.config.now().otlp.clone()?;
        let (stop, stopped) = oneshot::channel();
        let (done, over) = oneshot::channel();
        let export_loop = ExportLoop {
            log: ExportLog::new(Arc::clone(&app.metrics), target.to_string()),
            attributes: ResourceAttributes {
                model: app.models.first_entry().id().to_owned(),
                address: local,
                since: clock::wall(clock::now()),
            },
            app: app.clone(),
            target,
        };
        let thread = std::thread::Builder::new().name("otlp".to_owned());
        let spawned = thread.spawn(move || {
            export_loop.run_thread(stopped);
            // Fails if the server was dropped.
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

    /// Exports a last time, within a time limit.
    pub(crate) async fn stop(self) {
        // Fails if the thread has ended.
        let _ = self.stop.send(());
        let _ = timeout(LAST_EXPORT_TIME_MAX, self.over).await;
    }
}

struct ExportLoop {
    app: App,
    target: OtlpTarget,
    attributes: ResourceAttributes,
    log: ExportLog,
}

impl ExportLoop {
    /// Runs on a separate runtime, because name resolution blocks.
    fn run_thread(mut self, stopped: oneshot::Receiver<()>) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .max_blocking_threads(1)
            .thread_name("otlp")
            .enable_io()
            .enable_time()
            .build();
        match runtime {
            Ok(runtime) => {
                runtime.block_on(self.export_each_interval(stopped));
                // Does not wait for a name server that does not answer.
                runtime.shutdown_background();
            }
            Err(error) => tracing::error!(%error, "metrics are not exported"),
        }
    }

    async fn export_each_interval(&mut self, mut stopped: oneshot::Receiver<()>) {
        loop {
            let interval = self.app.config.now().metrics_export_interval;
            let stop = tokio::select! {
                stop = &mut stopped => Some(stop),
                () = sleep(interval) => None,
            };
            if matches!(stop, Some(Err(_))) {
                return;
            }
            self.export_once().await;
            if stop.is_some() {
                return;
            }
        }
    }

    async fn export_once(&mut self) {
        let metrics = self.app.metrics.generations.operations.read_metrics();
        let message = payload::build_payload(&self.attributes, &metrics, clock::wall(clock::now()));
        let sent = post::send_export(&self.target, message.encode_to_vec());
        let outcome = timeout(EXPORT_TIME_MAX, sent).await;
        self.log
            .record_outcome(outcome.unwrap_or(Err(ExportError::Slow)));
    }
}
