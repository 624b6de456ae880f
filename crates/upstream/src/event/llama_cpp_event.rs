//! One event of llama.cpp's route `/completion` with `return_tokens`.
//!
//! An event has a piece of text and the id of one token. A token after which the text would end within a character has no
//! event: its id is never sent, and its bytes are in the text of a later event. A token whose text may become a stop string
//! has an event with its id and without text, which a later event has. So ids are held until the text comes: where their
//! bytes are that text, they are the upstream's tokens; else the text is covered by tokens of the vocabulary here.

use super::{EventError, Finish, TokenChunk, check_error, misunderstood};
use crate::config::EVENT_TOKENS_MAX;
use serde::Deserialize;
use serde_json::Value;
use std::sync::Arc;
use text::{TextCover, Tokenizer};

/// Parses the events of a response.
pub(crate) struct LlamaCppEvents {
    tokenizer: Arc<Tokenizer>,
    cover: Arc<TextCover>,
    at_text_start: bool,
    has_logprobs: bool,
    /// Ids whose text has not come, with their log-probabilities.
    held: Vec<(u32, f32)>,
    /// Ids that came.
    seen: u64,
}

#[derive(Deserialize)]
struct CompletionPiece {
    #[serde(default)]
    content: String,
    #[serde(default)]
    tokens: Vec<u32>,
    #[serde(default)]
    stop: bool,
    #[serde(default)]
    tokens_predicted: u64,
    stop_type: Option<String>,
    stopping_word: Option<String>,
    #[serde(default)]
    completion_probabilities: Vec<Probability>,
    error: Option<Value>,
}

#[derive(Deserialize)]
struct Probability {
    logprob: Option<f32>,
}

impl LlamaCppEvents {
    /// For a response that begins a text, or continues one.
    pub(crate) fn new(
        (tokenizer, cover): (Arc<Tokenizer>, Arc<TextCover>),
        at_text_start: bool,
        has_logprobs: bool,
    ) -> Self {
        Self {
            tokenizer,
            cover,
            at_text_start,
            has_logprobs,
            held: Vec::new(),
            seen: 0,
        }
    }

    pub(super) fn parse(&mut self, data: &[u8]) -> Result<TokenChunk, EventError> {
        let piece: CompletionPiece = serde_json::from_slice(data)
            .map_err(|why| misunderstood(format!("an event: {why}")))?;
        check_error(piece.error)?;
        let logprobs = piece.completion_probabilities.iter();
        let logprobs = logprobs.map(|one| one.logprob.unwrap_or(f32::NAN));
        let logprobs = logprobs.chain(std::iter::repeat(f32::NAN));
        self.seen += piece.tokens.len() as u64;
        self.held.extend(piece.tokens.iter().copied().zip(logprobs));
        if self.held.len() > EVENT_TOKENS_MAX {
            let why = format!("tokens: more than {EVENT_TOKENS_MAX} without their text");
            return Err(misunderstood(why));
        }
        let mut chunk = if piece.content.is_empty() {
            TokenChunk::default()
        } else {
            self.take_text(&piece.content)
        };
        if piece.stop {
            let kind = piece.stop_type.as_deref().unwrap_or_default();
            let (finish, is_text_cut) = match kind {
                "eos" => (Finish::Stop(None), false),
                "limit" => (Finish::Length, false),
                "word" => (Finish::Stop(piece.stopping_word), true),
                other => return Err(misunderstood(format!("stop_type: {other:.40}"))),
            };
            // The rest of the ids is the stop string, or the tokens whose text was held back at the end.
            if !is_text_cut && self.seen == piece.tokens_predicted {
                self.release(&mut chunk);
            }
            chunk.finish = Some(finish);
        }
        Ok(chunk)
    }

    /// The ids of all text that was held back.
    fn take_text(&mut self, content: &str) -> TokenChunk {
        let mut chunk = TokenChunk::default();
        let bytes = |id: u32| self.tokenizer.bytes(id).unwrap_or_default();
        let of_ids = self.held.iter().flat_map(|(id, _)| bytes(*id));
        if of_ids.copied().eq(content.bytes()) {
            self.release(&mut chunk);
        } else {
            self.held.clear();
            let ids = &mut chunk.ids;
            self.cover.push_ids(content, self.at_text_start, ids);
            let unknown = if self.has_logprobs {
                chunk.ids.len()
            } else {
                0
            };
            chunk.logprobs = vec![f32::NAN; unknown];
            chunk.is_cover = true;
        }
        self.at_text_start = false;
        chunk
    }

