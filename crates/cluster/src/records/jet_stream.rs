//! Requests to JetStream: one stream with a subject for each stream of Millrace.

use super::claim::SubjectMessage;
use super::cluster_identity::ClusterIdentity;
use super::replicator::{RECORDS_BYTES_MAX, RecordsConfig};
use super::store::{LastMessage, PublishOutcome, StoreProblem};
use crate::messages::{
    FILE_BYTES_MAX, FILE_PART_BYTES, FileDigest, RECORDS_HEAD_BYTES_MAX, RecordsHead, file_parts,
};
use crate::names::{ClusterId, Subjects};
use async_nats::jetstream::context::{CreateStreamError, CreateStreamErrorKind};
use async_nats::jetstream::stream::{
    Config, DiscardPolicy, LastRawMessageErrorKind, RetentionPolicy, StorageType, Stream,
};
use async_nats::jetstream::{Context, context};
use async_nats::{Client, HeaderMap, Request, RequestErrorKind};
use bytes::Bytes;
use futures_util::TryStreamExt;
use serde::Deserialize;
use std::sync::Arc;
use std::time::Duration;

/// Streams that are listed; further ones are found by their readers alone.
const STREAMS_MAX: usize = 1 << 20;

/// Time for the answer to a publication: longer than most elections of a leader.
const PUBLISH_WAIT: Duration = Duration::from_secs(5);
/// Time for the answer to other requests.
const REQUEST_WAIT: Duration = Duration::from_secs(2);
/// Header with the sequence that the subject's last message has to have.
const EXPECTED: &str = "Nats-Expected-Last-Subject-Sequence";
/// Pause before a message is sent again that the server could not take at the moment.
const BUSY_WAIT: Duration = Duration::from_millis(2);
/// Pause before a message is sent again for which the store has no room.
const FULL_WAIT: Duration = Duration::from_secs(1);
/// Messages of a subject that are read: more than an owner lets a copy grow to.
const MESSAGES_MAX: usize = 16 << 10;

/// JetStream's code of an unexpected sequence.
const WRONG_SEQUENCE: u64 = 10071;
/// Code of a sequence that is being decided; servers from 2.12 on.
const IN_FLIGHT: u64 = 10164;
/// Codes of a store, an account or a server without room.
const FULL: [u64; 5] = [10002, 10023, 10047, 10077, 10122];

/// The JetStream stream with the records of a cluster.
#[derive(Clone, Debug)]
pub struct JetStreamRecords {
    client: Client,
    context: Context,
    subjects: Subjects,
    config: RecordsConfig,
    /// The cluster of this process, where it may be another one than that of the records.
    identity: Option<Arc<ClusterIdentity>>,
}

/// Last known state of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StoreFacts {
    /// Time of creation, nanoseconds.
    pub(super) created: i128,
    pub(super) last_sequence: u64,
    pub(super) bytes: u64,
}

#[derive(Deserialize)]
struct Acknowledgement {
    #[serde(default)]
    seq: u64,
    error: Option<ServerError>,
}

#[derive(Deserialize)]
struct ServerError {
    #[serde(default)]
    err_code: u64,
    #[serde(default)]
    description: String,
}

impl JetStreamRecords {
    /// The records of the cluster with these subjects. Nothing is sent.
    pub fn new(client: Client, subjects: Subjects, config: RecordsConfig) -> Self {
        let builder = context::ContextBuilder::new().timeout(REQUEST_WAIT);
        Self {
            context: builder.build(client.clone()),
            client,
            subjects,
            config,
            identity: None,
        }
    }

    /// Records that are neither read nor claimed while they belong to another cluster.
    #[must_use]
    pub fn of_cluster(self, identity: Arc<ClusterIdentity>) -> Self {
        let identity = Some(identity);
        Self { identity, ..self }
    }

    /// Subjects of the cluster.
    pub(crate) fn subjects(&self) -> &Subjects {
        &self.subjects
    }

