//! A request between the caller's thread and the scheduler.

use crate::embedding::EmbeddingPool;
use crate::fair_share::FairShareKey;
use crate::prefix_index::{PrefixChain, PrefixRoot};
use crate::request_state::{ObservedState, RequestState};
use crate::sequence::{Sequence, SequenceLimits};
use crate::sequence_permits::PermitState;
use crate::{Request, RequestId};
use std::sync::Arc;

/// A request on its way to the scheduler. All memory that the engine thread needs for the request is
/// allocated here, on the caller's thread.
pub(crate) struct SubmittedRequest {
    pub(crate) state: RequestState,
    /// In choice order.
    pub(crate) sequences: Vec<Sequence>,
    /// The record for an engine of another process.
    pub(crate) remote: Option<Arc<[u8]>>,
}

impl SubmittedRequest {
    pub(crate) fn new(
        request: Request,
        id: RequestId,
        slot: usize,
        limits: SequenceLimits,
    ) -> Self {
        let prompt = request.prompt;
        let open_choices = request.choices.len();
        let root = PrefixRoot {
            salt: request.terms.salt,
            adapters: request.adapters,
        };
        let first_choice = request.first_choice;
        let mut sequences: Vec<_> = request
            .choices
            .into_iter()
            .enumerate()
            .map(|(i, choice)| {
                let mut sequence = Sequence::new(choice, i, slot, &prompt, limits);
                (sequence.root, sequence.chain) = (root, PrefixChain::Start(root));
                sequence.choice = first_choice.saturating_add(i as u32);
                sequence
            })
            .collect();
        if request.permits.is_none() {
            sequences
                .iter_mut()
                .for_each(|s| s.permit = PermitState::Held);
        }
        if let Some(sequence) = sequences.first_mut() {
            let embedding = request.embedding;
            sequence.pool = embedding.map(|embedding| Box::new(EmbeddingPool::new(embedding)));
        }
        let state = RequestState {
            id,
            slot,
            sampling: request.sampling,
            eos: request.eos,
            deadline: request.deadline,
            credit_window: request.credit_window,
            progress: request.progress,
            permits: request.permits,
            held: request.held,
            prompt_tokens: prompt.len(),
            open_choices,
            has_token: false,
            tokens_max: open_choices * (prompt.len() + limits.max_new_tokens),
            account: request.terms.account,
            clocks: request.terms.clocks,
            policy: request.terms.policy,
            since: request.terms.since,
            fair_share: FairShareKey::unassigned(request.terms.priority),
            arrived_ns: 0,
            clock_start_ns: 0,
            update_waits: false,
            paused: false,
            paused_ns: 0,
            observed: ObservedState::Running,
        };
        Self {
            state,
            sequences,
            remote: request.remote,
        }
    }

    /// Position in arrival order.
    pub(crate) fn age(&self) -> crate::request_id::Age {
        self.sequences[0].age
    }

    /// Whether the request may be started: neither paused nor without a permit.
    pub(crate) fn can_start(&self) -> bool {
        !self.state.paused && self.sequences[0].permit == PermitState::Held
    }

    /// Sets the queue number of all choices.
    pub(crate) fn set_queue_number(&mut self, number: u64) {
        for sequence in &mut self.sequences {
            sequence.age.0 = number;
        }
    }
}
