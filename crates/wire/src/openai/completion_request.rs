//! Parser of `POST /v1/completions`.

use crate::fields::{self, Fields, Kind, Raw};
use crate::openai::control;
use crate::{field_table, tool_definitions};
use generate::error::ApiError;
use generate::request::{
    BestOf, CHOICES_MAX, GenerateRequest, GenerationParams, Prompt, TOP_LOGPROBS_MAX,
};

/// Default of `max_tokens` on this route, as in OpenAI's API.
const MAX_TOKENS_DEFAULT: usize = 16;

/// Parses a request.
///
/// # Errors
/// All invalid fields at once.
pub fn parse(mut fields: Fields<'_>, vocab: usize) -> Result<GenerateRequest, ApiError> {
    let prompts = prompts(&mut fields, vocab);
    let echo = fields.boolean("echo").unwrap_or(false);
    let mut control = control::control_of(&mut fields, vocab, i128::from(!echo));
    control.max_tokens = control.max_tokens.or(Some(MAX_TOKENS_DEFAULT));
    let mut delivery = control::delivery(&mut fields);
    let n = control::choices(&mut fields, prompts.len());
    delivery.echo = echo;
    if let Some(top) = fields.integer("logprobs", 0..=TOP_LOGPROBS_MAX as i128) {
        control.sampling.logprobs = true;
        control.sampling.top_logprobs = u32::try_from(top).unwrap_or(0);
    }
    control.scored = echo && (control.sampling.logprobs || control.max_tokens == Some(0));
    let of = best_of(&mut fields, n, prompts.len(), delivery.stream);
    if control.scored {
        refuse_beside_scores(&mut fields, &control, of > n);
    }
    if of > n {
        delivery.best = Some(BestOf {
            told: n,
            of,
            logprobs: control.sampling.logprobs,
        });
        control.sampling.logprobs = true;
    }
    tool_definitions::refuse(&mut fields);
    delivery.ignored = fields.finish_request(&field_table::COMPLETIONS)?;
    Ok(GenerateRequest {
        prompts,
        n: of,
        control,
        delivery,
    })
}

/// Parses `best_of`: the number of answers to generate for each of `prompts` prompts, of which `n` are returned.
fn best_of(fields: &mut Fields<'_>, n: usize, prompts: usize, stream: bool) -> usize {
    let best = fields.integer("best_of", 1..=CHOICES_MAX as i128);
    let best = best
        .and_then(|best| usize::try_from(best).ok())
        .unwrap_or(n);
    if best < n {
        fields.wrong("best_of", format!("must be at least n, which is {n}"));
    } else if best > n && stream {
        let words =
            "must be n where the answer is streamed: which are the best is known at their ends";
        fields.wrong("best_of", words);
    } else if best > n && best * prompts > CHOICES_MAX {
        let words = format!(
            "prompts times best_of must be at most {CHOICES_MAX}, not {}",
            best * prompts
        );
        fields.wrong("best_of", words);
    }
    best.max(n)
}

/// Rejects parameters that would treat the prompt's tokens as tokens of the answer.
fn refuse_beside_scores(fields: &mut Fields<'_>, control: &GenerationParams, chooses: bool) {
    let words = "cannot be used where the prompt's tokens are told with the answer's (echo with logprobs or max_tokens 0)";
    let sampling = &control.sampling;
    let penalties = [
        ("presence_penalty", sampling.presence_penalty != 0.0),
        ("frequency_penalty", sampling.frequency_penalty != 0.0),
        ("best_of", chooses),
    ];
    for (name, _) in penalties.into_iter().filter(|(_, used)| *used) {
        fields.wrong(name, words);
    }
}

/// Parses `prompt`: a string, a list of strings, token ids, or lists of token ids.
fn prompts(fields: &mut Fields<'_>, vocab: usize) -> Vec<Prompt> {
    let Some(raw) = fields.raw("prompt") else {
        fields.wrong("prompt", "is required");
        return Vec::new();
    };
    if let Some(text) = fields::text(raw) {
        return vec![Prompt::Text(text.into_owned())];
    }
    if fields::begins_with_number(raw) {
        return fields
            .ids("prompt", raw, vocab)
            .map(Prompt::Ids)
            .into_iter()
            .collect();
    }
    match fields::list(raw, usize::MAX).as_deref() {
        Some([]) | None => fields.wrong(
            "prompt",
            "must be a string, a list of strings, token ids, or lists of token ids",
        ),
        Some(items) if items.len() > CHOICES_MAX => {
            fields.wrong("prompt", format!("must hold at most {CHOICES_MAX} prompts"));
        }
        Some(items) => {
            let read = |(i, item): (usize, &Raw<'_>)| {
                prompt(fields, &format!("prompt[{i}]"), *item, vocab)
            };
            return items.iter().enumerate().filter_map(read).collect();
        }
    }
    Vec::new()
}

fn prompt(fields: &mut Fields<'_>, path: &str, raw: Raw<'_>, vocab: usize) -> Option<Prompt> {
    if let Some(text) = fields::text(raw) {
        return Some(Prompt::Text(text.into_owned()));
    }
    if fields::kind(raw) != Kind::Array {
        fields.wrong(path, "must be a string or a list of token ids");
        return None;
    }
    let ids = fields.ids(path, raw, vocab)?;
    if ids.is_empty() {
        fields.wrong(path, "must hold at least one token id");
        return None;
    }
    Some(Prompt::Ids(ids))
}
