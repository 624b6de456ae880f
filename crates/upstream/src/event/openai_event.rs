//! Events of OpenAI's completions: with vLLM's `token_ids`, or without ids, where their text is covered by tokens of the vocabulary here.

use super::{EventError, Finish, TokenChunk, check_error, misunderstood};
use crate::config::EVENT_TOKENS_MAX;
use serde::Deserialize;
use serde_json::Value;
use std::collections::VecDeque;
use std::sync::Arc;
use text::TextCover;

/// Parses the events of a response with one choice.
pub(crate) struct OpenAiEvents {
    prompt: Vec<u32>,
    /// Tokens that were given as the answer's first, and which the upstream repeats.
    repeated: VecDeque<u32>,
    has_logprobs: bool,
    /// Ids without log-probability, where these were requested.
    held: VecDeque<u32>,
}

#[derive(Deserialize)]
pub(super) struct CompletionEvent {
    #[serde(default)]
    choices: Vec<CompletionChoice>,
    error: Option<Value>,
}

#[derive(Deserialize)]
pub(super) struct CompletionChoice {
    #[serde(default)]
    index: u64,
    #[serde(default)]
    pub(super) text: String,
    token_ids: Option<Vec<u32>>,
    prompt_token_ids: Option<Vec<u32>>,
    logprobs: Option<Logprobs>,
    finish_reason: Option<String>,
    stop_reason: Option<Value>,
}

#[derive(Deserialize)]
struct Logprobs {
    #[serde(default)]
    token_logprobs: Vec<Option<f32>>,
}

impl CompletionEvent {
    /// The choice of an event; `None` for an event without one, such as that of the usage.
    pub(super) fn choice(data: &[u8]) -> Result<Option<CompletionChoice>, EventError> {
        let event: Self = serde_json::from_slice(data)
            .map_err(|why| misunderstood(format!("an event: {why}")))?;
        check_error(event.error)?;
        let choice = event.choices.into_iter().next();
        match &choice {
            Some(CompletionChoice { index, .. }) if *index != 0 => {
                Err(misunderstood(format!("choice {index}: one was requested")))
            }
            _ => Ok(choice),
        }
    }
}

impl CompletionChoice {
    /// Why the answer ended.
    pub(super) fn finish(&self) -> Result<Option<Finish>, EventError> {
        Ok(match self.finish_reason.as_deref() {
            None => None,
            Some("length") => Some(Finish::Length),
            Some("stop") => Some(Finish::Stop(match &self.stop_reason {
                Some(Value::String(text)) => Some(text.clone()),
                _ => None,
            })),
            Some(other) => return Err(misunderstood(format!("finish_reason: {other:.40}"))),
        })
    }
}

impl OpenAiEvents {
    /// For the response to a request with this prompt, whose answer begins with `given`.
    pub(crate) fn new(prompt: Vec<u32>, given: &[u32], has_logprobs: bool) -> Self {
        Self {
            prompt,
            repeated: given.iter().copied().collect(),
            has_logprobs,
            held: VecDeque::new(),
        }
    }

    pub(super) fn parse(&mut self, data: &[u8]) -> Result<TokenChunk, EventError> {
        let Some(choice) = CompletionEvent::choice(data)? else {
            return Ok(TokenChunk::default());
        };
        let finish = choice.finish()?;
        if choice
            .prompt_token_ids
            .is_some_and(|ids| ids != self.prompt)
        {
            return Err(misunderstood("prompt_token_ids: not those of the request"));
        }
        let ids = match choice.token_ids {
            Some(ids) => ids,
            None if choice.text.is_empty() => Vec::new(),
            None => {
                return Err(misunderstood(
                    "token_ids: missing beside text: the server does not know return_token_ids; \
                     upstream.api: openai_text uses its text",
                ));
            }
        };
        if ids.len() > EVENT_TOKENS_MAX {
            let why = format!("token_ids: more than {EVENT_TOKENS_MAX} in an event");
            return Err(misunderstood(why));
        }
        let logprobs = choice.logprobs.map_or(Vec::new(), |all| all.token_logprobs);
        let mut chunk = self.pair(ids, &logprobs, finish.is_some())?;
        self.drop_repeated(&mut chunk)?;
        if finish.is_some() && !self.repeated.is_empty() {
            return Err(misunderstood("token_ids: ended before the answer so far"));
        }
        chunk.finish = finish;
        Ok(chunk)
    }

