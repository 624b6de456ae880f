//! Usage of API keys at a gateway. Cumulative counts and durations, no points in time: a lost message is made up for by
//! the next, a repeated one changes nothing, and clocks need not agree.

use super::bytes::{Reader, push_varint};
use super::{MessageError, VERSION, open_message};
use crate::names::InstanceId;
use std::time::Duration;

/// Keys in one message.
pub const USAGE_ENTRIES_MAX: usize = 1024;
/// Acknowledgements in one message.
pub const USAGE_SEEN_MAX: usize = 64;
/// Bytes of a message of usage: a head, [`USAGE_SEEN_MAX`] acknowledgements and [`USAGE_ENTRIES_MAX`] entries of at most 60
/// bytes.
pub const USAGE_BYTES_MAX: usize = 64 << 10;
/// Bytes of the shortest entry.
const ENTRY_BYTES_MIN: usize = 6;
/// The longest time until a bucket is full that a message has, milliseconds: a day.
const FULL_IN_MS_MAX: u64 = 24 * 3600 * 1000;

/// Usage that a gateway has admitted for the keys in use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UsageReport {
    /// The gateway.
    pub gateway: InstanceId,
    /// Number of the message, from 1 on.
    pub sequence: u64,
    /// Whether the gateway ends: no message follows.
    pub is_last: bool,
    /// Whether all keys in use are listed, so that a key that is missing has no open streams.
    pub is_complete: bool,
    /// By other gateway: number of the last message that arrived. At most [`USAGE_SEEN_MAX`].
    pub seen: Vec<(InstanceId, u64)>,
    /// By key, at most [`USAGE_ENTRIES_MAX`].
    pub entries: Vec<UsageEntry>,
}

/// Usage of one key at one gateway.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UsageEntry {
    /// The key, as the owner of its streams.
    pub owner: u64,
    /// Requests that were admitted since the gateway started.
    pub requests: u64,
    /// Tokens that were charged since the gateway started.
    pub tokens: u64,
    /// Time until the bucket of requests is full, as the gateway knows it.
    pub requests_full_in: Duration,
    /// Time until the bucket of tokens is full, as the gateway knows it.
    pub tokens_full_in: Duration,
    /// Choices that are open.
    pub open: u32,
}

impl UsageReport {
    /// The bytes.
    ///
    /// # Errors
    /// More than [`USAGE_ENTRIES_MAX`] entries, or [`USAGE_SEEN_MAX`] acknowledgements.
    pub fn encode(&self) -> Result<Vec<u8>, MessageError> {
        if self.entries.len() > USAGE_ENTRIES_MAX {
            return Err(MessageError::TooMany("keys", USAGE_ENTRIES_MAX));
        }
        if self.seen.len() > USAGE_SEEN_MAX {
            return Err(MessageError::TooMany("acknowledgements", USAGE_SEEN_MAX));
        }
        let mut out = vec![VERSION];
        push_varint(&mut out, self.gateway.0);
        push_varint(&mut out, self.sequence);
        out.push(u8::from(self.is_last));
        out.push(u8::from(self.is_complete));
        push_varint(&mut out, self.seen.len() as u64);
        for (gateway, sequence) in &self.seen {
            push_varint(&mut out, gateway.0);
            push_varint(&mut out, *sequence);
        }
        push_varint(&mut out, self.entries.len() as u64);
        for entry in &self.entries {
            push_varint(&mut out, entry.owner);
            push_varint(&mut out, entry.requests);
            push_varint(&mut out, entry.tokens);
            push_varint(&mut out, full_in_ms(entry.requests_full_in));
            push_varint(&mut out, full_in_ms(entry.tokens_full_in));
            push_varint(&mut out, entry.open.into());
        }
        Ok(out)
    }

    /// The report of these bytes.
    ///
    /// # Errors
    /// The bytes are no report, or one of another version, or have a part longer than its bound.
    pub fn decode(message: &[u8]) -> Result<Self, MessageError> {
        let mut reader = open_message(message, "usage", USAGE_BYTES_MAX)?;
        let report = Self::take(&mut reader);
        report
            .filter(|_| reader.0.is_empty())
            .ok_or(MessageError::Malformed("usage"))
    }

