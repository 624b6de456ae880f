//! Records of a name in JetStream.

use crate::names::InstanceId;
use serde::{Deserialize, Serialize};

/// Version of records.
const VERSION: u32 = 1;
/// Bytes of a record that is read.
const RECORD_BYTES_MAX: usize = 512;

/// A claim of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameRecord {
    /// The gateway that has claimed the name.
    pub holder: InstanceId,
    /// Number of the claim, drawn for each.
    pub claim: u64,
    /// The stream of the job; `None` until it is there.
    pub stream: Option<u128>,
}

/// A record as JSON.
#[derive(Serialize, Deserialize)]
struct EncodedRecord {
    v: u32,
    holder: InstanceId,
    claim: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream: Option<String>,
}

impl NameRecord {
    pub(super) fn encode(&self) -> Vec<u8> {
        let encoded = EncodedRecord {
            v: VERSION,
            holder: self.holder,
            claim: self.claim,
            stream: self.stream.map(|stream| format!("{stream:032x}")),
        };
        // Numbers and hexadecimal digits are always JSON.
        serde_json::to_vec(&encoded).unwrap_or_default()
    }

    pub(super) fn decode(record: &[u8]) -> Result<Self, String> {
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
            claim: read.claim,
            stream: stream.transpose().map_err(|why| why.to_string())?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_back_and_others_are_errors() {
        for stream in [None, Some(7), Some(u128::MAX)] {
            let record = NameRecord {
                holder: InstanceId(1),
                claim: u64::MAX,
                stream,
            };
            assert_eq!(NameRecord::decode(&record.encode()), Ok(record));
        }
        let later = br#"{"v":2,"holder":"0000000000000001","claim":1}"#;
        let long = [b' '; RECORD_BYTES_MAX + 1];
        for bad in [&b""[..], b"{}", later, &long] {
            assert!(NameRecord::decode(bad).is_err());
        }
    }
}