    /// Creates the JetStream stream, or adapts its bounds.
    ///
    /// # Errors
    /// JetStream does not answer, or rejects the stream.
    pub async fn create_store(&self) -> Result<(), StoreProblem> {
        let name = self.subjects.records_stream();
        let config = self.stream_config();
        let created = self.context.get_or_create_stream(config.clone()).await;
        let mut stream = created.map_err(|why| create_problem(&name, &config, &why))?;
        let info = stream.info().await;
        let found = &info
            .map_err(|why| StoreProblem::Other(format!("{name}: {why}")))?
            .config;
        let is_same = found.max_bytes == config.max_bytes
            && found.num_replicas == config.num_replicas
            && found.max_age == config.max_age
            && found.subjects == config.subjects;
        if !is_same {
            let updated = self.context.update_stream(config).await;
            let problem = |why| StoreProblem::Other(format!("JetStream stream {name}: {why}"));
            updated.map_err(problem)?;
        }
        Ok(())
    }

    fn stream_config(&self) -> Config {
        let message_bytes = RECORDS_BYTES_MAX + RECORDS_HEAD_BYTES_MAX + 512;
        Config {
            name: self.subjects.records_stream(),
            description: Some("Millrace: records of streams".to_owned()),
            subjects: vec![
                self.subjects.all_records(),
                self.subjects.all_job_names(),
                self.subjects.all_files(),
            ],
            retention: RetentionPolicy::Limits,
            discard: DiscardPolicy::New,
            storage: StorageType::File,
            max_bytes: i64::try_from(self.config.store_bytes).unwrap_or(i64::MAX),
            max_message_size: i32::try_from(message_bytes).unwrap_or(i32::MAX),
            max_age: self.config.age_max,
            num_replicas: self.config.replicas,
            ..Config::default()
        }
    }

    /// The JetStream stream, for requests that concern streams of this cluster.
    pub(super) async fn stream(&self) -> Result<Stream<()>, String> {
        let identity = self.identity.as_ref();
        if let Some(problem) = identity.and_then(|identity| identity.problem()) {
            return Err(problem);
        }
        self.any_stream().await
    }

    /// The JetStream stream, whatever cluster it belongs to.
    async fn any_stream(&self) -> Result<Stream<()>, String> {
        let name = self.subjects.records_stream();
        let stream = self.context.get_stream_no_info(name).await;
        stream.map_err(|_| "JetStream is not reachable".to_owned())
    }

    /// The store's time of creation and size; `None` without an answer.
    pub(super) async fn facts(&self) -> Option<StoreFacts> {
        let stream = self.any_stream().await.ok()?;
        let info = stream.get_info().await.ok()?;
        Some(StoreFacts {
            created: info.created.unix_timestamp_nanos(),
            last_sequence: info.state.last_sequence,
            bytes: info.state.bytes,
        })
    }

    /// Appends a message to a stream's subject if `expected` is the last sequence.
    pub(super) async fn publish(&self, id: u128, expected: u64, payload: Bytes) -> PublishOutcome {
        self.publish_to(self.subjects.records(id), expected, payload)
            .await
    }

    /// Appends a message to a subject if `expected` is the last sequence.
    pub(crate) async fn publish_to(
        &self,
        subject: String,
        expected: u64,
        payload: Bytes,
    ) -> PublishOutcome {
        let mut headers = HeaderMap::new();
        headers.insert(EXPECTED, expected.to_string());
        let request = Request::new().headers(headers).payload(payload);
        let request = request.timeout(Some(PUBLISH_WAIT));
        let sent = self.client.send_request(subject, request);
        let answer = match sent.await {
            Ok(answer) => answer,
            // No store takes the subject: nothing was stored, and the driver creates the store.
            Err(why) if why.kind() == RequestErrorKind::NoResponders => {
                return PublishOutcome::Busy(FULL_WAIT);
            }
            Err(_) => return PublishOutcome::Unknown,
        };
        match serde_json::from_slice(&answer.payload) {
            Ok(Acknowledgement { error: None, seq }) if seq > 0 => PublishOutcome::Stored(seq),
            Ok(Acknowledgement {
                error: Some(error), ..
            }) => rejected(&error),
            _ => PublishOutcome::Unknown,
        }
    }

    /// The id of the cluster that the records belong to; `None`: it was not stored, or is lost.
    ///
    /// # Errors
    /// JetStream does not answer, or the id cannot be read.
    pub(super) async fn stored_cluster(&self) -> Result<Option<ClusterId>, String> {
        let (stream, subject) = (self.any_stream().await?, self.subjects.cluster_id());
        match stream.get_last_raw_message_by_subject(&subject).await {
            Ok(message) => {
                let text = std::str::from_utf8(&message.payload).ok();
                let id = text.and_then(|text| text.parse().ok());
                id.map(Some).ok_or(format!("{subject}: no cluster's id"))
            }
            Err(why) if why.kind() == LastRawMessageErrorKind::NoMessageFound => Ok(None),
            Err(why) => Err(why.to_string()),
        }
    }

