//! The ends of resumable streams, for clients that left: events for webhooks.
//!
//! A task for each stream with a webhook waits for the end and records the event. The event is an object of the journal. Behind it the stream's records note that the event was recorded, so a later
//! process records the events of ends without this note. A process that dies between the two finds the object by the
//! stream's id.

use crate::id_generator::IdGenerator;
use crate::owners_slot::OwnersSlot;
use crate::records::{
    DescriptionError, DescriptionKind, RecordedPrompts, StreamDescription, end_name, from_json,
    to_json,
};
use crate::stored::hex_id;
use crate::streams::{ChoiceLog, JournalSlot, StoredBlob, StreamRecord};
use crate::webhooks::{Outbox, WebhookPlace};
use generate::error::ApiError;
use generate::output::generation_reader::is_good;
use journal::RecoveredStream;
use serde::{Deserialize, Serialize};
use std::sync::{Arc, Weak};
use stream::{End, Owner, StreamId};
use wire::clock;
use wire::protocol::Protocol;
use wire::shared::finish_reason::end_error;

/// Reports of ends to webhooks.
#[derive(Clone)]
pub struct EndReports {
    outbox: Arc<Outbox>,
    owners: Arc<OwnersSlot>,
}

impl EndReports {
    pub(crate) fn new(outbox: Arc<Outbox>, owners: Arc<OwnersSlot>) -> Self {
        Self { outbox, owners }
    }

    /// Reports the end of a stream. To be called inside a runtime.
    pub(crate) fn watch(&self, record: &Arc<StreamRecord>, place: Option<WebhookPlace>) {
        if let Some(place) = place {
            tokio::spawn(self.clone().report(Arc::clone(record), place));
        }
    }

    /// Reports the end of a stream that an earlier process opened, unless that is noted. To be called inside a runtime.
    pub(crate) fn watch_recovered(&self, record: &Arc<StreamRecord>) {
        self.watch(record, self.due_place(record));
    }

    /// Reports the end of a stream that is no longer readable.
    pub(crate) fn report_expired(&self, record: &StreamRecord, end: impl FnOnce() -> EndedStream) {
        if let Some(place) = self.due_place(record) {
            self.outbox.add(record, place, &end());
        }
    }

    /// The place of an event that is still to be recorded.
    fn due_place(&self, record: &StreamRecord) -> Option<WebhookPlace> {
        let has_webhook = record.meta().stream_options.webhook.is_some();
        let is_sent = record.noted_end().webhook || self.outbox.has(record.id());
        let owner = record.terms().owner;
        (has_webhook && !is_sent).then(|| self.outbox.reserve_always(owner))
    }

    async fn report(self, record: Arc<StreamRecord>, place: WebhookPlace) {
        record.wait_for_end().await;
        if record.is_left_to_others() {
            return;
        }
        let end = EndedStream::of_record(&record);
        let object = self.outbox.add(&record, place, &end);
        self.wait_stored(object).await;
        record.note_end(|noted| noted.webhook = true);
    }

    /// Waits until other gateways can find the event: the note could be stored before it, and would hide the end from the
    /// gateway that takes the stream over.
    async fn wait_stored(&self, object: Option<Weak<StoredBlob>>) {
        let Some(owners) = self.owners.get() else {
            return;
        };
        let Some(object) = object.and_then(|object| object.upgrade()) else {
            return;
        };
        object.written().await;
        let id = object.id();
        drop(object);
        owners.wait_stored(id).await;
    }
}

/// Version of records that are written now.
const EVENT_VERSION: u32 = 1;
/// Bytes of a record: the URL, and an event with an error message.
const EVENT_BYTES_MAX: usize = 64 << 10;
/// Prefix of ids of events.
pub(crate) const EVENT_PREFIX: &str = "evt_";

/// An event for a webhook: the description of an object of the journal, which never changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct EventRecord {
    kind: DescriptionKind,
    version: u32,
    /// The stream that has ended, by which the event is named.
    #[serde(with = "hex_id")]
    pub(crate) stream: StreamId,
    owner: u64,
    /// The URL of the webhook.
    pub(crate) url: String,
    /// Type of the event.
    pub(crate) event: String,
    /// Id of the response, job or stream.
    pub(crate) object_id: String,
    /// The event as JSON: the same bytes in every attempt.
    pub(crate) body: String,
    pub(crate) created_unix_us: u64,
}

/// An event, as OpenAI's.
#[derive(Serialize)]
struct EventObject<'a> {
    object: &'static str,
    /// Equal in every attempt.
    id: &'a str,
    /// `response.`, `job.` or `stream.` and the status.
    #[serde(rename = "type")]
    kind: &'a str,
    /// Seconds since the Unix epoch.
    created_at: i64,
    data: &'a EndedStream,
}

