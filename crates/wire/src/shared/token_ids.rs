//! Ids of tokens beside their text (`return_token_ids`), in vLLM's fields.
//!
//! Each id of a choice is told once, in order: with the text that became final by it, or with the end. So the ids include
//! those of a stop string, whose text is not sent.

use engine::Token;
use generate::output::event::Event;
use generate::stream_source::{ChoiceLog, StreamSource};

/// Ids that are copied from a log at once.
const COPIED_AT_ONCE: usize = 32;

/// Ids of one stream that a client was told.
pub(crate) struct TokenIds {
    /// Items of each choice's log that the client has the ids of.
    told: Vec<u64>,
    /// Ids of the last event, kept for reuse.
    ids: Vec<u32>,
    /// Whether the client has the ids of each choice's prompt.
    prompts_told: Vec<bool>,
}

impl TokenIds {
    /// Nothing told; `None` where the request does not want ids.
    pub(crate) fn new(source: &StreamSource) -> Option<Self> {
        let meta = source.meta();
        meta.stream_options.return_token_ids.then(|| Self {
            told: vec![0; meta.choices],
            ids: Vec::with_capacity(COPIED_AT_ONCE),
            prompts_told: vec![false; meta.choices],
        })
    }

    /// Begins where a client that resumes has stopped.
    pub(crate) fn note_resumption(&mut self, source: &StreamSource, event: &Event<'_>) {
        let (Event::Resumed { positions }, Some(started)) = (event, source.started()) else {
            return;
        };
        for (choice, position) in positions.iter().enumerate() {
            let log = started.choices.get(choice);
            let before = log.map_or(0, |log| u64::from(log.echo_text.is_some()));
            if let Some(told) = self.told.get_mut(choice) {
                *told = position.begun().saturating_sub(before);
            }
            if let Some(told) = self.prompts_told.get_mut(choice) {
                *told = position.begun() > 0;
            }
        }
    }

    /// Ids of a choice that are new with an event up to the log's item `end`, or up to the log's end.
    pub(crate) fn new_ids(&mut self, source: &StreamSource, choice: usize, end: u64) -> &[u32] {
        self.ids.clear();
        let log = source
            .started()
            .and_then(|started| started.choices.get(choice));
        if let (Some(log), Some(told)) = (log, self.told.get_mut(choice)) {
            let end = end.min(log.tokens.len());
            copy_ids(log, *told, end, &mut self.ids);
            *told = end.max(*told);
        }
        &self.ids
    }

    /// Whether the client is to be told the prompt's ids of a choice: at the first question.
    pub(crate) fn tells_prompt(&mut self, choice: usize) -> bool {
        let told = self.prompts_told.get_mut(choice);
        told.is_some_and(|told| !std::mem::replace(told, true))
    }
}

/// Ids of the prompt of a choice, where the request wants them.
pub(crate) fn prompt_ids(source: &StreamSource, choice: usize) -> Option<&[u32]> {
    let is_wanted = source.meta().stream_options.return_token_ids;
    let started = source.started().filter(|_| is_wanted)?;
    started.choices.get(choice)?.prompt.as_deref()
}

/// All ids of an answer that is complete, where the request wants them.
pub(crate) fn all_ids(source: &StreamSource, choice: usize) -> Option<Vec<u32>> {
    let is_wanted = source.meta().stream_options.return_token_ids;
    let log = source
        .started()
        .filter(|_| is_wanted)?
        .choices
        .get(choice)?;
    let mut ids = Vec::new();
    copy_ids(log, 0, log.tokens.len(), &mut ids);
    Some(ids)
}

/// Appends the ids of the items `from..end` of a log, without the prompt's.
fn copy_ids(log: &ChoiceLog, from: u64, end: u64, into: &mut Vec<u32>) {
    let mut from = from.max(log.echoed);
    let mut buffer = [Token {
        id: 0,
        logprob: 0.0,
    }; COPIED_AT_ONCE];
    while from < end {
        let room = usize::try_from(end - from).map_or(COPIED_AT_ONCE, |n| n.min(COPIED_AT_ONCE));
        let copied = log.tokens.copy_items(from, &mut buffer[..room]);
        if copied == 0 {
            return;
        }
        into.extend(buffer[..copied].iter().map(|token| token.id));
        from += copied as u64;
    }
}