    /// Stores the id of the cluster, if none is stored. Returns whether this one is stored now.
    pub(super) async fn store_cluster(&self, id: ClusterId) -> bool {
        let (subject, payload) = (self.subjects.cluster_id(), id.to_string().into());
        let outcome = self.publish_to(subject, 0, payload).await;
        matches!(outcome, PublishOutcome::Stored(_))
    }

    /// The last message of a stream's subject.
    ///
    /// # Errors
    /// JetStream does not answer, or the message cannot be read.
    pub async fn last_message(&self, id: u128) -> Result<Option<LastMessage>, String> {
        let Some((sequence, payload)) = self.last_payload(&self.subjects.records(id)).await? else {
            return Ok(None);
        };
        let (head, _) = RecordsHead::decode(&payload).map_err(|why| why.to_string())?;
        Ok(Some(LastMessage { sequence, head }))
    }

    /// Sequence and content of the last message of a subject.
    pub(crate) async fn last_payload(&self, subject: &str) -> Result<Option<(u64, Bytes)>, String> {
        let stream = self.stream().await?;
        match stream.get_last_raw_message_by_subject(subject).await {
            Ok(message) => Ok(Some((message.sequence, message.payload))),
            Err(why) if why.kind() == LastRawMessageErrorKind::NoMessageFound => Ok(None),
            Err(why) => {
                tracing::debug!(subject, "no record can be read: {why}");
                Err("JetStream does not answer with the stream's record".to_owned())
            }
        }
    }

    /// All messages of a stream's subject, in order.
    ///
    /// # Errors
    /// JetStream does not answer, or the messages are more than an owner writes.
    pub(super) async fn read_subject(&self, id: u128) -> Result<Vec<SubjectMessage>, String> {
        let stream = self.stream().await?;
        let subject = self.subjects.records(id);
        let mut messages = Vec::new();
        let mut from = 1;
        loop {
            let next = stream.get_first_raw_message_by_subject(&subject, from);
            match next.await {
                Ok(message) => {
                    from = message.sequence + 1;
                    messages.push(SubjectMessage {
                        sequence: message.sequence,
                        payload: message.payload,
                    });
                }
                Err(why) if why.kind() == LastRawMessageErrorKind::NoMessageFound => {
                    return Ok(messages);
                }
                Err(why) => return Err(why.to_string()),
            }
            if messages.len() > MESSAGES_MAX {
                return Err(format!("{subject}: more than {MESSAGES_MAX} messages"));
            }
        }
    }

    /// Removes the messages of a stream's subject below a sequence.
    pub(super) async fn purge(&self, id: u128, below: u64) -> bool {
        // The server takes the sequences 0 and 1 for none, and would remove all messages.
        if below <= 1 {
            return true;
        }
        let Ok(stream) = self.stream().await else {
            return false;
        };
        let purge = stream.purge().sequence(below);
        purge.filter(self.subjects.records(id)).await.is_ok()
    }

    /// Stores a file of a stream in parts; a part that is there stays. `Err`: not all parts are stored, and when to try
    /// again, where that is known.
    pub(super) async fn store_file(
        &self,
        id: u128,
        digest: &FileDigest,
        bytes: Vec<u8>,
    ) -> Result<(), Option<Duration>> {
        let bytes = Bytes::from(bytes);
        for part in 0..file_parts(bytes.len()) {
            let start = part * FILE_PART_BYTES;
            let payload = bytes.slice(start..bytes.len().min(start + FILE_PART_BYTES));
            let subject = self.subjects.file_part(id, digest, part);
            match self.publish_to(subject, 0, payload).await {
                // Another message is there: the digest names the same bytes.
                PublishOutcome::Stored(_) | PublishOutcome::WrongSequence => {}
                PublishOutcome::Busy(wait) => return Err(Some(wait)),
                PublishOutcome::Unknown => return Err(None),
            }
        }
        Ok(())
    }

