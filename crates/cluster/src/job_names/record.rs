//! Records of a name in JetStream.

use crate::names::InstanceId;
use crate::records::{JetStreamRecords, PublishOutcome};
use serde::Deserialize;
use serde_json::json;

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
