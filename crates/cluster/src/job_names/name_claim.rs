//! One request that wants a name.

use super::name_store::NameStore;
use super::record::NameRecord;
use crate::names::InstanceId;
use crate::records::PublishOutcome;
use std::time::Duration;

/// Attempts while others claim the same name.
const ATTEMPTS_MAX: usize = 5;
/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(50);

/// Answers of the other gateways about a name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NameAnswers {
    /// Whether one of them has a job of the name.
    pub is_used: bool,
    /// Those at which a request has reserved the name.
    pub reserved_at: Vec<InstanceId>,
    /// Those that have answered.
    pub answered: Vec<InstanceId>,
    /// Living gateways without an answer, in words.
    pub unanswered: Option<String>,
}

/// The other gateways, for one name.
pub trait OtherGateways {
    /// Asks all living gateways.
    fn ask(&self) -> impl Future<Output = NameAnswers> + Send;

    /// Whether an instance is gone for certain.
    fn is_gone(&self, instance: InstanceId) -> bool;

    /// Whether a stream has records, so that it will be taken over.
    ///
    /// # Errors
    /// The store does not answer.
    fn has_records(&self, stream: u128) -> impl Future<Output = Result<bool, String>> + Send;
}

/// Why a request does not get a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NameRefusal {
    /// There is a job of the name, or another request gets it.
    Taken,
    /// Not known at the moment, for this reason.
    Unclear(String),
}

/// A name that the request has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClaimedName {
    /// Sequence of the record; `None` without a store.
    sequence: Option<u64>,
}

/// One request that wants a name, which is reserved at this gateway.
pub struct NameClaim<S, G> {
    /// This gateway.
    pub own: InstanceId,
    /// Number of the claim, drawn for each.
    pub claim: u64,
    /// The records of the name; `None` in a cluster without JetStream.
    pub store: Option<S>,
    /// The other gateways.
    pub others: G,
}

impl<S: NameStore + Sync, G: OtherGateways + Sync> NameClaim<S, G> {
    /// Claims the name.
    ///
    /// # Errors
    /// The name is taken, or that is not known.
    pub async fn claim(&self) -> Result<ClaimedName, NameRefusal> {
        for attempt in 0..ATTEMPTS_MAX {
            if attempt > 0 {
                tokio::time::sleep(PAUSE).await;
            }
            let sequence = match &self.store {
                Some(store) => self.claim_in_store(store).await?.map(Some),
                None => self.claim_by_asking().await?.then_some(None),
            };
            if let Some(sequence) = sequence {
                return Ok(ClaimedName { sequence });
            }
        }
        let why = "other requests claim the name at the same time";
        Err(NameRefusal::Unclear(why.to_owned()))
    }

    /// Notes the stream of the job. False: another request has the name, since this gateway was regarded as gone.
    pub async fn confirm(&self, claimed: ClaimedName, stream: u128) -> bool {
        let (Some(store), Some(expected)) = (&self.store, claimed.sequence) else {
            return true;
        };
        let record = self.record(Some(stream));
        match store.publish(expected, &record).await {
            PublishOutcome::WrongSequence | PublishOutcome::Unknown => match store.last().await {
                Ok(Some((_, last))) => self.is_own(&last),
                // Without an answer, and in a store that was made again, the job stays: the name is used here.
                Ok(None) | Err(_) => true,
            },
            PublishOutcome::Stored(_) | PublishOutcome::Busy(_) => true,
        }
    }

    /// `None`: others claim the name at the same time.
    async fn claim_in_store(&self, store: &S) -> Result<Option<u64>, NameRefusal> {
        let last = store.last().await.map_err(NameRefusal::Unclear)?;
        if let Some((sequence, last)) = &last
            && self.is_own(last)
        {
            // Stored late, or without an answer.
            return Ok(Some(*sequence));
        }
        if let Some((_, last)) = &last {
            self.expect_unused(last).await?;
        } else {
            self.ask().await?;
        }
        let expected = last.map_or(0, |(sequence, _)| sequence);
        match store.publish(expected, &self.record(None)).await {
            PublishOutcome::Stored(sequence) => Ok(Some(sequence)),
            PublishOutcome::WrongSequence | PublishOutcome::Unknown => Ok(None),
            PublishOutcome::Busy(_) => {
                Err(NameRefusal::Unclear("JetStream has no room".to_owned()))
            }
        }
    }

    /// Whether nobody uses the name, and the claim of the last record has ended.
    async fn expect_unused(&self, last: &NameRecord) -> Result<(), NameRefusal> {
        let holder = last.holder;
        let is_gone = holder != self.own && self.others.is_gone(holder);
        // Before the question: a job that is taken over meanwhile is seen by the one or the other.
        if let Some(stream) = last.stream.filter(|_| is_gone) {
            let has_records = self.others.has_records(stream).await;
            if has_records.map_err(NameRefusal::Unclear)? {
                let why = "the job of this name is being taken over from a gateway that is gone";
                return Err(NameRefusal::Unclear(why.to_owned()));
            }
        }
        let answers = self.ask().await?;
        if answers.reserved_at.contains(&holder) {
            return Err(NameRefusal::Taken);
        }
        // This gateway has the name reserved for this request alone.
        if holder == self.own || is_gone || answers.answered.contains(&holder) {
            return Ok(());
        }
        let why = format!("the gateway {holder}, which had the name before, is silent");
        Err(NameRefusal::Unclear(why))
    }

    /// False: others claim the name at the same time.
    async fn claim_by_asking(&self) -> Result<bool, NameRefusal> {
        let answers = self.ask().await?;
        match answers.reserved_at.iter().min() {
            None => Ok(true),
            Some(lowest) if *lowest < self.own => Err(NameRefusal::Taken),
            Some(_) => Ok(false),
        }
    }

    async fn ask(&self) -> Result<NameAnswers, NameRefusal> {
        let answers = self.others.ask().await;
        if answers.is_used {
            return Err(NameRefusal::Taken);
        }
        match answers.unanswered {
            Some(why) => Err(NameRefusal::Unclear(why)),
            None => Ok(answers),
        }
    }

    fn record(&self, stream: Option<u128>) -> NameRecord {
        NameRecord {
            holder: self.own,
            claim: self.claim,
            stream,
        }
    }

    fn is_own(&self, record: &NameRecord) -> bool {
        (record.holder, record.claim) == (self.own, self.claim)
    }
}
