//! A stream whose owner is gone: the messages of its subject, read on NATS, and the claim that takes it over.

use super::jet_stream::JetStreamRecords;
use super::store::{LastMessage, PublishOutcome};
use crate::messages::{MessageError, RecordsHead};
use crate::names::InstanceId;
use bytes::Bytes;
use journal::{
    Record, RecordAddress, RecoveredClaim, RecoveredStream, RemoteRecords, RemoteStream,
    ReplayError, encode_record,
};
use std::time::Duration;

/// Attempts while JetStream gives no clear answer.
const ATTEMPTS_MAX: usize = 20;
/// Pause between them.
const PAUSE: Duration = Duration::from_millis(250);

/// A stream that this instance owns now.
#[derive(Clone, Debug)]
pub struct ClaimedStream {
    /// Everything that is recorded of the stream.
    pub stream: RecoveredStream,
    /// The place for further records.
    pub place: ClaimedPlace,
}

/// Outcome of a claim.
#[derive(Clone, Debug)]
pub enum ClaimOutcome {
    /// This instance owns the stream.
    Claimed(Box<ClaimedStream>),
    /// The subject has no messages: the stream is unknown, or its retention is over.
    Unknown,
    /// Another instance owns the stream, or may not be replaced.
    OwnedBy(LastMessage),
}

