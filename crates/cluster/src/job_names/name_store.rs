//! The subject of a name.

use super::record::NameRecord;
use crate::records::{JetStreamRecords, PublishOutcome};

/// The records of one name.
pub trait NameStore {
    /// Sequence and content of the last record.
    ///
    /// # Errors
    /// The store does not answer, or the record cannot be read.
    fn last(&self) -> impl Future<Output = Result<Option<(u64, NameRecord)>, String>> + Send;

    /// Appends a record if `expected` is the sequence of the last one (0: there is none).
    fn publish(
        &self,
        expected: u64,
        record: &NameRecord,
    ) -> impl Future<Output = PublishOutcome> + Send;
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
}

impl NameStore for JetStreamName {
    async fn last(&self) -> Result<Option<(u64, NameRecord)>, String> {
        let Some((sequence, payload)) = self.records.last_payload(&self.subject).await? else {
            return Ok(None);
        };
        Ok(Some((sequence, NameRecord::decode(&payload)?)))
    }

    async fn publish(&self, expected: u64, record: &NameRecord) -> PublishOutcome {
        let subject = self.subject.clone();
        let payload = record.encode().into();
        self.records.publish_to(subject, expected, payload).await
    }
}