    /// Ids with their log-probabilities, which may come later than the ids; at the end, all ids.
    fn pair(
        &mut self,
        ids: Vec<u32>,
        logprobs: &[Option<f32>],
        is_end: bool,
    ) -> Result<TokenChunk, EventError> {
        if !self.has_logprobs {
            return Ok(TokenChunk {
                ids,
                ..TokenChunk::default()
            });
        }
        self.held.extend(ids);
        if logprobs.len() > self.held.len() || self.held.len() > EVENT_TOKENS_MAX {
            return Err(misunderstood("logprobs: not those of token_ids"));
        }
        let count = if is_end {
            self.held.len()
        } else {
            logprobs.len()
        };
        let known = logprobs.iter().map(|known| known.unwrap_or(f32::NAN));
        Ok(TokenChunk {
            ids: self.held.drain(..count).collect(),
            logprobs: known
                .chain(std::iter::repeat(f32::NAN))
                .take(count)
                .collect(),
            ..TokenChunk::default()
        })
    }

    /// Removes the tokens that the upstream repeats, which must be equal.
    fn drop_repeated(&mut self, chunk: &mut TokenChunk) -> Result<(), EventError> {
        let count = self.repeated.len().min(chunk.ids.len());
        if chunk.ids[..count]
            .iter()
            .ne(self.repeated.iter().take(count))
        {
            return Err(misunderstood("token_ids: not those of the answer so far"));
        }
        self.repeated.drain(..count);
        chunk.ids.drain(..count);
        chunk.logprobs.drain(..count.min(chunk.logprobs.len()));
        Ok(())
    }
}

/// Parses the events of a response with one choice.
pub(crate) struct TextEvents {
    cover: Arc<TextCover>,
    /// Whether the next text begins a text.
    at_text_start: bool,
    has_logprobs: bool,
}

impl TextEvents {
    /// For a response that begins a text, or continues one.
    pub(crate) fn new(cover: Arc<TextCover>, at_text_start: bool, has_logprobs: bool) -> Self {
        Self {
            cover,
            at_text_start,
            has_logprobs,
        }
    }

