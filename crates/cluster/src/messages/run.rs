//! A request for an engine: the record of the request and the tokens so far, in parts where the prompt is long, and the
//! engine's answers.

use super::control::update_list;
use super::encoding::{
    InstanceNumber, at_most, byte_string, decode_message, push_bounded, push_message,
};
use super::{ContentIdentity, MESSAGE_BYTES_MAX, MessageError};
use crate::names::InstanceId;
use engine::{CHOICES_MAX, RequestUpdate, UPDATES_MAX};
use serde::{Deserialize, Serialize, Serializer};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Bytes of a request: a record of 16 MiB, and tokens.
pub const RUN_BYTES_MAX: usize = 24 << 20;
/// Bytes of names and digests.
const TEXT_BYTES_MAX: usize = 512;

/// A choice so far.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunChoice {
    /// Ids of all items of the token log.
    pub ids: Vec<u32>,
    /// Whether the choice has ended, so that nothing is computed for it.
    pub has_ended: bool,
}

/// A request for an engine, new or continued after another engine's death.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The gateway's number of the request.
    pub handle: u64,
    /// How often the gateway placed the request, from 1 on.
    pub attempt: u32,
    /// The gateway, which gets the tokens.
    #[serde(with = "InstanceNumber")]
    pub gateway: InstanceId,
    /// Name of the model.
    pub model_key: String,
    /// Content of the model: an engine with another one rejects the request.
    pub identity: ContentIdentity,
    /// The request as [`generate::remote_request::RemoteRequest`] in JSON.
    #[serde(with = "byte_string")]
    pub request: Vec<u8>,
    /// The choices, at most [`CHOICES_MAX`].
    #[serde(deserialize_with = "at_most::<_, _, CHOICES_MAX>")]
    pub choices: Vec<RunChoice>,
    /// Control updates in effect since the record was made, in order. Their injected tokens are among the tokens so far.
    #[serde(with = "update_list")]
    pub updates: Vec<RequestUpdate>,
    /// Time until the request has to be done, milliseconds.
    pub deadline_ms: Option<u64>,
    /// Time since the request arrived, milliseconds.
    pub age_ms: u64,
    /// Whether the request is paused.
    pub is_paused: bool,
}

impl Run {
    /// All bytes, for [`super::run`].
    pub(super) fn encode(&self) -> Result<Vec<u8>, MessageError> {
        if self.choices.len() > CHOICES_MAX {
            return Err(MessageError::TooMany("choices", CHOICES_MAX));
        }
        if self.updates.len() > UPDATES_MAX {
            return Err(MessageError::TooMany("updates", UPDATES_MAX));
        }
        self.check_names()?;
        let mut out = Vec::new();
        push_bounded(&mut out, self, RUN_BYTES_MAX)?;
        Ok(out)
    }

    /// The request of these bytes.
    pub(super) fn decode(message: &[u8]) -> Result<Self, MessageError> {
        let run: Self = decode_message(message, "request", RUN_BYTES_MAX)?;
        run.check_names()?;
        Ok(run)
    }

    fn check_names(&self) -> Result<(), MessageError> {
        let mut names = self.identity.parts().into_iter().chain([&*self.model_key]);
        if names.any(|name| name.len() > TEXT_BYTES_MAX) {
            return Err(MessageError::TooMany("bytes of a name", TEXT_BYTES_MAX));
        }
        Ok(())
    }
}

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

/// Bytes of the message of a rejection.
const REJECTION_BYTES_MAX: usize = 1024;

/// Why an engine rejects a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Rejection {
    /// No room: another engine, or this one later.
    Full,
    /// The engine shuts down.
    Leaving,
    /// The engine does not serve the model.
    UnknownModel,
    /// The engine's model has other content.
    OtherContent,
    /// The request cannot be read, or no engine of this version can run it.
    Invalid,
}

/// The answer to one part of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RunReply {
    /// The part was kept; others are missing.
    Received,
    /// The request is complete and submitted.
    Accepted,
    /// The request is not run.
    Rejected {
        /// The reason.
        code: Rejection,
        /// For the log.
        #[serde(serialize_with = "cut")]
        message: String,
    },
}

impl RunReply {
    /// Bytes. A message of a rejection is cut to 1,024 bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        push_message(&mut out, self);
        out
    }

    /// The answer of these bytes.
    ///
    /// # Errors
    /// The bytes are no answer, or one of another version.
    pub fn decode(message: &[u8]) -> Result<Self, MessageError> {
        let reply = decode_message(message, "answer", MESSAGE_BYTES_MAX)?;
        match &reply {
            Self::Rejected { message, .. } if message.len() > REJECTION_BYTES_MAX => Err(
                MessageError::TooMany("bytes of a message", REJECTION_BYTES_MAX),
            ),
            _ => Ok(reply),
        }
    }
}

