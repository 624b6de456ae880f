//! A stream of another process that is gone, continued here: the recovery of one stream while the server runs.

use super::coordinator::continue_streams;
use super::restored_stream::{RecordsOrigin, restore_streams};
use crate::durability::{AdoptedStream, DescriptionKind};
use crate::handles::Gateway;
use crate::keys::Keys;
use journal::RecoveredStream;

/// Registers a stream that this process has claimed, so that readers find it, and continues it in a task; an event goes to
/// the outbox. False: the journal does not work. Must be called inside a tokio runtime.
///
/// The end of the other process is not counted as one of an engine: the stream was computed elsewhere.
pub fn take_over_stream(gateway: &Gateway, keys: &Keys, stream: RecoveredStream) -> bool {
    let Some(journal) = gateway.generations.journal.get() else {
        return false;
    };
    let Some(adopted) = journal.adopt_stream(stream) else {
        return false;
    };
    match DescriptionKind::of(&adopted.recovered.description) {
        Some(DescriptionKind::WebhookDelivery) => gateway.outbox.restore(adopted),
        Some(DescriptionKind::Retired) => drop(adopted),
        _ => continue_stream(gateway, keys, adopted),
    }
    true
}

fn continue_stream(gateway: &Gateway, keys: &Keys, adopted: AdoptedStream) {
    let restored = restore_streams(gateway, keys, vec![adopted], RecordsOrigin::OtherGateway);
    restored.count(&gateway.generations.metrics.recovery);
    let (gateway, streams) = (gateway.clone(), restored.streams);
    tokio::spawn(async move { continue_streams(&gateway, streams).await });
}