    pub(super) fn parse(&mut self, data: &[u8]) -> Result<TokenChunk, EventError> {
        let Some(choice) = CompletionEvent::choice(data)? else {
            return Ok(TokenChunk::default());
        };
        let mut ids = Vec::new();
        self.cover
            .push_ids(&choice.text, self.at_text_start, &mut ids);
        self.at_text_start &= choice.text.is_empty();
        Ok(TokenChunk {
            logprobs: if self.has_logprobs {
                vec![f32::NAN; ids.len()]
            } else {
                Vec::new()
            },
            finish: choice.finish()?,
            is_cover: !ids.is_empty(),
            ids,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parsed(data: &str) -> Result<TokenChunk, EventError> {
        OpenAiEvents::new(vec![1, 2], &[], false).parse(data.as_bytes())
    }

    fn tokens(ids: &[u32], finish: Option<Finish>) -> TokenChunk {
        TokenChunk {
            ids: ids.to_vec(),
            finish,
            ..TokenChunk::default()
        }
    }

    #[test]
    fn events_of_completions_are_read() {
        let stop = Finish::Stop(Some("x".to_owned()));
        for (data, expected) in [
            (r#"{"choices":[]}"#, tokens(&[], None)),
            (
                r#"{"choices":[{"index":0,"text":"ab","token_ids":[5,6],"prompt_token_ids":[1,2]}]}"#,
                tokens(&[5, 6], None),
            ),
            (
                r#"{"choices":[{"text":"","token_ids":[7],"logprobs":{"token_logprobs":[-0.5]},"finish_reason":"length"}]}"#,
                tokens(&[7], Some(Finish::Length)),
            ),
            (
                r#"{"choices":[{"text":"","finish_reason":"stop","stop_reason":"x"}],"error":null}"#,
                tokens(&[], Some(stop)),
            ),
        ] {
            assert_eq!(parsed(data).unwrap(), expected, "{data}");
        }
    }

    #[test]
    fn log_probabilities_may_come_after_their_ids() {
        let mut events = OpenAiEvents::new(vec![], &[4], true);
        let mut next = |data: &str| {
            let chunk = events.parse(data.as_bytes()).unwrap();
            (chunk.ids, chunk.logprobs)
        };
        let first = next(
            r#"{"choices":[{"text":"a","token_ids":[4,5,6],"logprobs":{"token_logprobs":[null,-0.5]}}]}"#,
        );
        assert_eq!(first, (vec![5], vec![-0.5]), "4 was given");
        let second = next(
            r#"{"choices":[{"text":"a","token_ids":[7],"logprobs":{"token_logprobs":[-1.5]}}]}"#,
        );
        assert_eq!(second, (vec![6], vec![-1.5]));
        let (ids, logprobs) = next(r#"{"choices":[{"text":"","finish_reason":"stop"}]}"#);
        assert!(ids == [7] && logprobs[0].is_nan());
    }

    #[test]
    fn wrong_events_name_what_is_wrong() {
        for (data, part) in [
            ("{", "event"),
            ("[]", "event"),
            (r#"{"error":{"message":"no"}}"#, "error"),
            (r#"{"choices":[{"text":"a"}]}"#, "token_ids"),
            (r#"{"choices":[{"text":"a","token_ids":[-1]}]}"#, "event"),
            (
                r#"{"choices":[{"text":"a","token_ids":[4294967296]}]}"#,
                "event",
            ),
            (
                r#"{"choices":[{"index":1,"text":"a","token_ids":[1]}]}"#,
                "choice",
            ),
            (
                r#"{"choices":[{"token_ids":[1],"prompt_token_ids":[9]}]}"#,
                "prompt_token_ids",
            ),
            (
                r#"{"choices":[{"token_ids":[1],"finish_reason":"abort"}]}"#,
                "finish_reason",
            ),
        ] {
            let why = parsed(data).unwrap_err();
            let is_told = matches!(&why, EventError::Misunderstood(why) if why.contains(part));
            assert!(is_told, "{data}: {why:?}");
        }
        let ids = "1,".repeat(EVENT_TOKENS_MAX);
        let many = format!(r#"{{"choices":[{{"token_ids":[{ids}1]}}]}}"#);
        assert!(parsed(&many).is_err());
        let mut events = OpenAiEvents::new(vec![], &[], true);
        let more = br#"{"choices":[{"token_ids":[1],"logprobs":{"token_logprobs":[0.1,0.2]}}]}"#;
        assert!(events.parse(more).is_err());
    }

    #[test]
    fn answer_that_does_not_repeat_the_given_tokens_is_refused() {
        for data in [
            r#"{"choices":[{"token_ids":[4,9]}]}"#,
            r#"{"choices":[{"token_ids":[4],"finish_reason":"stop"}]}"#,
        ] {
            let mut events = OpenAiEvents::new(vec![], &[4, 5], false);
            assert!(events.parse(data.as_bytes()).is_err(), "{data}");
        }
    }

    #[test]
    fn failure_of_the_server_is_not_one_of_the_request() {
        for data in [
            r#"{"error":{"message":"m","type":"server_error","code":"shutting_down"}}"#,
            r#"{"error":{"message":"m","type":"InternalServerError","code":500}}"#,
        ] {
            assert!(matches!(parsed(data), Err(EventError::Failed(_))), "{data}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_an_event_or_an_error(data in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = OpenAiEvents::new(vec![], &[], true).parse(&data);
        }
    }
}
