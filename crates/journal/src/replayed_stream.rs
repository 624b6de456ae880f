//! One stream while records are replayed, and the bound of the memory that a recovery uses.

use crate::record::{CHOICES_MAX, Open, Record, Tokens};
use crate::recovered_stream::{
    Integrity, LossReason, RecoveredChoice, RecoveredClaim, RecoveredStart, RecoveredStream,
};
use crate::stream_table::StreamKey;

/// Memory of one stream without vectors, with a share of a hash table that is half empty.
pub(crate) const ENTRY_BYTES: usize = 1024;

const _: () = assert!(2 * size_of::<ReplayedStream>() <= ENTRY_BYTES);

/// State of one handle.
#[derive(Debug, Default)]
pub(crate) struct ReplayedStream {
    pub(crate) id: u128,
    pub(crate) version: u32,
    /// Handle of the copy that this one replaces, until that one is forgotten as rewritten.
    pub(crate) replaces: u64,
    /// Handle of the version that this one has replaced.
    pub(crate) replaced: u64,
    pub(crate) next_sequence: u64,
    pub(crate) base: u64,
    pub(crate) bytes: u64,
    pub(crate) last_frame: u64,
    pub(crate) held: usize,
    pub(crate) boot: u64,
    pub(crate) description: Vec<u8>,
    pub(crate) started: Option<RecoveredStart>,
    pub(crate) choices: Vec<RecoveredChoice>,
    pub(crate) has_sampling: bool,
    pub(crate) sampling: Vec<u8>,
    pub(crate) is_paused: bool,
    pub(crate) broke: Option<u32>,
    pub(crate) claim: Option<RecoveredClaim>,
    pub(crate) has_prepared: bool,
    pub(crate) prepared: Vec<u8>,
    pub(crate) has_outcome: bool,
    pub(crate) outcome: Vec<u8>,
    pub(crate) integrity: Integrity,
    /// Kinds, lengths and bodies of a stream of a newer version.
    pub(crate) refused: Vec<u8>,
}

impl ReplayedStream {
    pub(crate) fn new(open: &Open<'_>, boot: u64) -> Self {
        Self {
            id: open.id,
            version: open.version,
            replaces: open.replaces,
            boot,
            ..Self::default()
        }
    }

    /// The stream as it was rebuilt, with the key of a writer.
    pub(crate) fn into_recovered(self, key: StreamKey) -> RecoveredStream {
        RecoveredStream {
            key,
            id: self.id,
            description: self.description,
            boot: self.boot,
            started: self.started,
            choices: self.choices,
            sampling: self.has_sampling.then_some(self.sampling),
            is_paused: self.is_paused,
            broke: self.broke,
            claim: self.claim,
            prepared: self.has_prepared.then_some(self.prepared),
            outcome: self.has_outcome.then_some(self.outcome),
            integrity: self.integrity,
        }
    }

    pub(crate) fn lose(&mut self, reason: LossReason) {
        if !matches!(self.integrity, Integrity::Lost(_)) {
            self.integrity = Integrity::Lost(reason);
        }
    }

    /// Drops the text, which may be another one than a later process told.
    pub(crate) fn drop_text(&mut self) {
        self.lose(LossReason::Hole);
        (self.choices, self.outcome, self.has_outcome) = (Vec::new(), Vec::new(), false);
    }

    pub(crate) fn set_description(&mut self, bytes: &[u8], budget: &mut MemoryBudget) {
        let taken = budget.replace(&mut self.description, bytes, &mut self.held);
        if taken.is_none() {
            self.lose(LossReason::Memory);
        }
    }

    pub(crate) fn push_refused(&mut self, bytes: &[u8], budget: &mut MemoryBudget) {
        let taken = budget.extend(&mut self.refused, bytes, &mut self.held);
        if taken.is_none() {
            self.lose(LossReason::Memory);
        }
    }

    /// Applies a record other than those of beginning and forgetting. Ends count for lost streams, too.
    pub(crate) fn apply(&mut self, record: &Record<'_>, boot: u64, budget: &mut MemoryBudget) {
        match *record {
            Record::Tokens(tokens) => {
                if let Err(reason) = self.append_tokens(&tokens, budget) {
                    self.lose(reason);
                }
            }
            Record::Started {
                cached_tokens,
                at_unix_us,
            } => {
                self.started = Some(RecoveredStart {
                    cached_tokens,
                    at_unix_us,
                    boot,
                });
            }
            Record::Steered { sampling } => {
                self.has_sampling = true;
                self.replace_part(|stream| &mut stream.sampling, sampling, budget);
            }
            Record::Paused { on } => self.is_paused = on,
            Record::Broke { choice } => self.broke = self.broke.or(Some(choice)),
            Record::Ended {
                choice,
                end,
                at_unix_us,
            } => {
                let found = self.choice_mut(choice, budget);
                let taken = found.map(|choice| choice.end = Some((end, at_unix_us)));
                self.check_memory(taken);
            }
            Record::Claimed {
                generation,
                instance,
                attempt,
                why,
                tokens,
            } => {
                self.claim = Some(RecoveredClaim {
                    generation,
                    instance,
                    attempt,
                    why,
                    tokens,
                    boot,
                });
            }
            Record::Prepared { body } => {
                self.has_prepared = true;
                self.replace_part(|stream| &mut stream.prepared, body, budget);
            }
            Record::Kept { outcome } => {
                self.has_outcome = true;
                self.replace_part(|stream| &mut stream.outcome, outcome, budget);
            }
            Record::Gap => self.lose(LossReason::NotWritten),
            Record::Open(_) | Record::Forgotten { .. } | Record::Seal | Record::Unknown { .. } => {}
        }
    }