impl EventRecord {
    pub(crate) fn new(
        url: &str,
        (stream, owner): (StreamId, Owner),
        end: &EndedStream,
        now_unix_us: u64,
    ) -> Self {
        let event = format!("{}.{}", end.object, end.status);
        let body = EventObject {
            object: "event",
            id: &event_id(stream),
            kind: &event,
            created_at: end.ended_at,
            data: end,
        };
        Self {
            kind: DescriptionKind::WebhookDelivery,
            version: EVENT_VERSION,
            stream,
            owner: owner.0,
            url: url.to_owned(),
            // Strings and numbers are always JSON.
            body: serde_json::to_string(&body).unwrap_or_default(),
            event,
            object_id: end.id.clone(),
            created_unix_us: now_unix_us,
        }
    }

    pub(crate) fn owner(&self) -> Owner {
        Owner(self.owner)
    }

    /// Id of the event.
    pub(crate) fn id(&self) -> String {
        event_id(self.stream)
    }

    pub(crate) fn encode(&self) -> Result<Vec<u8>, DescriptionError> {
        to_json::<Self>(self, EVENT_BYTES_MAX)
    }

    /// The event of a description.
    pub(crate) fn decode(description: &[u8]) -> Result<Self, DescriptionError> {
        let record: Self = from_json(description, EVENT_BYTES_MAX)?;
        if record.kind != DescriptionKind::WebhookDelivery || record.version > EVENT_VERSION {
            let found = format!("kind {}, version {}", record.kind.name(), record.version);
            return Err(DescriptionError::Invalid(found));
        }
        Ok(record)
    }

    /// Records the event in the journal, if there is one, and for other gateways, if there are any.
    pub(crate) fn store(
        &self,
        (journal, ids): (&JournalSlot, &IdGenerator),
        state: Vec<u8>,
    ) -> Option<Arc<StoredBlob>> {
        let id = u128::from_be_bytes(ids.next_random());
        let stored = journal
            .get()?
            .store_blob(id, self.encode().ok()?, (state, false))?;
        Some(Arc::new(stored))
    }
}

fn event_id(stream: StreamId) -> String {
    format!("{EVENT_PREFIX}{stream}")
}

/// The end of a response, a job, or another stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedStream {
    /// Id of the response or job; of the stream for other objects.
    pub id: String,
    /// `response`, `job` or `stream`.
    pub object: String,
    /// Id of the stream.
    pub stream_id: String,
    /// Wire protocol of the request.
    pub dialect: String,
    /// Name of the model in the response.
    pub model: String,
    /// `completed`, `incomplete` (token limit), `cancelled` or `failed`.
    pub status: String,
    /// End of the first choice, or of the one that failed; `rejected` for a request that never started.
    pub ending: String,
    /// The error of a failed stream; `null` otherwise.
    pub error: Option<EndedError>,
    /// Numbers of tokens.
    pub usage: EndedUsage,
    /// Time of the request, in seconds since the Unix epoch.
    pub created_at: i64,
    /// Time of the end, in seconds since the Unix epoch.
    pub ended_at: i64,
    /// Where the result is.
    pub links: EndedLinks,
}

/// Why a stream failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedError {
    /// Error code.
    pub code: String,
    /// Error message.
    pub message: String,
}

/// Tokens of all choices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedUsage {
    /// Prompt tokens.
    pub input_tokens: u64,
    /// Generated tokens.
    pub output_tokens: u64,
    /// The sum of both.
    pub total_tokens: u64,
}

/// Paths of this server, valid as long as response and stream are kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedLinks {
    /// The stored response, or the state of the job or stream.
    pub result: String,
    /// The stream's events from the beginning.
    pub events: String,
}

/// The outcome of a stream.
enum Outcome<'a> {
    Rejected(&'a ApiError),
    Ends { first: End, bad: Option<End> },
}

impl Outcome<'_> {
    fn of_ends(ends: impl Iterator<Item = End> + Clone) -> Self {
        let bad = ends.clone().find(|end| !is_good(*end));
        let first = ends.into_iter().next().unwrap_or(End::Lost);
        Self::Ends { first, bad }
    }

    fn error(&self) -> Option<ApiError> {
        match self {
            Self::Rejected(error) => Some((*error).clone()),
            Self::Ends { bad, .. } => bad.map(end_error),
        }
    }

    fn ending(&self) -> &'static str {
        match self {
            Self::Rejected(_) => "rejected",
            Self::Ends { first, bad } => end_name(bad.unwrap_or(*first)).0,
        }
    }

    fn status(&self, error: Option<&ApiError>) -> &'static str {
        match (error, self) {
            (Some(error), _) if error.code == "cancelled" => "cancelled",
            (Some(_), _) => "failed",
            (
                None,
                Self::Ends {
                    first: End::Length, ..
                },
            ) => "incomplete",
            (None, _) => "completed",
        }
    }
}

