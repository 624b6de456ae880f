//! A journal between the lock and the registration of the streams.

use super::coordinator::{Recovery, continue_streams};
use super::ownership::begin_claims;
use super::stream_recovery::register_streams;
use crate::handles::Gateway;
use crate::keys::Keys;
use crate::records::DescriptionKind;
use crate::streams::{RecoveredHandle, StreamFeed, StreamJournal, StreamOrigin};
use journal::{BlobStore, FileSystem, LockedJournal, RecordTap, RecoveredStream, RecoveryReport};
use std::sync::Arc;
use stream::StreamId;
use wire::clock;

/// A locked journal before the reading of the records.
pub struct StartingJournal {
    read: ReadJournal,
    blobs: Option<BlobStore>,
}

type ReadJournal =
    Box<dyn FnOnce(StreamFeed, Option<BlobStore>) -> Result<ReadStreams, String> + Send>;

/// The running journal with its streams.
struct ReadStreams {
    journal: Arc<StreamJournal>,
    streams: Vec<RecoveredHandle>,
    report: RecoveryReport,
    refused: Vec<u128>,
}

impl StartingJournal {
    /// A journal that was locked.
    pub fn new<F: FileSystem>(locked: LockedJournal<F>) -> Self
    where
        LockedJournal<F>: Send,
    {
        Self::with_tap(locked, None)
    }

    /// A journal that was locked; `tap` receives what is recorded of streams that begin, or are taken over, from now on.
    pub fn with_tap<F: FileSystem>(
        locked: LockedJournal<F>,
        tap: Option<Box<dyn RecordTap>>,
    ) -> Self
    where
        LockedJournal<F>: Send,
    {
        let read: ReadJournal = Box::new(|feed, blobs| {
            let read = locked.recover();
            let (mut writer, recovered) = read.map_err(|why| why.to_string())?;
            if let Some(tap) = tap {
                writer.set_tap(tap);
            }
            let report = recovered.report;
            let refused = recovered.refused.iter().map(|stream| stream.id).collect();
            let started = StreamJournal::start(writer, recovered, (feed, blobs));
            let (journal, streams) = started.map_err(|why| why.to_string())?;
            Ok(ReadStreams {
                journal,
                streams,
                report,
                refused,
            })
        });
        Self { read, blobs: None }
    }

    /// The journal with the files that its records name, without which streams with images are not durable.
    #[must_use]
    pub fn with_blobs(self, blobs: BlobStore) -> Self {
        let blobs = Some(blobs);
        Self { blobs, ..self }
    }
}

/// Puts requests on hold until [`recover_streams`] has registered the streams. To be called before the first model is
/// ready.
pub fn hold_requests(gateway: &Gateway) {
    gateway.registration.close();
    gateway.models.hold_all_models();
}

/// Reads the journal on a thread that may block, and registers the streams. Without a readable journal the server runs on
/// without durable streams. The result continues the streams.
pub async fn recover_streams(
    starting: StartingJournal,
    gateway: Gateway,
    keys: Arc<Keys>,
) -> Recovery {
    let held = HeldRequests(gateway.clone());
    let begun = clock::now();
    let feed = gateway.generations.streams.feed().clone();
    let read = tokio::task::spawn_blocking(move || (starting.read)(feed, starting.blobs));
    let read = read
        .await
        .unwrap_or_else(|_| Err("a bug in the journal".to_owned()));
    let (recovered, claims) = match read {
        Ok(read) => {
            log_report(&read);
            let journal = Arc::clone(&read.journal);
            gateway.generations.journal.set(read.journal);
            let mut streams = read.streams;
            // The drop of the others ends their retention.
            streams.retain(|stream| kind_of(stream) != Some(DescriptionKind::Retired));
            let streams = gateway.responses.restore_answers(streams);
            let records = streams.iter().map(|stream| Arc::clone(&stream.records));
            let records: Vec<_> = records.collect();
            let streams = restore_deliveries(&gateway, streams);
            let origin = (StreamOrigin::Journal, read.report.is_sealed);
            let recovered = register_streams(&gateway, &keys, streams, origin);
            if let Some(blobs) = journal.blobs() {
                blobs.remove_unreferenced();
            }
            (recovered, begin_claims(&gateway, records))
        }
        Err(why) => {
            tracing::error!("no stream of this process is durable: {why}");
            gateway.generations.journal.fail(why);
            Default::default()
        }
    };
    let metrics = &gateway.generations.metrics.recovery;
    metrics.set_begun(begun);
    recovered.count(metrics);
    gateway.registration.open();
    Recovery::new(held, recovered, claims)
}

fn kind_of(stream: &RecoveredHandle) -> Option<DescriptionKind> {
    DescriptionKind::of(&stream.records.description)
}

/// Restores the deliveries among the objects of a journal, and returns the others.
fn restore_deliveries(gateway: &Gateway, objects: Vec<RecoveredHandle>) -> Vec<RecoveredHandle> {
    let is_delivery =
        |object: &RecoveredHandle| kind_of(object) == Some(DescriptionKind::WebhookDelivery);
    let (deliveries, streams) = objects.into_iter().partition::<Vec<_>, _>(is_delivery);
    for delivery in deliveries {
        gateway.outbox.restore(delivery);
    }
    streams
}

/// Requests on hold. The drop releases all of them, also after a panic of the recovery.
pub(crate) struct HeldRequests(pub(crate) Gateway);

impl Drop for HeldRequests {
    fn drop(&mut self) {
        self.0.registration.open();
        self.0.models.hold_only([]);
    }
}

fn log_report(read: &ReadStreams) {
    let report = &read.report;
    if report.last_boot > 0 {
        tracing::info!(
            streams = read.streams.len(),
            segments = report.segments,
            bytes = report.bytes,
            cut_bytes = report.cut_bytes,
            damages = report.damages,
            is_sealed = report.is_sealed,
            "the journal was read"
        );
    }
    if report.damages + report.lost_beginnings + report.read_errors + report.dropped_streams > 0 {
        tracing::warn!(
            ?report,
            "parts of the journal are damaged or missing: streams may end as lost, or not be found"
        );
    }
    for id in &read.refused {
        let id = StreamId::from_bits(*id);
        tracing::warn!(stream = %id, "a newer version wrote the stream; its records stay");
    }
}

/// Registers a stream that this process has claimed, so that readers find it, and continues it in a task; an event goes to
/// the outbox. False: the journal does not work. Must be called inside a tokio runtime.
///
/// The end of the other process is not counted as one of an engine: the stream was computed elsewhere.
pub fn take_over_stream(gateway: &Gateway, keys: &Keys, stream: RecoveredStream) -> bool {
    let Some(journal) = gateway.generations.journal.get() else {
        return false;
    };
    let Some(stream) = journal.continue_stream(stream) else {
        return false;
    };
    match kind_of(&stream) {
        Some(DescriptionKind::WebhookDelivery) => gateway.outbox.restore(stream),
        Some(DescriptionKind::Retired) => drop(stream),
        _ => {
            let origin = (StreamOrigin::OtherGateway, true);
            let recovered = register_streams(gateway, keys, vec![stream], origin);
            recovered.count(&gateway.generations.metrics.recovery);
            let (gateway, streams) = (gateway.clone(), recovered.streams);
            tokio::spawn(async move { continue_streams(&gateway, streams).await });
        }
    }
    true
}