    fn take(reader: &mut Reader<'_>) -> Option<Self> {
        Some(Self {
            gateway: InstanceId(reader.take_u64()?),
            sequence: reader.take_u64()?,
            is_last: reader.take_bool()?,
            is_complete: reader.take_bool()?,
            seen: {
                let count = reader.take_count(USAGE_SEEN_MAX, 2)?;
                let pair = |_| Some((InstanceId(reader.take_u64()?), reader.take_u64()?));
                (0..count).map(pair).collect::<Option<_>>()?
            },
            entries: {
                let count = reader.take_count(USAGE_ENTRIES_MAX, ENTRY_BYTES_MIN)?;
                (0..count)
                    .map(|_| take_entry(reader))
                    .collect::<Option<_>>()?
            },
        })
    }
}

fn take_entry(reader: &mut Reader<'_>) -> Option<UsageEntry> {
    Some(UsageEntry {
        owner: reader.take_u64()?,
        requests: reader.take_u64()?,
        tokens: reader.take_u64()?,
        requests_full_in: take_full_in(reader)?,
        tokens_full_in: take_full_in(reader)?,
        open: reader.take_u32()?,
    })
}

/// Rounded up, so that a bucket that is not full is not reported as full.
fn full_in_ms(time: Duration) -> u64 {
    let ms = time.as_nanos().div_ceil(1_000_000);
    u64::try_from(ms).map_or(FULL_IN_MS_MAX, |ms| ms.min(FULL_IN_MS_MAX))
}

fn take_full_in(reader: &mut Reader<'_>) -> Option<Duration> {
    let ms = reader.take_u64()?;
    (ms <= FULL_IN_MS_MAX).then(|| Duration::from_millis(ms))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn entries() -> impl Strategy<Value = UsageEntry> {
        let counts = (any::<u64>(), any::<u64>(), any::<u64>());
        let times = (0..=FULL_IN_MS_MAX, 0..=FULL_IN_MS_MAX);
        (counts, times, any::<u32>()).prop_map(
            |((owner, requests, tokens), (first, second), open)| UsageEntry {
                owner,
                requests,
                tokens,
                requests_full_in: Duration::from_millis(first),
                tokens_full_in: Duration::from_millis(second),
                open,
            },
        )
    }

    fn reports() -> impl Strategy<Value = UsageReport> {
        let head = (any::<u64>(), any::<u64>(), any::<bool>(), any::<bool>());
        let seen = prop::collection::vec((any::<u64>(), any::<u64>()), 0..3);
        (head, seen, prop::collection::vec(entries(), 0..5)).prop_map(
            |((gateway, sequence, is_last, is_complete), seen, entries)| UsageReport {
                seen: seen
                    .into_iter()
                    .map(|(id, at)| (InstanceId(id), at))
                    .collect(),
                gateway: InstanceId(gateway),
                sequence,
                is_last,
                is_complete,
                entries,
            },
        )
    }

    proptest! {
        #[test]
        fn reports_are_read_back_and_no_prefix_is_accepted(report in reports()) {
            let mut message = report.encode().unwrap();
            prop_assert_eq!(UsageReport::decode(&message), Ok(report));
            for cut in 0..message.len() {
                prop_assert!(UsageReport::decode(&message[..cut]).is_err());
            }
            message.push(0);
            prop_assert!(UsageReport::decode(&message).is_err());
        }

        #[test]
        fn any_bytes_are_a_report_or_an_error(report in reports(), at: prop::sample::Index, byte: u8,
                                              noise in prop::collection::vec(any::<u8>(), 0..80)) {
            let mut message = report.encode().unwrap();
            let at = at.index(message.len());
            message[at] = byte;
            let _ = UsageReport::decode(&message);
            let _ = UsageReport::decode(&noise);
        }
    }

    #[test]
    fn most_keys_with_the_longest_numbers_fit_a_message() {
        let entry = UsageEntry {
            owner: u64::MAX,
            requests: u64::MAX,
            tokens: u64::MAX,
            requests_full_in: Duration::MAX,
            tokens_full_in: Duration::MAX,
            open: u32::MAX,
        };
        let mut report = UsageReport {
            seen: vec![(InstanceId(u64::MAX), u64::MAX); USAGE_SEEN_MAX],
            entries: vec![entry; USAGE_ENTRIES_MAX],
            ..UsageReport::default()
        };
        let message = report.encode().unwrap();
        assert!(message.len() <= USAGE_BYTES_MAX, "{}", message.len());
        assert!(UsageReport::decode(&message).is_ok());
        report.entries.push(entry);
        let too_many = MessageError::TooMany("keys", USAGE_ENTRIES_MAX);
        assert_eq!(report.encode(), Err(too_many));
        let long = vec![VERSION; USAGE_BYTES_MAX + 1];
        assert!(UsageReport::decode(&long).is_err());
        assert_eq!(UsageReport::decode(&[9, 1]), Err(MessageError::Version(9)));
    }
}