    fn replace_part(
        &mut self,
        part: fn(&mut Self) -> &mut Vec<u8>,
        bytes: &[u8],
        budget: &mut MemoryBudget,
    ) {
        let mut kept = std::mem::take(part(self));
        let taken = budget.replace(&mut kept, bytes, &mut self.held);
        *part(self) = kept;
        self.check_memory(taken);
    }

    fn check_memory(&mut self, taken: Option<()>) {
        if taken.is_none() {
            self.lose(LossReason::Memory);
        }
    }

    fn append_tokens(
        &mut self,
        tokens: &Tokens<'_>,
        budget: &mut MemoryBudget,
    ) -> Result<(), LossReason> {
        if let Integrity::Lost(reason) = self.integrity {
            return Err(reason);
        }
        let mut held = 0;
        let choice = self.choice_mut(tokens.choice, budget);
        let choice = choice.ok_or(LossReason::Memory)?;
        if tokens.first as usize != choice.ids.len() {
            return Err(LossReason::Contradiction);
        }
        let appended = append_to_choice(choice, tokens, budget, &mut held);
        self.held += held;
        appended.ok_or(LossReason::Memory)
    }

    fn choice_mut(
        &mut self,
        choice: u32,
        budget: &mut MemoryBudget,
    ) -> Option<&mut RecoveredChoice> {
        let count = (choice.min(CHOICES_MAX) + 1) as usize;
        if count > self.choices.len() {
            let bytes = (count - self.choices.len()) * size_of::<RecoveredChoice>();
            budget.take(bytes)?;
            self.held += bytes;
            self.choices.reserve_exact(count - self.choices.len());
            self.choices.resize_with(count, RecoveredChoice::default);
        }
        self.choices.get_mut(choice as usize)
    }
}

/// Appends all parts, or only the ids of a prefix where the memory is used up.
fn append_to_choice(
    choice: &mut RecoveredChoice,
    tokens: &Tokens<'_>,
    budget: &mut MemoryBudget,
    held: &mut usize,
) -> Option<()> {
    let before = choice.ids.len();
    if !tokens.logprobs.is_empty() {
        budget.pad(&mut choice.logprobs, before, f32::NAN, held)?;
        budget.extend(&mut choice.logprobs, tokens.logprobs, held)?;
    }
    if !tokens.alternatives.counts.is_empty() {
        budget.pad(&mut choice.alternative_counts, before, 0, held)?;
        budget.extend(&mut choice.alternatives, tokens.alternatives.items, held)?;
        budget.extend(
            &mut choice.alternative_counts,
            tokens.alternatives.counts,
            held,
        )?;
    }
    budget.extend(&mut choice.ids, tokens.ids, held)?;
    let after = choice.ids.len();
    if !choice.logprobs.is_empty() {
        budget.pad(&mut choice.logprobs, after, f32::NAN, held)?;
    }
    if !choice.alternative_counts.is_empty() {
        budget.pad(&mut choice.alternative_counts, after, 0, held)?;
    }
    Some(())
}

/// Memory that is left for rebuilt streams.
#[derive(Debug, Default)]
pub(crate) struct MemoryBudget {
    pub(crate) free: usize,
}

impl MemoryBudget {
    pub(crate) fn take(&mut self, bytes: usize) -> Option<()> {
        self.free = self.free.checked_sub(bytes)?;
        Some(())
    }

    /// Extends `vector` by `items` if their memory is within the budget; adds what was taken to `held`.
    pub(crate) fn extend<T: Copy>(
        &mut self,
        vector: &mut Vec<T>,
        items: &[T],
        held: &mut usize,
    ) -> Option<()> {
        let length = vector.len() + items.len();
        if length > vector.capacity() {
            let capacity = length.max(vector.len() + vector.len() / 2);
            let more = (capacity - vector.capacity()) * size_of::<T>();
            self.take(more)?;
            *held += more;
            vector.reserve_exact(capacity - vector.len());
        }
        vector.extend_from_slice(items);
        Some(())
    }

    pub(crate) fn replace(
        &mut self,
        vector: &mut Vec<u8>,
        bytes: &[u8],
        held: &mut usize,
    ) -> Option<()> {
        vector.clear();
        self.extend(vector, bytes, held)
    }

    /// Extends `vector` with `value` to `length`, if it is shorter.
    pub(crate) fn pad<T: Copy>(
        &mut self,
        vector: &mut Vec<T>,
        length: usize,
        value: T,
        held: &mut usize,
    ) -> Option<()> {
        while vector.len() < length {
            self.extend(vector, &[value], held)?;
        }
        Some(())
    }
}