    fn release(&mut self, chunk: &mut TokenChunk) {
        for (id, logprob) in self.held.drain(..) {
            chunk.ids.push(id);
            if self.has_logprobs {
                chunk.logprobs.push(logprob);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use testing::vocabulary::Vocabulary;

    fn events(has_logprobs: bool) -> LlamaCppEvents {
        let tokenizer = Vocabulary::of_bytes().with_eos("</s>").into_tokenizer();
        let cover = Arc::new(TextCover::new(Arc::clone(&tokenizer)).unwrap());
        LlamaCppEvents::new((tokenizer, cover), false, has_logprobs)
    }

    fn parsed(datas: &[&str]) -> Result<TokenChunk, EventError> {
        let (mut events, mut all) = (events(false), TokenChunk::default());
        for data in datas {
            let chunk = events.parse(data.as_bytes())?;
            all.ids.extend(chunk.ids);
            all.is_cover |= chunk.is_cover;
            all.finish = chunk.finish;
        }
        Ok(all)
    }

    #[test]
    fn ids_are_the_upstreams_where_their_text_is() {
        let all = parsed(&[
            r#"{"index":0,"content":"a","tokens":[97],"stop":false,"id_slot":0,"tokens_predicted":1,"tokens_evaluated":3}"#,
            r#"{"content":"","tokens":[98],"stop":false,"tokens_predicted":2}"#,
            r#"{"content":"bc","tokens":[99],"stop":false,"tokens_predicted":3}"#,
            r#"{"content":"","tokens":[],"stop":true,"tokens_predicted":3,"stop_type":"limit","stopping_word":""}"#,
        ])
        .unwrap();
        assert_eq!((&all.ids[..], all.is_cover), (&[97, 98, 99][..], false));
        assert_eq!(all.finish, Some(Finish::Length));
    }

    #[test]
    fn character_of_several_tokens_is_covered() {
        let all = parsed(&[
            r#"{"content":"a","tokens":[97],"tokens_predicted":1}"#,
            r#"{"content":"é","tokens":[169],"tokens_predicted":3}"#,
            r#"{"content":"","tokens":[256],"tokens_predicted":4}"#,
            r#"{"content":"","tokens":[],"stop":true,"tokens_predicted":4,"stop_type":"eos"}"#,
        ])
        .unwrap();
        assert_eq!((&all.ids[..], all.is_cover), (&[97, 0xC3, 0xA9][..], true));
        assert_eq!(all.finish, Some(Finish::Stop(None)));
    }

    #[test]
    fn stop_string_is_no_part_of_the_answer() {
        let all = parsed(&[
            r#"{"content":"","tokens":[120],"tokens_predicted":1}"#,
            r#"{"content":"","tokens":[121],"tokens_predicted":2}"#,
            r#"{"content":"","tokens":[],"stop":true,"tokens_predicted":2,"stop_type":"word","stopping_word":"xy"}"#,
        ])
        .unwrap();
        assert_eq!(all.ids, [0; 0]);
        assert_eq!(all.finish, Some(Finish::Stop(Some("xy".to_owned()))));
    }

    #[test]
    fn log_probabilities_are_those_of_the_ids() {
        let data = r#"{"content":"a","tokens":[97],"completion_probabilities":[{"id":97,"logprob":-0.5,"top_logprobs":[]}]}"#;
        assert_eq!(
            events(true).parse(data.as_bytes()).unwrap().logprobs,
            [-0.5]
        );
    }

    #[test]
    fn wrong_events_name_what_is_wrong() {
        for (data, part) in [
            ("[", "event"),
            (r#"{"content":"a","tokens":[-1]}"#, "event"),
            (r#"{"content":"","stop":true}"#, "stop_type"),
            (r#"{"error":{"code":400,"message":"no"}}"#, "error"),
        ] {
            let why = parsed(&[data]).unwrap_err();
            let is_told = matches!(&why, EventError::Misunderstood(why) if why.contains(part));
            assert!(is_told, "{data}: {why:?}");
        }
        let down = parsed(&[r#"{"error":{"code":503,"type":"unavailable_error"}}"#]);
        assert!(matches!(down, Err(EventError::Failed(_))));
    }

    proptest! {
        #[test]
        fn any_bytes_are_an_event_or_an_error(data in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = events(true).parse(&data);
        }
    }
}
