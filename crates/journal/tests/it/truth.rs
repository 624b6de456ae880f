//! What a stream's caller has in memory, and the comparison with a recovered stream.

use journal::{Alternative, Alternatives, Integrity, Record, RecoveredStream, Tokens};

/// Everything that a stream's caller has in memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct Truth {
    pub(crate) choices: Vec<Vec<u32>>,
    pub(crate) ends: Vec<Option<u32>>,
    pub(crate) with_logprobs: bool,
    pub(crate) prepared: Option<Vec<u8>>,
    pub(crate) sampling: Option<Vec<u8>>,
    /// All sampling parameters so far: a power loss may bring back earlier ones.
    pub(crate) sampling_history: Vec<Vec<u8>>,
    pub(crate) is_paused: bool,
    pub(crate) outcome: Option<Vec<u8>>,
    pub(crate) is_forgotten: bool,
    /// Tokens of each choice that had been committed.
    pub(crate) committed: Vec<usize>,
    /// Tokens of each choice that had been synced.
    pub(crate) synced: Vec<usize>,
    pub(crate) is_synced: bool,
}

impl Truth {
    pub(crate) fn add_choice(&mut self, choice: usize) {
        if self.choices.len() <= choice {
            self.choices.resize(choice + 1, Vec::new());
            self.ends.resize(choice + 1, None);
        }
    }

    pub(crate) fn lengths(&self) -> Vec<usize> {
        self.choices.iter().map(Vec::len).collect()
    }

    /// The records of the present state.
    pub(crate) fn replay(&self, mut append: impl FnMut(&Record<'_>)) {
        if let Some(body) = &self.prepared {
            append(&Record::Prepared { body });
        }
        if let Some(sampling) = &self.sampling {
            append(&Record::Steered { sampling });
        }
        if self.is_paused {
            append(&Record::Paused { on: true });
        }
        for choice in 0..self.choices.len() {
            append_tokens(self, choice, 0, |tokens| append(&Record::Tokens(tokens)));
        }
        for (choice, end) in self.ends.iter().enumerate() {
            if let Some(end) = *end {
                let (choice, at_unix_us) = (choice as u32, 7);
                append(&Record::Ended {
                    choice,
                    end,
                    at_unix_us,
                });
            }
        }
        if let Some(outcome) = &self.outcome {
            append(&Record::Kept { outcome });
        }
    }

    pub(crate) fn from_recovered(stream: &RecoveredStream) -> Self {
        Self {
            choices: stream
                .choices
                .iter()
                .map(|choice| choice.ids.clone())
                .collect(),
            ends: stream
                .choices
                .iter()
                .map(|choice| choice.end.map(|end| end.0))
                .collect(),
            with_logprobs: stream.id.is_multiple_of(3),
            prepared: stream.prepared.clone(),
            sampling: stream.sampling.clone(),
            sampling_history: Vec::new(),
            is_paused: stream.is_paused,
            outcome: stream.outcome.clone(),
            is_forgotten: false,
            committed: Vec::new(),
            synced: Vec::new(),
            is_synced: false,
        }
    }
}

/// Hands over the tokens of a choice from `first` on.
pub(crate) fn append_tokens(
    truth: &Truth,
    choice: usize,
    first: usize,
    append: impl FnOnce(Tokens<'_>),
) {
    let ids = &truth.choices[choice][first..];
    let count = if truth.with_logprobs { ids.len() } else { 0 };
    let logprobs: Vec<f32> = ids[..count].iter().map(|id| logprob_of(*id)).collect();
    let counts = vec![1; count];
    let alternative = |id: &u32| Alternative {
        id: id + 1,
        logprob: logprob_of(*id),
    };
    let items: Vec<Alternative> = ids[..count].iter().map(alternative).collect();
    append(Tokens {
        choice: choice as u32,
        first: first as u32,
        ids,
        logprobs: &logprobs,
        alternatives: Alternatives {
            counts: &counts,
            items: &items,
        },
    });
}

/// Fails on any token, log-probability, end or parameter that was never appended.
pub(crate) fn assert_is_prefix(stream: &RecoveredStream, truth: &Truth) {
    let id = stream.id;
    for (number, choice) in stream.choices.iter().enumerate() {
        let none = (Vec::new(), None);
        let (ids, end) = truth
            .choices
            .get(number)
            .map_or(none, |ids| (ids.clone(), truth.ends[number]));
        assert!(
            ids.starts_with(&choice.ids),
            "{id}.{number}: {:?} in {ids:?}",
            choice.ids
        );
        if truth.with_logprobs {
            let logprobs: Vec<f32> = choice.ids.iter().map(|id| logprob_of(*id)).collect();
            assert_eq!(choice.logprobs, logprobs, "{id}.{number}");
            let alternatives: Vec<u32> = choice.alternatives.iter().map(|a| a.id).collect();
            let expected: Vec<u32> = choice.ids.iter().map(|id| id + 1).collect();
            assert_eq!(alternatives, expected, "{id}.{number}");
            assert_eq!(
                choice.alternative_counts.len(),
                choice.ids.len(),
                "{id}.{number}"
            );
        } else {
            assert!(choice.logprobs.is_empty() && choice.alternatives.is_empty());
        }
        // What is told of a lost stream is that it is lost; a recorded end only says when it may be removed.
        let is_lost = matches!(stream.integrity, Integrity::Lost(_));
        assert!(
            choice.end.is_none() || end.is_some() || is_lost,
            "{id}.{number}: {:?}",
            choice.end
        );
    }
    if let Some(sampling) = &stream.sampling {
        assert!(
            truth.sampling_history.contains(sampling),
            "{id}: {sampling:?}"
        );
    }
    assert!(
        stream.prepared.is_none() || stream.prepared == truth.prepared,
        "{id}"
    );
    assert!(
        stream.outcome.is_none() || stream.outcome == truth.outcome,
        "{id}"
    );
}

pub(crate) fn assert_equals(stream: &RecoveredStream, truth: &Truth) {
    let id = stream.id;
    assert_eq!(stream.integrity, Integrity::Intact, "{id}");
    for (number, ids) in truth.choices.iter().enumerate() {
        let choice = stream.choices.get(number);
        assert_eq!(choice.map_or(&[][..], |c| &c.ids), ids, "{id}.{number}");
        assert_eq!(
            choice.and_then(|c| c.end).map(|end| end.0),
            truth.ends[number],
            "{id}.{number}"
        );
    }
    assert_eq!(stream.prepared, truth.prepared, "{id}");
    assert_eq!(stream.sampling, truth.sampling, "{id}");
    assert_eq!(stream.is_paused, truth.is_paused, "{id}");
    assert_eq!(stream.outcome, truth.outcome, "{id}");
}

fn logprob_of(id: u32) -> f32 {
    -(id as f32) / 7.0
}
