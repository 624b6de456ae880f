//! One event of a response.

use super::config::EVENT_TOKENS_MAX;
use serde::Deserialize;
use serde_json::Value;

/// What an event says.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Chunk {
    /// Ids of tokens with their log-probabilities, and why the answer ended.
    Tokens {
        ids: Vec<u32>,
        /// As many as ids, or none.
        logprobs: Vec<f32>,
        finish: Option<Finish>,
    },
    /// The response is complete.
    Done,
}

/// Why an answer ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Finish {
    Length,
    /// The stop string, if the upstream names one.
    Stop(Option<String>),
}

#[derive(Deserialize)]
struct Body {
    #[serde(default)]
    choices: Vec<ChoiceBody>,
    error: Option<Value>,
}

#[derive(Deserialize)]
struct ChoiceBody {
    #[serde(default)]
    index: u64,
    #[serde(default)]
    text: String,
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

/// Parses the data of an event of a request with one choice.
///
/// # Errors
/// The event is an error, no JSON of a completion, or has no token ids; the text says what.
pub(crate) fn parse_chunk(data: &[u8], prompt: &[u32]) -> Result<Chunk, String> {
    if data == b"[DONE]" {
        return Ok(Chunk::Done);
    }
    let body: Body = serde_json::from_slice(data).map_err(|why| format!("an event: {why}"))?;
    if let Some(error) = body.error.filter(|error| !error.is_null()) {
        return Err(format!("the upstream's error: {:.200}", error.to_string()));
    }
    let Some(choice) = body.choices.into_iter().next() else {
        // The usage.
        return Ok(tokens(Vec::new(), Vec::new(), None));
    };
    if choice.index != 0 {
        return Err(format!("choice {}: one was requested", choice.index));
    }
    if choice.prompt_token_ids.is_some_and(|ids| ids != prompt) {
        return Err("prompt_token_ids: not those of the request".to_owned());
    }
    let ids = match choice.token_ids {
        Some(ids) => ids,
        None if choice.text.is_empty() => Vec::new(),
        None => {
            return Err(
                "token_ids: missing beside text (return_token_ids is not supported)".to_owned(),
            );
        }
    };
    if ids.len() > EVENT_TOKENS_MAX {
        return Err(format!(
            "token_ids: more than {EVENT_TOKENS_MAX} in an event"
        ));
    }
    let logprobs = choice
        .logprobs
        .map_or(Vec::new(), |given| given.token_logprobs);
    let logprobs: Vec<_> = logprobs.into_iter().map(|one| one.unwrap_or(0.0)).collect();
    if !logprobs.is_empty() && logprobs.len() != ids.len() {
        return Err("logprobs: not as many as token_ids".to_owned());
    }
    let finish = match choice.finish_reason.as_deref() {
        None => None,
        Some("length") => Some(Finish::Length),
        Some("stop") => Some(Finish::Stop(match choice.stop_reason {
            Some(Value::String(text)) => Some(text),
            _ => None,
        })),
        Some(other) => return Err(format!("finish_reason: {other:.40}")),
    };
    Ok(tokens(ids, logprobs, finish))
}

fn tokens(ids: Vec<u32>, logprobs: Vec<f32>, finish: Option<Finish>) -> Chunk {
    Chunk::Tokens {
        ids,
        logprobs,
        finish,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn events_of_completions_are_read() {
        for (data, expected) in [
            ("[DONE]", Chunk::Done),
            (r#"{"choices":[]}"#, tokens(vec![], vec![], None)),
            (
                r#"{"choices":[{"index":0,"text":"ab","token_ids":[5,6],"prompt_token_ids":[1,2]}]}"#,
                tokens(vec![5, 6], vec![], None),
            ),
            (
                r#"{"choices":[{"text":"","token_ids":[7],"logprobs":{"token_logprobs":[-0.5]},"finish_reason":"length"}]}"#,
                tokens(vec![7], vec![-0.5], Some(Finish::Length)),
            ),
            (
                r#"{"choices":[{"text":"","finish_reason":"stop","stop_reason":"x"}],"error":null}"#,
                tokens(vec![], vec![], Some(Finish::Stop(Some("x".to_owned())))),
            ),
        ] {
            assert_eq!(
                parse_chunk(data.as_bytes(), &[1, 2]).unwrap(),
                expected,
                "{data}"
            );
        }
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
                r#"{"choices":[{"token_ids":[1],"logprobs":{"token_logprobs":[0.1,0.2]}}]}"#,
                "logprobs",
            ),
            (
                r#"{"choices":[{"token_ids":[1],"finish_reason":"abort"}]}"#,
                "finish_reason",
            ),
        ] {
            let why = parse_chunk(data.as_bytes(), &[1, 2]).unwrap_err();
            assert!(why.contains(part), "{data}: {why}");
        }
        let many = format!(
            r#"{{"choices":[{{"token_ids":[{}1]}}]}}"#,
            "1,".repeat(EVENT_TOKENS_MAX)
        );
        assert!(
            parse_chunk(many.as_bytes(), &[])
                .unwrap_err()
                .contains("token_ids")
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_an_event_or_an_error(data in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse_chunk(&data, &[]);
        }
    }
}
