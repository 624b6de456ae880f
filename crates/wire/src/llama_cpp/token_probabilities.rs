//! `completion_probabilities`: log-probabilities of tokens with their ids, as llama.cpp's server writes them.

use crate::json::{List, LogProb, Lossy};
use crate::openai::logprobs::token_bytes;
use crate::schema::written_as;
use generate::output::event::Logprobs;
use schemars::JsonSchema;
use serde::{Serialize, Serializer};
use text::Tokenizer;

/// A list `[{id, token, bytes, logprob, top_logprobs: [..]}]`.
#[derive(Clone, Copy)]
pub(super) struct TokenProbabilities<'a>(pub(super) Logprobs<'a>);

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
        let tokenizer = self.0.tokenizer;
        serializer.collect_seq(self.0.iter().map(|(entry, top)| {
            let token = top_probability(tokenizer, entry.token.id, entry.token.logprob);
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
