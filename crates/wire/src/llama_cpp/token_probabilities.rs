//! `completion_probabilities`: log-probabilities of tokens with their ids, as llama.cpp's server writes them.

use crate::json::{List, LogProb, Lossy};
use crate::schema::written_as;
use crate::shared::logprobs::token_bytes;
use engine::EndingToken;
use generate::output::event::Logprobs;
use schemars::JsonSchema;
use serde::{Serialize, Serializer};
use text::Tokenizer;

/// A list `[{id, token, bytes, logprob, top_logprobs: [..]}]`.
#[derive(Clone, Copy)]
pub(super) struct TokenProbabilities<'a> {
    pub(super) logprobs: Logprobs<'a>,
    /// The end-of-sequence token, which has an entry although it is no part of the text.
    pub(super) ending: Option<&'a EndingToken>,
}

impl<'a> TokenProbabilities<'a> {
    /// Those of text.
    pub(super) fn of_text(logprobs: Logprobs<'a>) -> Self {
        Self {
            logprobs,
            ending: None,
        }
    }
}

#[derive(JsonSchema, Serialize)]
#[schemars(rename = "LlamaTopProbability")]
struct TopProbability<'a> {
    id: u32,
    token: Lossy<'a>,
    bytes: &'a [u8],
    logprob: LogProb,
}

#[derive(JsonSchema, Serialize)]
#[schemars(rename = "LlamaProbability")]
struct TokenProbability<'a, T> {
    id: u32,
    token: Lossy<'a>,
    bytes: &'a [u8],
    logprob: LogProb,
    top_logprobs: T,
}

written_as! {
    TokenProbabilities<'_> => Vec<TokenProbability<'static, Vec<TopProbability<'static>>>>,
}

fn top_probability(tokenizer: &Tokenizer, id: u32, logprob: f32) -> TopProbability<'_> {
    let bytes = token_bytes(tokenizer, id);
    TopProbability {
        id,
        token: Lossy(bytes),
        bytes,
        logprob: LogProb(logprob),
    }
}

impl Serialize for TokenProbabilities<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let tokenizer = self.logprobs.tokenizer;
        let text = self.logprobs.iter().map(|(entry, top)| (entry.token, top));
        let ending = self.ending.iter().map(|end| (end.token, &end.top[..]));
        serializer.collect_seq(text.chain(ending).map(|(token, top)| {
            let token = top_probability(tokenizer, token.id, token.logprob);
            let top = top
                .iter()
                .map(|top| top_probability(tokenizer, top.id, top.logprob));
            TokenProbability {
                id: token.id,
                token: token.token,
                bytes: token.bytes,
                logprob: token.logprob,
                top_logprobs: List(top),
            }
        }))
    }
}
