//! Deliveries with the journal, for the clients and the dispatcher.

use super::delivery::{DeliveryDescription, DeliveryState, DeliveryStatus};
use super::delivery_table::{Change, Delivery, DeliveryTable};
use super::{AttemptOutcome, WebhookRequest, WebhookSecrets, WebhookSettings, webhook_url};
use crate::ended::{EVENT_PREFIX, EndedStream, EventRecord};
use crate::id_generator::IdGenerator;
use crate::keys::{Caller, Scope};
use crate::locks::{lock, read, write};
use crate::metrics::counters::Counter;
use crate::streams::{ForgottenRecords, JournalSlot, RecoveredHandle, StoredBlob, StreamRecord};
use generate::error::{ApiError, ErrorKind};
use std::sync::{Arc, Mutex, OnceLock, RwLock, Weak};
use std::time::Duration;
use stream::{Owner, StreamId};
use tokio::sync::Notify;
use wire::clock;

/// `Retry-After` where there is no place for another webhook.
const FULL_RETRY: Duration = Duration::from_secs(5);

/// All deliveries of the server.
pub struct Outbox {
    settings: RwLock<Arc<WebhookSettings>>,
    secrets: OnceLock<Arc<WebhookSecrets>>,
    table: Mutex<DeliveryTable>,
    /// A delivery was added or has changed, or the settings have.
    pub(super) news: Notify,
    journal: Arc<JournalSlot>,
    ids: Arc<IdGenerator>,
    pub(super) metrics: WebhookMetrics,
}

/// Counts of attempts.
#[derive(Debug, Default)]
pub struct WebhookMetrics {
    /// Events that a receiver accepted.
    pub delivered: Counter,
    /// Attempts that failed.
    pub failed_attempts: Counter,
    /// Deliveries that became dead letters.
    pub dead: Counter,
}

/// The place of one stream's event. The drop releases the place.
pub struct WebhookPlace {
    outbox: Arc<Outbox>,
    owner: Owner,
}

impl Drop for WebhookPlace {
    fn drop(&mut self) {
        lock(&self.outbox.table).release(self.owner);
    }
}

/// A request, and the delivery that it belongs to.
pub(super) struct DueDelivery {
    pub(super) stream: StreamId,
    pub(super) request: WebhookRequest,
    pub(super) blob: Option<Arc<StoredBlob>>,
}

impl Outbox {
    pub(crate) fn new(journal: Arc<JournalSlot>, ids: Arc<IdGenerator>) -> Self {
        Self {
            settings: RwLock::default(),
            secrets: OnceLock::new(),
            table: Mutex::default(),
            news: Notify::new(),
            journal,
            ids,
            metrics: WebhookMetrics::default(),
        }
    }

    /// Replaces the settings. What is recorded already is compared with them before each attempt.
    pub fn set_settings(&self, settings: WebhookSettings) {
        let mut now = write(&self.settings);
        *now = Arc::new(settings);
        drop(now);
        self.news.notify_one();
    }

    /// Sets the secrets of keys. To be called once.
    pub fn set_secrets(&self, secrets: Arc<WebhookSecrets>) {
        let _ = self.secrets.set(secrets);
    }

    /// Counts of attempts.
    pub fn metrics(&self) -> &WebhookMetrics {
        &self.metrics
    }

    /// Running streams with a webhook and pending deliveries, and dead letters.
    pub fn sizes(&self) -> (usize, usize) {
        let table = lock(&self.table);
        (table.waiting(), table.dead_letters())
    }

    /// Checks the URL of a request, and takes a place for the event. Returns the URL in normal form.
    ///
    /// # Errors
    /// The URL is not allowed, the key has no secret, or there is no place.
    pub(crate) fn accept(
        self: &Arc<Self>,
        url: &str,
        caller: &Caller,
    ) -> Result<(Box<str>, WebhookPlace), ApiError> {
        let settings = self.settings();
        let invalid = |why: &str| ApiError::field("webhook", "invalid_webhook", why);
        let url = webhook_url::accepted_url(url, &settings)
            .map_err(|why| invalid(&format!("webhook: {why}")))?;
        if self.secrets_of(caller.owner).is_none() {
            let why = "webhook: this API key has no webhook secret, with which events are signed \
                       (the operator creates one with `millrace keys webhook-secret NAME`)";
            return Err(ApiError::field("webhook", "webhook_secret_missing", why));
        }
        if !lock(&self.table).reserve(caller.owner, &settings) {
            let words = "there are too many events to be delivered";
            return Err(ApiError::capacity("overloaded", words, FULL_RETRY));
        }
        let (outbox, owner) = (Arc::clone(self), caller.owner);
        Ok((url.into(), WebhookPlace { outbox, owner }))
    }

