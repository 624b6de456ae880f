//! Requests in parts: a request is longer than a message may be where the prompt is long.

use super::encoding::{InstanceNumber, byte_string, decode_message, push_message};
use super::{MESSAGE_BYTES_MAX, MessageError, RUN_BYTES_MAX, Run};
use crate::names::InstanceId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Bytes of a request in one part.
pub const PART_BYTES_MAX: usize = MESSAGE_BYTES_MAX - 64;
/// Parts of a request.
const PARTS_MAX: usize = RUN_BYTES_MAX.div_ceil(PART_BYTES_MAX);
/// Bytes of incomplete requests that an engine keeps.
pub const ASSEMBLY_BYTES_MAX: usize = 4 * RUN_BYTES_MAX;
/// Incomplete requests that an engine keeps: their parts may be empty.
const INCOMPLETE_MAX: usize = 1024;
/// Time that an incomplete request is kept after its last part.
pub const PART_WAIT: Duration = Duration::from_secs(10);

impl Run {
    /// The messages of this request, in order.
    ///
    /// # Errors
    /// A part of the request is above its bound.
    pub fn encode_parts(&self) -> Result<Vec<Vec<u8>>, MessageError> {
        let bytes = self.encode()?;
        let parts = bytes.len().div_ceil(PART_BYTES_MAX);
        let messages = bytes.chunks(PART_BYTES_MAX).enumerate();
        Ok(messages
            .map(|(part, bytes)| {
                let mut message = Vec::with_capacity(bytes.len() + 64);
                let part = RunPart {
                    gateway: self.gateway,
                    handle: self.handle,
                    attempt: self.attempt,
                    part,
                    parts,
                    bytes,
                };
                push_message(&mut message, &part);
                message
            })
            .collect())
    }
}

/// One message of a request.
#[derive(Serialize, Deserialize)]
struct RunPart<'a> {
    #[serde(with = "InstanceNumber")]
    gateway: InstanceId,
    handle: u64,
    attempt: u32,
    part: usize,
    parts: usize,
    #[serde(serialize_with = "byte_string::serialize")]
    bytes: &'a [u8],
}

impl<'a> RunPart<'a> {
    fn decode(message: &'a [u8]) -> Result<Self, MessageError> {
        let part: Self = decode_message(message, "request", MESSAGE_BYTES_MAX)?;
        let is_within = part.part < part.parts && part.parts <= PARTS_MAX;
        if !is_within || part.bytes.len() > PART_BYTES_MAX {
            return Err(MessageError::Malformed("request"));
        }
        Ok(part)
    }
}

/// Outcome of a part.
#[derive(Debug, PartialEq)]
pub enum Assembled {
    /// Further parts are missing.
    Incomplete,
    /// The request is complete.
    Run(Box<Run>),
}

/// Requests of which parts are missing, on an engine.
#[derive(Debug, Default)]
pub struct PartAssembly {
    incomplete: BTreeMap<(InstanceId, u64), IncompleteRun>,
    /// Bytes of all parts.
    bytes: usize,
}

#[derive(Debug)]
struct IncompleteRun {
    attempt: u32,
    parts: Vec<Option<Vec<u8>>>,
    last: Instant,
}

impl PartAssembly {
    /// Takes one message of a request; a repeated one is ignored. `now` never decreases.
    ///
    /// # Errors
    /// The message is no part, or there are more than [`INCOMPLETE_MAX`] incomplete requests, or [`ASSEMBLY_BYTES_MAX`] bytes of
    /// them.
    pub fn push(&mut self, message: &[u8], now: Instant) -> Result<Assembled, MessageError> {
        let part = RunPart::decode(message)?;
        if part.parts == 1 {
            return complete(&part, part.bytes);
        }
        self.drop_expired(now);
        let key = (part.gateway, part.handle);
        let newer = |run: &IncompleteRun| {
            run.attempt < part.attempt
                || run.attempt == part.attempt && run.parts.len() != part.parts
        };
        if self.incomplete.get(&key).is_some_and(newer) {
            self.remove(key);
        }
        if self.bytes + part.bytes.len() > ASSEMBLY_BYTES_MAX {
            return Err(MessageError::TooMany("bytes", ASSEMBLY_BYTES_MAX));
        }
        if self.incomplete.len() >= INCOMPLETE_MAX && !self.incomplete.contains_key(&key) {
            return Err(MessageError::TooMany("requests in parts", INCOMPLETE_MAX));
        }
        let run = self.incomplete.entry(key).or_insert_with(|| IncompleteRun {
            attempt: part.attempt,
            parts: vec![None; part.parts],
            last: now,
        });
        if run.attempt > part.attempt {
            return Ok(Assembled::Incomplete);
        }
        run.last = now;
        if run.parts[part.part].is_none() {
            run.parts[part.part] = Some(part.bytes.to_vec());
            self.bytes += part.bytes.len();
        }
        if run.parts.iter().any(Option::is_none) {
            return Ok(Assembled::Incomplete);
        }
        let parts = self.remove(key);
        complete(&part, &parts.concat())
    }

    /// Bytes of incomplete requests.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    fn remove(&mut self, key: (InstanceId, u64)) -> Vec<Vec<u8>> {
        let parts = self.incomplete.remove(&key).map(|run| run.parts);
        let parts: Vec<_> = parts.into_iter().flatten().flatten().collect();
        self.bytes -= parts.iter().map(Vec::len).sum::<usize>();
        parts
    }

    /// Drops the requests whose further parts did not arrive in time.
    pub fn drop_expired(&mut self, now: Instant) {
        let expired = |run: &IncompleteRun| now.saturating_duration_since(run.last) >= PART_WAIT;
        let keys = self.incomplete.iter().filter(|(_, run)| expired(run));
        let keys: Vec<_> = keys.map(|(key, _)| *key).collect();
        for key in keys {
            self.remove(key);
        }
    }
}