impl JetStreamRecords {
    /// Takes a stream over if `may_replace` agrees with the last message's owner being replaced: an instance that is gone,
    /// or this one itself where it does not have the stream (a claim that was stored after it had been given up). The
    /// records take at most `bytes_max` of memory.
    ///
    /// # Errors
    /// JetStream gives no clear answer for several seconds, or the records cannot be read.
    pub async fn claim(
        &self,
        id: u128,
        instance: InstanceId,
        bytes_max: usize,
        may_replace: impl Fn(&LastMessage, &RecoveredStream) -> bool,
    ) -> Result<ClaimOutcome, String> {
        let mut reason = String::new();
        for _ in 0..ATTEMPTS_MAX {
            let messages = match self.read_subject(id).await {
                Ok(messages) => messages,
                Err(why) => {
                    reason = why;
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            };
            let plan = ClaimPlan::new(id, &messages, instance, bytes_max);
            let Some(plan) = plan.map_err(|why| why.to_string())? else {
                return Ok(ClaimOutcome::Unknown);
            };
            if !may_replace(&plan.last, &plan.stream) {
                return Ok(ClaimOutcome::OwnedBy(plan.last));
            }
            match self.publish_claim(id, &plan).await {
                Ok(Some(place)) => {
                    self.announce(id, place.generation).await;
                    let stream = plan.stream;
                    let claimed = ClaimedStream { stream, place };
                    return Ok(ClaimOutcome::Claimed(Box::new(claimed)));
                }
                // The subject has grown: it is read again.
                Ok(None) => {}
                Err(why) => {
                    reason = why;
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
        Err(format!("the stream cannot be claimed: {reason}"))
    }

    /// `None`: another message came first.
    async fn publish_claim(
        &self,
        id: u128,
        plan: &ClaimPlan,
    ) -> Result<Option<ClaimedPlace>, String> {
        let expected = plan.last.sequence;
        match self.publish(id, expected, plan.payload.clone()).await {
            PublishOutcome::Stored(sequence) => return Ok(Some(plan.place(sequence))),
            PublishOutcome::Busy(wait) => {
                tokio::time::sleep(wait).await;
                return Err("JetStream has no room".to_owned());
            }
            PublishOutcome::WrongSequence | PublishOutcome::Unknown => {}
        }
        // A claim that was stored without an answer, or late, is the last message.
        let mut reason = String::new();
        for _ in 0..ATTEMPTS_MAX {
            match self.last_message(id).await {
                Ok(Some(last)) if plan.is_claim(last.head) => {
                    return Ok(Some(plan.place(last.sequence)));
                }
                Ok(_) => return Ok(None),
                Err(why) => reason = why,
            }
            tokio::time::sleep(PAUSE).await;
        }
        Err(reason)
    }
}

/// Reason of a claim: the stream's owner is gone.
pub const CLAIM_TAKEOVER: u32 = 2;

/// A message of a subject.
#[derive(Clone, Debug)]
pub struct SubjectMessage {
    /// Sequence in JetStream.
    pub sequence: u64,
    /// Head and records.
    pub payload: Bytes,
}

/// Why a stream cannot be claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClaimError {
    /// A message cannot be read, or is of a newer version.
    #[error("{0}")]
    Message(MessageError),
    /// The records are no stream that this version can read.
    #[error("{0}")]
    Records(ReplayError),
}

/// The place after a claim, for the replicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClaimedPlace {
    /// The new generation.
    pub generation: u64,
    /// Sequence of the claim.
    pub sequence: u64,
    /// Handle of the stored records.
    pub handle: u64,
}

/// A stream as its subject has it, and the message that claims it.
#[derive(Clone, Debug)]
pub struct ClaimPlan {
    /// The stream before the claim.
    pub stream: RecoveredStream,
    /// The last message: the owner so far, and the sequence that the claim expects.
    pub last: LastMessage,
    /// The claim.
    pub payload: Bytes,
    head: RecordsHead,
}

impl ClaimPlan {
    /// A claim by `instance` of the stream with all these messages of its subject, which take at most `bytes_max` of memory.
    /// `None`: the subject has no messages.
    ///
    /// # Errors
    /// The messages are no stream that can be read.
    pub fn new(
        id: u128,
        messages: &[SubjectMessage],
        instance: InstanceId,
        bytes_max: usize,
    ) -> Result<Option<Self>, ClaimError> {
        let mut records = RemoteRecords::new(bytes_max);
        let mut last: Option<LastMessage> = None;
        for message in messages {
            let decoded = RecordsHead::decode(&message.payload);
            let (head, body) = decoded.map_err(ClaimError::Message)?;
            let continues = last.is_some_and(|last| {
                head.has_owner_of(last.head) && head.number == last.head.number + 1
            });
            records.push_message(body, continues);
            let sequence = message.sequence;
            last = Some(LastMessage { sequence, head });
        }
        let Some(last) = last else {
            return Ok(None);
        };
        let found = records.finish(id).map_err(ClaimError::Records)?;
        let RemoteStream { stream, next } = found;
        let head = RecordsHead {
            generation: last.head.generation + 1,
            instance,
            number: 1,
            handle: next.handle,
            key: last.head.key,
        };
        let claim = claimed(&stream, head);
        Ok(Some(Self {
            payload: encode_claim(head, next, claim),
            stream,
            last,
            head,
        }))
    }

    /// Whether this message is the claim.
    pub fn is_claim(&self, head: RecordsHead) -> bool {
        head.has_owner_of(self.head)
    }

    /// The place after the claim was stored with this sequence.
    pub fn place(&self, sequence: u64) -> ClaimedPlace {
        ClaimedPlace {
            generation: self.head.generation,
            sequence,
            handle: self.head.handle,
        }
    }
}

/// The claim as a record: the count of attempts on engines continues.
fn claimed(stream: &RecoveredStream, head: RecordsHead) -> RecoveredClaim {
    let before = stream.claim;
    RecoveredClaim {
        generation: head.generation,
        instance: head.instance.0,
        attempt: before.map_or(0, |claim| claim.attempt),
        why: CLAIM_TAKEOVER,
        tokens: before.map_or(0, |claim| claim.tokens),
        boot: 0,
    }
}

fn encode_claim(head: RecordsHead, next: RecordAddress, claim: RecoveredClaim) -> Bytes {
    let mut payload = Vec::new();
    head.encode_into(&mut payload);
    let record = Record::Claimed {
        generation: claim.generation,
        instance: claim.instance,
        attempt: claim.attempt,
        why: claim.why,
        tokens: claim.tokens,
    };
    let encoded = encode_record(&mut payload, next, &record);
    debug_assert!(encoded.is_ok(), "the record has no part with a bound");
    payload.into()
}
