//! A stream whose owner is gone, read and claimed on NATS.

use super::claim_plan::{ClaimPlan, ClaimedPlace};
use super::jet_stream::JetStreamRecords;
use super::store_request::{LastMessage, PublishOutcome};
use crate::names::InstanceId;
use journal::RecoveredStream;
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
