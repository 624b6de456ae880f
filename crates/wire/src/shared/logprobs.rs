//! Log-probabilities: the list of objects of chat completions, and the four parallel lists of completions.
//!
//! Ids of tokens in addition to their text (`return_token_ids`), in vLLM's fields.
//!
//! Each id of a choice is sent once, in order: with the text that became final by it, or with the end. So the ids include
//! those of a stop string, whose text is not sent.

use crate::json::{Entries, List, LogProb, Lossy};
use crate::schema::written_as;
use engine::{Token, TopLogprob};
use generate::output::event::{Entry, Event, Logprobs};
use generate::stream_source::{ChoiceLog, StreamSource};
use schemars::JsonSchema;
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;
use std::fmt::{self, Display};
use text::Tokenizer;

/// Format of chat completions: `{"content":[{token, logprob, bytes, top_logprobs:[..]}]}`.
pub(crate) struct ChatLogprobs<'a>(pub Logprobs<'a>);

/// A list `[{token, logprob, bytes, top_logprobs:[..]}]`.
pub(crate) struct TokenLogprobs<'a>(pub Logprobs<'a>);

/// Format of completions: `{"tokens":[..],"token_logprobs":[..],"top_logprobs":[{..}]|null,"text_offset":[..]}`. The
/// first token of a prompt has no log-probability: null, as in OpenAI's API.
pub(crate) struct CompletionLogprobs<'a>(pub Logprobs<'a>);

#[derive(JsonSchema, Serialize)]
#[schemars(rename = "TopTokenLogprob")]
struct ChatToken<'a> {
    token: Lossy<'a>,
    logprob: LogProb,
    bytes: &'a [u8],
}

#[derive(JsonSchema, Serialize)]
#[schemars(rename = "TokenLogprob")]
struct ChatTokenWithTop<'a, T> {
    token: Lossy<'a>,
    logprob: LogProb,
    bytes: &'a [u8],
    top_logprobs: T,
}

#[derive(JsonSchema, Serialize)]
#[schemars(rename = "ChatLogprobs")]
struct ChatLogprobsObject<'a> {
    content: TokenLogprobs<'a>,
    refusal: (),
}

/// Log-probabilities of a choice as parallel lists with one entry per token.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "CompletionLogprobs")]
struct CompletionLogprobsObject<T, L, A, O> {
    tokens: T,
    token_logprobs: L,
    top_logprobs: Option<A>,
    text_offset: O,
}

/// The lists of [`CompletionLogprobs`] as plain types.
type PlainLogprobs = CompletionLogprobsObject<
    Vec<String>,
    Vec<Option<f32>>,
    Vec<Option<BTreeMap<String, f32>>>,
    Vec<u64>,
>;

written_as! {
    ChatLogprobs<'_> => ChatLogprobsObject<'static>,
    TokenLogprobs<'_> => Vec<ChatTokenWithTop<'static, Vec<ChatToken<'static>>>>,
    CompletionLogprobs<'_> => PlainLogprobs,
}

impl Serialize for ChatLogprobs<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let object = ChatLogprobsObject {
            content: TokenLogprobs(self.0),
            refusal: (),
        };
        object.serialize(serializer)
    }
}

impl Serialize for TokenLogprobs<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let tokenizer = self.0.tokenizer;
        serializer.collect_seq(self.0.iter().map(|(entry, top)| {
            let bytes = token_bytes(tokenizer, entry.token.id);
            let top = top.iter().map(|top| {
                let bytes = token_bytes(tokenizer, top.id);
                ChatToken {
                    token: Lossy(bytes),
                    logprob: LogProb(top.logprob),
                    bytes,
                }
            });
            ChatTokenWithTop {
                token: Lossy(bytes),
                logprob: LogProb(entry.token.logprob),
                bytes,
                top_logprobs: List(top),
            }
        }))
    }
}

impl Serialize for CompletionLogprobs<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let list = self.0;
        let tokenizer = list.tokenizer;
        let entries = || list.entries.iter();
        let tokens = entries().map(|entry| CompletionToken::new(tokenizer, entry.token.id));
        let logprobs = entries().map(|entry| {
            let logprob = entry.token.logprob;
            (!logprob.is_nan()).then_some(LogProb(logprob))
        });
        let top = list.iter().map(|(entry, top)| {
            let known = !entry.token.logprob.is_nan();
            known.then(|| Entries(top_alternatives(tokenizer, entry, top)))
        });
        let top = (list.top_n > 0).then_some(List(top));
        let offsets = entries().map(|entry| entry.start_chars);
        let object = CompletionLogprobsObject {
            tokens: List(tokens),
            token_logprobs: List(logprobs),
            top_logprobs: top,
            text_offset: List(offsets),
        };
        object.serialize(serializer)
    }
}

/// The likeliest tokens, and the sampled token where the list lacks that token.
fn top_alternatives<'a>(
    tokenizer: &'a Tokenizer,
    entry: &'a Entry,
    top: &'a [TopLogprob],
) -> impl Iterator<Item = (CompletionToken<'a>, LogProb)> + Clone {
    let sampled = (entry.token.id, entry.token.logprob);
    let is_listed = top.iter().any(|top| top.id == sampled.0);
    let listed = top.iter().map(|top| (top.id, top.logprob));
    let all = listed.chain((!is_listed).then_some(sampled));
    all.map(move |(id, logprob)| (CompletionToken::new(tokenizer, id), LogProb(logprob)))
}

/// Text of a token; a token that is not UTF-8 on its own is written as `bytes:\xe2\x82`, as in OpenAI's API.
struct CompletionToken<'a>(&'a [u8]);

impl<'a> CompletionToken<'a> {
    fn new(tokenizer: &'a Tokenizer, id: u32) -> Self {
        Self(token_bytes(tokenizer, id))
    }
}

impl Display for CompletionToken<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("bytes:")?;
        for byte in self.0 {
            write!(f, "\\x{byte:02x}")?;
        }
        Ok(())
    }
}

impl Serialize for CompletionToken<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(self.0) {
            Ok(text) => serializer.serialize_str(text),
            Err(_) => serializer.collect_str(self),
        }
    }
}

/// The bytes of a token; for a control token the bytes of its name.
pub(crate) fn token_bytes(tokenizer: &Tokenizer, id: u32) -> &[u8] {
    match tokenizer.bytes(id) {
        Some(bytes) if !bytes.is_empty() => bytes,
        _ => tokenizer.piece(id).unwrap_or_default().as_bytes(),
    }
}

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
    /// No id was sent; `None` where the request does not want ids.
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

    /// Whether the client is to get the prompt's ids of a choice: at the first question.
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
    let mut buffer = [Token::default(); COPIED_AT_ONCE];
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
