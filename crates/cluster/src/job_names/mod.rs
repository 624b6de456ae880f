//! Names that clients give to jobs: one job of a name and key in the whole cluster.
//!
//! A name has a subject in JetStream, whose last record names the gateway and the stream of the job. A request reads the
//! record, asks all gateways for the job, opens its job, and appends a record after the one that was read (the `create` of a
//! key-value store, where there was none). JetStream accepts one record after each: of several requests that open a job
//! at one moment one keeps it, and the others withdraw theirs before their clients have an answer.
//!
//! A gateway has the job in its table before the record exists and until the job is forgotten, so a name is free whose record
//! is of a job that no gateway has. Records are not removed. If the gateway of a record is gone, its job may be taken over as
//! long as there are records of the stream. A gateway that is regarded as gone and is not learns it when it appends:
//! another record came first.
//!
//! Without JetStream gateways are asked, and nothing orders two requests of one moment.

#[cfg(test)]
mod simulation;

use crate::names::InstanceId;
use crate::records::{JetStreamRecords, PublishOutcome};
use serde::Deserialize;
use serde_json::json;

/// Answers of the other gateways about a name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NameAnswers {
    /// Whether one of them has a job of the name.
    pub is_used: bool,
    /// Those that have answered.
    pub answered: Vec<InstanceId>,
    /// Living gateways without an answer, in words.
    pub unanswered: Option<String>,
}

/// The records of one name, and the other gateways.
pub trait NameLookup {
    /// Sequence and content of the last record; none without JetStream.
    ///
    /// # Errors
    /// JetStream does not answer, or the record cannot be read.
    fn last(&self) -> impl Future<Output = Result<Option<(u64, NameRecord)>, String>> + Send;

    /// Appends a record if `expected` is the sequence of the last one (0: there is none).
    fn append(
        &self,
        expected: u64,
        record: NameRecord,
    ) -> impl Future<Output = PublishOutcome> + Send;

    /// Asks all living gateways.
    fn ask(&self) -> impl Future<Output = NameAnswers> + Send;

    /// Whether an instance is gone for certain.
    fn is_gone(&self, instance: InstanceId) -> bool;

    /// Whether a stream has records, so that it will be taken over.
    ///
    /// # Errors
    /// JetStream does not answer.
    fn has_records(&self, stream: u128) -> impl Future<Output = Result<bool, String>> + Send;
}

/// Why a request does not get a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NameRefusal {
    /// There is a job of the name.
    Taken,
    /// Not known at the moment, for this reason.
    Unclear(String),
}

/// One request that wants a name, of which this gateway has no job.
pub struct NameClaim<L> {
    /// This gateway.
    pub own: InstanceId,
    /// What others have of the name.
    pub lookup: L,
}

impl<L: NameLookup + Sync> NameClaim<L> {
    /// Expects that no gateway has a job of the name. Returns the sequence of the name's last record, 0 without one.
    ///
    /// # Errors
    /// The name is taken, or that is not known.
    pub async fn expect_unused(&self) -> Result<u64, NameRefusal> {
        let last = self.lookup.last().await.map_err(NameRefusal::Unclear)?;
        let Some((sequence, last)) = last else {
            self.ask().await?;
            return Ok(0);
        };
        let is_gone = last.holder != self.own && self.lookup.is_gone(last.holder);
        // Before the question: a job that is taken over meanwhile is seen by the one or the other.
        let is_orphan = match last.stream.filter(|_| is_gone) {
            Some(stream) => self.lookup.has_records(stream).await,
            None => Ok(false),
        };
        let is_orphan = is_orphan.map_err(NameRefusal::Unclear)?;
        let answered = self.ask().await?;
        if is_orphan {
            let why = "the job of this name is being taken over from a gateway that is gone";
            return Err(NameRefusal::Unclear(why.to_owned()));
        }
        if last.holder == self.own || is_gone || answered.contains(&last.holder) {
            return Ok(sequence);
        }
        let (holder, why) = (last.holder, "which had the name before, is silent");
        Err(NameRefusal::Unclear(format!("the gateway {holder}, {why}")))
    }