    /// A place for the event of a stream of an earlier process.
    pub(crate) fn reserve_always(self: &Arc<Self>, owner: Owner) -> WebhookPlace {
        lock(&self.table).reserve_always(owner);
        let outbox = Arc::clone(self);
        WebhookPlace { outbox, owner }
    }

    /// Whether the event of a stream is pending, or a dead letter.
    pub(crate) fn has(&self, stream: StreamId) -> bool {
        lock(&self.table).get(stream).is_some()
    }

    /// Records the event about a stream's end, in the place of the stream. Returns the event's object in the journal.
    pub(crate) fn add(
        &self,
        stream: &StreamRecord,
        place: WebhookPlace,
        end: &EndedStream,
    ) -> Option<Weak<StoredBlob>> {
        let url = stream.meta().stream_options.webhook.as_deref()?;
        let now = clock::unix_us();
        let names = (stream.id(), stream.terms().owner);
        let record = EventRecord::new(url, names, end, now);
        let state = DeliveryState::due(now);
        let is_durable = stream.durable().is_some();
        let blob = is_durable
            .then(|| record.store((&self.journal, &self.ids), state.encode()))
            .flatten();
        let object = blob.as_ref().map(Arc::downgrade);
        lock(&self.table).insert(Delivery {
            record: Arc::new(record),
            state,
            is_in_flight: false,
            blob,
        });
        drop(place);
        self.news.notify_one();
        object
    }

    /// Restores a delivery that an earlier process has recorded.
    pub(crate) fn restore(&self, object: RecoveredHandle) {
        let RecoveredHandle { records, durable } = object;
        let record = match EventRecord::decode(&records.description) {
            Ok(record) => record,
            Err(error) => {
                return tracing::warn!(%error, "an event for a webhook of an earlier process cannot be read");
            }
        };
        let state = DeliveryState::decode(records.outcome.as_deref(), clock::unix_us());
        let settings = self.settings();
        let mut table = lock(&self.table);
        if table.get(record.stream).is_some() {
            // One event for each stream; another gateway's copy is forgotten.
            return;
        }
        table.insert(Delivery {
            record: Arc::new(record),
            state,
            is_in_flight: false,
            blob: Some(Arc::new(durable.into())),
        });
        table.evict_dead_letters(&settings);
        drop(table);
        self.news.notify_one();
    }

    /// Removes a delivery that another gateway has taken over. False: the object is no delivery.
    pub(crate) fn remove_object(&self, id: u128) -> bool {
        let mut table = lock(&self.table);
        let is_object = |one: &&Delivery| one.blob.as_ref().is_some_and(|blob| blob.id() == id);
        let found = table.all().find(is_object);
        let stream = found.map(|delivery| delivery.record.stream);
        stream.is_some_and(|stream| table.remove(stream).is_some())
    }

    /// The next attempt that is due. Deliveries that cannot be sent any more become dead letters.
    pub(super) fn begin_attempt(&self) -> Option<DueDelivery> {
        let settings = self.settings();
        loop {
            let stream = lock(&self.table).begin_attempt(clock::unix_us(), &settings)?;
            let (record, blob) = {
                let table = lock(&self.table);
                let delivery = table.get(stream)?;
                (Arc::clone(&delivery.record), delivery.blob.clone())
            };
            let allowed = webhook_url::accepted_url(&record.url, &settings);
            let secrets = self.secrets_of(record.owner());
            match (allowed, secrets) {
                (Ok(url), Some(secrets)) => {
                    let (id, unix_s) = (record.id(), clock::unix_s());
                    let request = WebhookRequest {
                        signatures: webhook_url::signatures(&secrets, &id, unix_s, &record.body),
                        url,
                        id,
                        unix_s,
                        body: record.body.clone().into(),
                        timeout: settings.timeout,
                        allow_private: settings.allow_private,
                    };
                    return Some(DueDelivery {
                        stream,
                        request,
                        blob,
                    });
                }
                (Err(why), _) => self.give_up(stream, &format!("the URL {why}")),
                (_, None) => self.give_up(stream, "the API key has no webhook secret any more"),
            }
        }
    }

    fn give_up(&self, stream: StreamId, why: &str) {
        let settings = self.settings();
        let mut table = lock(&self.table);
        let change = table.give_up(stream, why, &settings);
        self.note_change(&table, stream, change);
    }