fn cut<S: Serializer>(message: &str, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&message[..message.floor_char_boundary(REJECTION_BYTES_MAX)])
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::VERSION;
    use super::super::control::tests::updates;
    use super::super::encoding::tests::assert_checked;
    use super::super::encoding::{push_bounded, push_message};
    use super::*;
    use proptest::prelude::*;

    pub(in super::super) fn runs() -> impl Strategy<Value = Run> {
        let ids = proptest::collection::vec(any::<u32>(), 0..9);
        let choice = (ids, any::<bool>()).prop_map(|(ids, has_ended)| RunChoice { ids, has_ended });
        let choices = proptest::collection::vec(choice, 0..4);
        let updates = proptest::collection::vec(updates(), 0..3);
        let numbers = (any::<u64>(), any::<u32>(), any::<u64>(), any::<bool>());
        let request = proptest::collection::vec(any::<u8>(), 0..50);
        let deadline = proptest::option::of(0..u64::MAX);
        (numbers, choices, updates, request, deadline).prop_map(
            |((handle, attempt, gateway, is_paused), choices, updates, request, deadline_ms)| Run {
                handle,
                attempt,
                gateway: InstanceId(gateway),
                model_key: "model".into(),
                identity: ContentIdentity {
                    tokenizer: "5a".into(),
                    ..ContentIdentity::default()
                },
                request,
                choices,
                updates,
                deadline_ms,
                age_ms: handle,
                is_paused,
            },
        )
    }

    proptest! {
        #[test]
        fn requests_are_read_back_and_other_bytes_are_checked(run in runs()) {
            let message = run.encode().unwrap();
            assert_checked(&message, Run::decode, Run::encode);
            prop_assert_eq!(Run::decode(&message), Ok(run));
        }
    }

    #[test]
    fn parts_above_their_bounds_are_neither_encoded_nor_decoded() {
        let rows = [
            Run {
                choices: vec![RunChoice::default(); CHOICES_MAX + 1],
                ..Run::default()
            },
            Run {
                updates: vec![RequestUpdate::default(); UPDATES_MAX + 1],
                ..Run::default()
            },
            Run {
                model_key: "x".repeat(TEXT_BYTES_MAX + 1),
                ..Run::default()
            },
            Run {
                request: vec![0; RUN_BYTES_MAX],
                ..Run::default()
            },
        ];
        for run in rows {
            assert!(matches!(run.encode(), Err(MessageError::TooMany(..))));
            let mut message = Vec::new();
            push_message(&mut message, &run);
            assert!(Run::decode(&message).is_err());
        }
    }

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

    #[test]
    fn answers_are_read_back_and_other_bytes_are_checked() {
        let codes = [
            Rejection::Full,
            Rejection::Leaving,
            Rejection::UnknownModel,
            Rejection::OtherContent,
            Rejection::Invalid,
        ];
        let rejected = codes.map(|code| RunReply::Rejected {
            code,
            message: "größer".into(),
        });
        for reply in [RunReply::Received, RunReply::Accepted]
            .into_iter()
            .chain(rejected)
        {
            let bytes = reply.encode();
            assert_eq!(RunReply::decode(&bytes), Ok(reply));
            assert_checked(&bytes, RunReply::decode, |reply| Ok(reply.encode()));
        }
    }

    #[test]
    fn long_messages_are_cut_between_characters() {
        let reply = RunReply::Rejected {
            code: Rejection::Invalid,
            message: format!("x{}", "ä".repeat(REJECTION_BYTES_MAX)),
        };
        let Ok(RunReply::Rejected { message, .. }) = RunReply::decode(&reply.encode()) else {
            panic!("not read back");
        };
        assert_eq!(message.len(), REJECTION_BYTES_MAX - 1);
        let mut long = Vec::new();
        push_message(
            &mut long,
            &(2_u8, Rejection::Full, "x".repeat(REJECTION_BYTES_MAX + 1)),
        );
        let too_many = MessageError::TooMany("bytes of a message", REJECTION_BYTES_MAX);
        assert_eq!(RunReply::decode(&long), Err(too_many));
    }

    proptest! {
        #[test]
        fn any_bytes_are_an_answer_or_an_error(mut bytes: Vec<u8>) {
            let _ = RunReply::decode(&bytes);
            if let Some(first) = bytes.first_mut() {
                *first = VERSION;
                let _ = RunReply::decode(&bytes);
            }
        }
    }
}