    /// The bytes that are stored under a file's name, which the caller compares with it; `None`: a part is missing.
    ///
    /// # Errors
    /// JetStream does not answer.
    pub async fn file(
        &self,
        id: u128,
        digest: &FileDigest,
        bytes: usize,
    ) -> Result<Option<Vec<u8>>, String> {
        let mut file = Vec::new();
        for part in 0..file_parts(bytes.min(FILE_BYTES_MAX)) {
            let subject = self.subjects.file_part(id, digest, part);
            match self.last_payload(&subject).await? {
                Some((_, payload)) => file.extend_from_slice(&payload),
                None => return Ok(None),
            }
        }
        Ok(Some(file))
    }

    /// Removes the files of a stream.
    pub(super) async fn purge_files(&self, id: u128) -> bool {
        let Ok(stream) = self.stream().await else {
            return false;
        };
        let purge = stream.purge().filter(self.subjects.stream_files(id));
        purge.await.is_ok()
    }

    /// Says to the other instances that a stream has a new owner.
    pub(super) async fn announce(&self, id: u128, generation: u64) {
        let mut notice = id.to_be_bytes().to_vec();
        notice.extend_from_slice(&generation.to_be_bytes());
        // A lost notice is made up for by the owner's next message.
        let _ = self
            .client
            .publish(self.subjects.claimed(), notice.into())
            .await;
    }

    /// Ids of all streams that have records.
    ///
    /// # Errors
    /// JetStream does not answer.
    pub async fn streams(&self) -> Result<Vec<u128>, String> {
        let stream = self.stream().await?;
        let subjects = self.subjects();
        let listed = stream.info_with_subjects(subjects.all_records()).await;
        let mut listed = listed.map_err(|why| why.to_string())?;
        let mut ids = Vec::new();
        while let Some((subject, _)) = listed.try_next().await.map_err(|why| why.to_string())? {
            if ids.len() < STREAMS_MAX {
                ids.extend(subjects.stream_of_records(&subject));
            }
        }
        Ok(ids)
    }
}

/// Why the store cannot be used, in words for the operator.
fn create_problem(name: &str, config: &Config, why: &CreateStreamError) -> StoreProblem {
    match why.kind() {
        CreateStreamErrorKind::JetStreamUnavailable => StoreProblem::NotEnabled,
        CreateStreamErrorKind::TimedOut => StoreProblem::no_answer(),
        _ => {
            let (replicas, bytes) = (config.num_replicas, config.max_bytes);
            StoreProblem::Other(format!(
                "JetStream stream {name} with {replicas} replicas (cluster.replicas) and {bytes} bytes \
                 (cluster.store_bytes): {why}"
            ))
        }
    }
}

/// The stream and the generation of a notice.
pub(super) fn parse_notice(notice: &[u8]) -> Option<(u128, u64)> {
    let (id, generation) = notice.split_first_chunk()?;
    let generation = generation.try_into().ok()?;
    Some((u128::from_be_bytes(*id), u64::from_be_bytes(generation)))
}

fn rejected(error: &ServerError) -> PublishOutcome {
    match error.err_code {
        WRONG_SEQUENCE => PublishOutcome::WrongSequence,
        IN_FLIGHT => PublishOutcome::Busy(BUSY_WAIT),
        code if FULL.contains(&code) => {
            tracing::debug!("JetStream has no room for records: {}", error.description);
            PublishOutcome::Busy(FULL_WAIT)
        }
        _ => {
            tracing::debug!("JetStream rejects records: {}", error.description);
            PublishOutcome::Unknown
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notices_are_read_back() {
        let mut notice = 7_u128.to_be_bytes().to_vec();
        notice.extend_from_slice(&3_u64.to_be_bytes());
        assert_eq!(parse_notice(&notice), Some((7, 3)));
        for cut in 0..notice.len() {
            assert_eq!(parse_notice(&notice[..cut]), None, "{cut}");
        }
    }

    #[test]
    fn rejections_are_told_apart() {
        let of = |err_code| {
            rejected(&ServerError {
                err_code,
                description: String::new(),
            })
        };
        assert_eq!(of(10071), PublishOutcome::WrongSequence);
        assert_eq!(of(10164), PublishOutcome::Busy(BUSY_WAIT));
        assert_eq!(of(10077), PublishOutcome::Busy(FULL_WAIT));
        assert_eq!(of(1), PublishOutcome::Unknown);
    }
}