    /// Takes the name for a job that is open here, after the record with the sequence of [`Self::expect_unused`].
    ///
    /// # Errors
    /// Another request has got the name, or that is not known: the job is to be withdrawn.
    pub async fn take(&self, after: u64, stream: u128) -> Result<(), NameRefusal> {
        let (holder, stream) = (self.own, Some(stream));
        let record = NameRecord { holder, stream };
        let outcome = self.lookup.append(after, record).await;
        if matches!(outcome, PublishOutcome::Stored(_)) {
            return Ok(());
        }
        let last = self.lookup.last().await.map_err(NameRefusal::Unclear)?;
        if last.is_some_and(|(_, last)| last == record) {
            // Stored, without an answer.
            return Ok(());
        }
        self.expect_unused().await?;
        let why = "JetStream has not taken the record of the name";
        Err(NameRefusal::Unclear(why.to_owned()))
    }

    /// The gateways that have answered, none of which has a job of the name.
    async fn ask(&self) -> Result<Vec<InstanceId>, NameRefusal> {
        let answers = self.lookup.ask().await;
        if answers.is_used {
            return Err(NameRefusal::Taken);
        }
        match answers.unanswered {
            Some(why) => Err(NameRefusal::Unclear(why)),
            None => Ok(answers.answered),
        }
    }
}

/// Version of records.
const VERSION: u32 = 1;
/// Bytes of a record that is read.
const RECORD_BYTES_MAX: usize = 512;

/// The job of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NameRecord {
    /// The gateway that has opened the job.
    pub holder: InstanceId,
    /// The stream of the job; `None` if an earlier version has claimed the name and has not opened the job yet.
    pub stream: Option<u128>,
}

/// A record as JSON.
#[derive(Deserialize)]
struct EncodedRecord {
    v: u32,
    holder: InstanceId,
    stream: Option<String>,
}

impl NameRecord {
    fn encode(self) -> String {
        let stream = self.stream.map(|stream| format!("{stream:032x}"));
        // Gateways of an earlier version expect a number of the claim.
        json!({"v": VERSION, "holder": self.holder, "claim": 0, "stream": stream}).to_string()
    }

    fn decode(record: &[u8]) -> Result<Self, String> {
        if record.len() > RECORD_BYTES_MAX {
            return Err(format!("the record of a name has {} bytes", record.len()));
        }
        let read: EncodedRecord = serde_json::from_slice(record).map_err(|why| why.to_string())?;
        if read.v != VERSION {
            return Err(format!("the record of a name has the version {}", read.v));
        }
        let stream = read.stream.map(|id| u128::from_str_radix(&id, 16));
        Ok(Self {
            holder: read.holder,
            stream: stream.transpose().map_err(|why| why.to_string())?,
        })
    }
}

/// The records of one name in JetStream.
#[derive(Clone, Debug)]
pub struct JetStreamName {
    records: JetStreamRecords,
    subject: String,
}

impl JetStreamName {
    /// The records of a name of this key.
    pub fn new(records: JetStreamRecords, key: u64, name: &str) -> Self {
        Self {
            subject: records.subjects().job_name(key, name),
            records,
        }
    }

    /// Sequence and content of the last record.
    ///
    /// # Errors
    /// JetStream does not answer, or the record cannot be read.
    pub async fn last(&self) -> Result<Option<(u64, NameRecord)>, String> {
        let Some((sequence, payload)) = self.records.last_payload(&self.subject).await? else {
            return Ok(None);
        };
        Ok(Some((sequence, NameRecord::decode(&payload)?)))
    }

    /// Appends a record if `expected` is the sequence of the last one (0: there is none).
    pub async fn append(&self, expected: u64, record: NameRecord) -> PublishOutcome {
        let (subject, payload) = (self.subject.clone(), record.encode().into());
        self.records.publish_to(subject, expected, payload).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_back_and_others_are_errors() {
        for stream in [None, Some(7), Some(u128::MAX)] {
            let holder = InstanceId(1);
            let record = NameRecord { holder, stream };
            assert_eq!(NameRecord::decode(record.encode().as_bytes()), Ok(record));
        }
        let claimed = br#"{"v":1,"holder":"0000000000000001","claim":7}"#;
        assert_eq!(NameRecord::decode(claimed).unwrap().stream, None);
        let later = br#"{"v":2,"holder":"0000000000000001","claim":1}"#;
        let long = [b' '; RECORD_BYTES_MAX + 1];
        for bad in [&b""[..], b"{}", later, &long] {
            assert!(NameRecord::decode(bad).is_err());
        }
    }
}