/// Names of a stream.
struct Names<'a> {
    id: StreamId,
    response_id: &'a str,
    protocol: Protocol,
    model: &'a str,
    created_unix_s: i64,
}

impl EndedStream {
    /// The end of a stream that is over.
    fn of_record(record: &StreamRecord) -> Self {
        let meta = record.meta();
        let names = Names {
            id: record.id(),
            response_id: &meta.response_id,
            protocol: record.terms().protocol,
            model: &meta.model,
            created_unix_s: meta.created_unix_s,
        };
        let choices = record.started().map_or(&[][..], |started| &started.choices);
        let outcome = match record.rejection() {
            Some(error) => Outcome::Rejected(error),
            None => Outcome::of_ends(choices.iter().filter_map(|choice| choice.tokens.end())),
        };
        let input = record.started().map_or(0, |started| started.prompt_tokens);
        let output = choices.iter().map(ChoiceLog::answered).sum();
        Self::new(&names, &outcome, (input, output), clock::unix_s())
    }

    /// The end of a stream of an earlier process that is no longer readable.
    pub(crate) fn of_recovered(
        description: &StreamDescription,
        recovered: &RecoveredStream,
        ended_unix_us: u64,
    ) -> Self {
        let names = Names {
            id: StreamId::from_bits(recovered.id),
            response_id: &description.response_id,
            protocol: description.protocol,
            model: &description.model,
            created_unix_s: description.created_unix_s,
        };
        let choices = &recovered.choices;
        let ends = choices.iter().filter_map(|choice| choice.end);
        let outcome = Outcome::of_ends(ends.map(|(code, _)| End::from_code(code)));
        let input = match &description.prompts {
            RecordedPrompts::Prepared(prompts) => prompts.iter().map(|p| p.ids.len() as u64).sum(),
            RecordedPrompts::Requested(_) => 0,
        };
        let output = choices.iter().map(|choice| choice.ids.len() as u64).sum();
        let ended_unix_s = i64::try_from(ended_unix_us / 1_000_000).unwrap_or(0);
        Self::new(&names, &outcome, (input, output), ended_unix_s)
    }

    fn new(names: &Names<'_>, outcome: &Outcome<'_>, tokens: (u64, u64), ended_at: i64) -> Self {
        let (stream, (input_tokens, output_tokens)) = (names.id.to_string(), tokens);
        let (object, id, result) = match names.protocol {
            Protocol::Responses => {
                let id = names.response_id.to_owned();
                ("response", id.clone(), format!("/v1/responses/{id}"))
            }
            Protocol::Job => {
                let id = names.response_id.to_owned();
                ("job", id.clone(), format!("/v1/jobs/{id}"))
            }
            _ => ("stream", stream.clone(), format!("/v1/streams/{stream}")),
        };
        let error = outcome.error();
        let status = outcome.status(error.as_ref());
        Self {
            id,
            object: object.to_owned(),
            dialect: names.protocol.name().to_owned(),
            model: names.model.to_owned(),
            status: status.to_owned(),
            ending: outcome.ending().to_owned(),
            error: error
                .filter(|_| status == "failed")
                .map(|error| EndedError {
                    code: error.code.to_owned(),
                    message: error.message,
                }),
            usage: EndedUsage {
                input_tokens,
                output_tokens,
                total_tokens: input_tokens + output_tokens,
            },
            created_at: names.created_unix_s,
            ended_at,
            links: EndedLinks {
                result,
                events: format!("/v1/streams/{stream}/events"),
            },
            stream_id: stream,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record as version 1 has written it.
    const DELIVERY: &str = concat!(
        r#"{"kind":"webhook_delivery","version":1,"stream":"01010101010101010101010101010101","#,
        r#""owner":7,"url":"https://a.example/","event":"job.completed","object_id":"j","#,
        r#""body":"{}","created_unix_us":5}"#
    );

    #[test]
    fn recorded_delivery_is_read_and_written_byte_for_byte() {
        let record = EventRecord::decode(DELIVERY.as_bytes()).expect("a record");
        assert_eq!(record.url, "https://a.example/");
        assert_eq!(record.id(), "evt_01010101010101010101010101010101");
        assert_eq!(record.encode().expect("short"), DELIVERY.as_bytes());
    }

    #[test]
    fn records_of_other_kinds_and_later_versions_are_rejected() {
        let later = DELIVERY.replace("\"version\":1", "\"version\":2");
        let other = DELIVERY.replace("webhook_delivery", "stored_blob");
        for json in [later, other] {
            assert!(EventRecord::decode(json.as_bytes()).is_err(), "{json}");
        }
        for cut in 0..DELIVERY.len() {
            let cut = &DELIVERY.as_bytes()[..cut];
            assert!(EventRecord::decode(cut).is_err());
        }
    }
}
