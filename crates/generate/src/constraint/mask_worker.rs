//! Token bitmasks: one bit for each token that may come next, computed while the model computes.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use text::GrammarMatcher;

/// Grammar states that may wait for their masks; the masks of others are computed when needed.
const WAITING_MAX: usize = 256;

/// The thread that computes masks, started when first needed.
#[derive(Default)]
pub(crate) struct MaskWorker {
    queue: OnceLock<Option<SyncSender<Arc<GrammarState>>>>,
}

/// The state of one answer in a grammar.
pub(crate) struct GrammarState(Mutex<Step>);

struct Step {
    matcher: GrammarMatcher,
    /// Mask of the next token, if present.
    mask: Vec<u32>,
    is_there: bool,
    /// The grammar cannot continue.
    broken: bool,
}

impl MaskWorker {
    /// A constraint at the beginning of an answer, over a vocabulary of this size.
    pub(crate) fn start(
        self: &Arc<Self>,
        matcher: GrammarMatcher,
        vocab: usize,
    ) -> GrammarConstraint {
        let forced: Vec<_> = matcher.forced_tokens().collect();
        let walk = Arc::new(GrammarState(Mutex::new(Step {
            matcher,
            mask: vec![0; vocab.div_ceil(32)],
            is_there: false,
            broken: false,
        })));
        self.request_mask(&walk);
        GrammarConstraint {
            walk,
            masks: Arc::clone(self),
            needs_mask: forced.is_empty(),
            forced,
        }
    }

    fn request_mask(&self, walk: &Arc<GrammarState>) {
        let queue = self.queue.get_or_init(|| {
            let (sender, receiver) = sync_channel(WAITING_MAX);
            let thread = std::thread::Builder::new().name("masks".into());
            let started = thread.spawn(move || compute_masks(&receiver));
            started.is_ok().then_some(sender)
        });
        if let Some(queue) = queue {
            // Queue full: the engine computes the mask.
            let _ = queue.try_send(Arc::clone(walk));
        }
    }
}

fn compute_masks(walks: &Receiver<Arc<GrammarState>>) {
    while let Ok(walk) = walks.recv() {
        // The last reference: the answer is over.
        if Arc::strong_count(&walk) > 1 {
            walk.lock_step().compute_mask();
        }
    }
}

impl GrammarState {
    fn lock_step(&self) -> MutexGuard<'_, Step> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Step {
    /// Computes the mask unless present.
    fn compute_mask(&mut self) {
        if self.is_there || self.broken {
            return;
        }
        self.mask.fill(0);
        match self.matcher.mask(&mut self.mask) {
            Ok(()) => self.is_there = true,
            Err(error) => self.give_up(&error),
        }
    }

    /// Allows nothing from now on, which ends the answer.
    fn give_up(&mut self, error: &text::MatcherError) {
        tracing::warn!(why = error.0, "an answer cannot continue in its grammar");
        self.broken = true;
        self.mask.fill(0);
    }
}

/// The engine's side of a grammar state.
pub(crate) struct GrammarConstraint {
    walk: Arc<GrammarState>,
    masks: Arc<MaskWorker>,
    /// Forced tokens, kept so that a query does not wait for a mask.
    forced: Vec<u32>,
    /// Whether the next token is neither forced nor excluded.
    needs_mask: bool,
}

impl GrammarConstraint {
    /// Accepts tokens without a request for the next mask.
    pub(crate) fn advance(&mut self, tokens: &[u32]) {
        let mut step = self.walk.lock_step();
        step.is_there = false;
        for &token in tokens {
            if let Err(error) = step.matcher.accept(token) {
                step.give_up(&error);
            }
        }
        self.forced.clear();
        let is_over = step.broken || step.matcher.is_complete();
        if !is_over {
            self.forced.extend(step.matcher.forced_tokens());
        }
        self.needs_mask = !is_over && self.forced.is_empty();
    }

    /// Requests the mask of the next token, where the next token is not forced.
    pub(crate) fn prepare_mask(&self) {
        if self.needs_mask {
            self.masks.request_mask(&self.walk);
        }
    }
}

impl engine::Constraint for GrammarConstraint {
    fn mask(&mut self, allowed: &mut [u32]) -> bool {
        let mut step = self.walk.lock_step();
        step.compute_mask();
        for (allowed, mask) in allowed.iter_mut().zip(&step.mask) {
            *allowed = *mask;
        }
        true
    }

    fn accept(&mut self, token: u32) {
        self.replay(&[token]);
    }

    fn replay(&mut self, tokens: &[u32]) {
        if !tokens.is_empty() {
            self.advance(tokens);
            self.prepare_mask();
        }
    }

    fn is_complete(&self) -> bool {
        self.walk.lock_step().matcher.is_complete()
    }

    fn forced(&self, most: usize, into: &mut Vec<u32>) {
        into.extend(self.forced.iter().take(most));
    }
}

/// Allows a token.
pub(crate) fn set(allowed: &mut [u32], id: u32) {
    if let Some(word) = allowed.get_mut(id as usize / 32) {
        *word |= 1 << (id % 32);
    }
}

/// Forbids a token.
pub(crate) fn clear(allowed: &mut [u32], id: u32) {
    if let Some(word) = allowed.get_mut(id as usize / 32) {
        *word &= !(1 << (id % 32));
    }
}

/// Whether a token is allowed.
pub(crate) fn has(allowed: &[u32], id: u32) -> bool {
    allowed
        .get(id as usize / 32)
        .is_some_and(|word| word >> (id % 32) & 1 == 1)
}