    /// Records the outcome of an attempt.
    pub(super) fn finish_attempt(&self, stream: StreamId, outcome: &AttemptOutcome) {
        let settings = self.settings();
        let at = (clock::unix_us(), self.ids.next_seed());
        let mut table = lock(&self.table);
        let change = table.finish_attempt(stream, outcome, at, &settings);
        if matches!(change, Change::Retried | Change::Died) {
            self.metrics.failed_attempts.add(1);
            tracing::debug!(%stream, ?outcome, "an event was not delivered");
        }
        self.note_change(&table, stream, change);
        drop(table);
        self.news.notify_one();
    }

    fn note_change(&self, table: &DeliveryTable, stream: StreamId, change: Change) {
        match change {
            Change::Delivered => self.metrics.delivered.add(1),
            Change::Died => self.metrics.dead.add(1),
            Change::Retried | Change::Deleted => {}
        }
        if let Some(delivery) = table.get(stream) {
            write_state(delivery);
        }
    }

    /// Wall time of the next attempt.
    pub(super) fn next_due(&self) -> Option<u64> {
        lock(&self.table).next_due(clock::unix_us())
    }

    /// The caller's deliveries (all, with the scope `admin`), oldest first.
    pub fn list(
        &self,
        caller: &Caller,
        status: Option<DeliveryStatus>,
    ) -> Vec<DeliveryDescription> {
        let table = lock(&self.table);
        let visible = table.all().filter(|delivery| {
            is_visible(delivery, caller) && status.is_none_or(|s| s == delivery.state.status)
        });
        let mut visible: Vec<_> = visible.collect();
        visible.sort_by_key(|delivery| (delivery.record.created_unix_us, delivery.record.stream));
        let describe = |one: &&Delivery| DeliveryDescription::new(&one.record, &one.state);
        visible.iter().map(describe).collect()
    }

    /// One delivery.
    ///
    /// # Errors
    /// The caller has no such delivery.
    pub fn find(&self, id: &str, caller: &Caller) -> Result<DeliveryDescription, ApiError> {
        let table = lock(&self.table);
        let delivery = find(&table, id, caller)?;
        Ok(DeliveryDescription::new(&delivery.record, &delivery.state))
    }

    /// Attempts a delivery again at once, with all attempts to come.
    ///
    /// # Errors
    /// The caller has no such delivery.
    pub fn redeliver(&self, id: &str, caller: &Caller) -> Result<DeliveryDescription, ApiError> {
        let mut table = lock(&self.table);
        let stream = find(&table, id, caller)?.record.stream;
        let delivery = table.get_mut(stream).ok_or_else(unknown_delivery)?;
        delivery.state = DeliveryState {
            last_unix_us: delivery.state.last_unix_us,
            last_status: delivery.state.last_status,
            last_failure: delivery.state.last_failure.take(),
            ..DeliveryState::due(clock::unix_us())
        };
        write_state(delivery);
        let description = DeliveryDescription::new(&delivery.record, &delivery.state);
        drop(table);
        self.news.notify_one();
        Ok(description)
    }

    /// Removes a delivery. An attempt that is in flight may still arrive.
    ///
    /// # Errors
    /// The caller has no such delivery.
    pub fn remove(&self, id: &str, caller: &Caller) -> Result<ForgottenRecords, ApiError> {
        let mut table = lock(&self.table);
        let stream = find(&table, id, caller)?.record.stream;
        let mut forgotten = ForgottenRecords::default();
        let removed = table.remove(stream);
        if let Some(blob) = removed.and_then(|delivery| delivery.blob) {
            blob.forget(&mut forgotten);
        }
        Ok(forgotten)
    }

    fn secrets_of(&self, owner: Owner) -> Option<Arc<[super::WebhookSecret]>> {
        self.secrets.get()?.of_owner(owner)
    }

    pub(super) fn settings(&self) -> Arc<WebhookSettings> {
        Arc::clone(&read(&self.settings))
    }
}

fn write_state(delivery: &Delivery) {
    if let Some(blob) = &delivery.blob {
        blob.replace_outcome(delivery.state.encode());
    }
}

fn is_visible(delivery: &Delivery, caller: &Caller) -> bool {
    delivery.record.owner() == caller.owner || caller.scopes.has(Scope::Admin)
}

fn find<'a>(table: &'a DeliveryTable, id: &str, caller: &Caller) -> Result<&'a Delivery, ApiError> {
    let stream = id.strip_prefix(EVENT_PREFIX);
    let stream = stream.and_then(|stream| stream.parse().ok());
    let found = stream.and_then(|stream| table.get(stream));
    found
        .filter(|delivery| is_visible(delivery, caller))
        .ok_or_else(unknown_delivery)
}

fn unknown_delivery() -> ApiError {
    let words = "there is no delivery of this id: it was delivered, deleted or evicted";
    ApiError::caller(ErrorKind::NotFound, "delivery_not_found", words)
}