/// The request of these bytes, whose names are those of the parts.
fn complete(part: &RunPart<'_>, bytes: &[u8]) -> Result<Assembled, MessageError> {
    let run = Run::decode(bytes)?;
    let is_same = (run.gateway, run.handle) == (part.gateway, part.handle);
    if is_same && run.attempt == part.attempt {
        Ok(Assembled::Run(Box::new(run)))
    } else {
        Err(MessageError::Malformed("request"))
    }
}

#[cfg(test)]
mod tests {
    use super::super::encoding::push_bounded;
    use super::super::encoding::tests::assert_checked;
    use super::super::run::tests::runs;
    use super::*;
    use proptest::prelude::*;

    #[expect(clippy::disallowed_methods, reason = "a start of virtual time")]
    fn start() -> Instant {
        Instant::now()
    }

    fn long_run(handle: u64, attempt: u32) -> Run {
        Run {
            handle,
            attempt,
            request: vec![handle as u8; 2 * PART_BYTES_MAX + 5],
            ..Run::default()
        }
    }

    proptest! {
        #[test]
        fn parts_are_checked(run in runs()) {
            let message = run.encode_parts().unwrap().remove(0);
            let encode = |part: &RunPart<'_>| {
                let mut out = Vec::new();
                push_bounded(&mut out, part, MESSAGE_BYTES_MAX).map(|()| out)
            };
            let is_checked = |bytes: &[u8]| RunPart::decode(bytes).and_then(|part| encode(&part));
            assert_checked(&message, is_checked, |again| Ok(again.clone()));
        }

        #[test]
        fn short_requests_are_one_message(run in runs(), at: prop::sample::Index, byte: u8) {
            let mut parts = run.encode_parts().unwrap();
            prop_assert_eq!(parts.len(), 1);
            let mut assembly = PartAssembly::default();
            let assembled = assembly.push(&parts[0], start());
            prop_assert_eq!(assembled, Ok(Assembled::Run(Box::new(run))));
            let at = at.index(parts[0].len());
            parts[0][at] = byte;
            let _ = assembly.push(&parts[0], start());
            prop_assert_eq!(assembly.push(&parts[0][..at], start()).ok(), None);
        }
    }

    #[test]
    fn parts_arrive_in_any_order_and_twice() {
        let (run, now) = (long_run(3, 1), start());
        let parts = run.encode_parts().unwrap();
        assert_eq!(parts.len(), 3);
        let mut assembly = PartAssembly::default();
        for part in [&parts[2], &parts[0], &parts[2]] {
            assert_eq!(assembly.push(part, now), Ok(Assembled::Incomplete));
        }
        let other = long_run(4, 1).encode_parts().unwrap();
        assert_eq!(assembly.push(&other[0], now), Ok(Assembled::Incomplete));
        let whole = assembly.push(&parts[1], now);
        assert_eq!(whole, Ok(Assembled::Run(Box::new(run))));
        assert!(assembly.bytes() <= PART_BYTES_MAX, "only the other's part");
    }

    #[test]
    fn later_attempt_replaces_the_parts_of_an_earlier_one() {
        let now = start();
        let (old, run) = (long_run(3, 1).encode_parts().unwrap(), long_run(3, 2));
        let new = run.encode_parts().unwrap();
        let mut assembly = PartAssembly::default();
        for part in [&old[0], &new[0], &old[1], &new[1]] {
            assert_eq!(assembly.push(part, now), Ok(Assembled::Incomplete));
        }
        let whole = assembly.push(&new[2], now);
        assert_eq!(whole, Ok(Assembled::Run(Box::new(run))));
        assert_eq!(assembly.bytes(), 0);
    }

    #[test]
    fn empty_parts_of_many_requests_are_bounded_and_dropped() {
        let now = start();
        let mut assembly = PartAssembly::default();
        let part = |handle: u64| {
            let part = RunPart {
                gateway: InstanceId(0),
                handle,
                attempt: 1,
                part: 0,
                parts: PARTS_MAX,
                bytes: &[],
            };
            let mut message = Vec::new();
            push_message(&mut message, &part);
            message
        };
        for handle in 0..INCOMPLETE_MAX as u64 {
            let pushed = assembly.push(&part(handle), now);
            assert_eq!(pushed, Ok(Assembled::Incomplete));
        }
        let full = Err(MessageError::TooMany("requests in parts", INCOMPLETE_MAX));
        assert_eq!(assembly.push(&part(u64::MAX), now), full);
        assert_eq!(assembly.push(&part(0), now), Ok(Assembled::Incomplete));
        assembly.drop_expired(now + PART_WAIT);
        assert!(assembly.incomplete.is_empty());
    }

    #[test]
    fn incomplete_requests_expire_and_are_bounded() {
        let now = start();
        let mut assembly = PartAssembly::default();
        let mut handle = 0;
        let full = loop {
            handle += 1;
            let parts = long_run(handle, 1).encode_parts().unwrap();
            if let Err(full) = assembly.push(&parts[0], now) {
                break full;
            }
        };
        assert_eq!(full, MessageError::TooMany("bytes", ASSEMBLY_BYTES_MAX));
        assert!(assembly.bytes() <= ASSEMBLY_BYTES_MAX);
        let parts = long_run(handle, 1).encode_parts().unwrap();
        let later = assembly.push(&parts[0], now + PART_WAIT);
        assert_eq!(later, Ok(Assembled::Incomplete));
        assert_eq!(assembly.bytes(), PART_BYTES_MAX);
    }
}
