//! Prompts that are truncated to leave room for the answer, and turns of a conversation that truncation may drop.

use super::{EncodedPrompt, ImageRun, PromptEncoder};
use crate::error::ApiError;
use crate::images::ImagePart;
use crate::output::parser_config::ParseOptions;
use crate::prompt_limit::{PromptLimit, Truncation};
use crate::request::{Prompt, PromptPiece};
use serde_json::Value;
use std::collections::{BTreeSet, HashSet};
use std::ops::Range;
use text::{Message, image_part, images_of};

/// Bytes before the text that a context can hold, so that the word at the cut is not among the tokens that stay.
const CUT_WORD_BYTES: usize = 4096;

impl PromptEncoder<'_> {
    /// Encodes a prompt, truncated as the request demands; the ids may still be too many.
    ///
    /// # Errors
    /// As [`PromptEncoder::encode_prompt`]; or more tokens are to be kept than the context has.
    pub(super) fn encode_truncated(
        self,
        prompt: Prompt,
        wanted: ParseOptions,
    ) -> Result<EncodedPrompt, ApiError> {
        let room = PromptLimit::of_context(self.model);
        match (self.truncation.truncation, prompt) {
            (Truncation::Turns, prompt @ Prompt::Conversation { .. }) => {
                self.encode_turns(prompt, wanted, room)
            }
            // A gap's surroundings are cut to the context in any case.
            (Truncation::LastTokens(most), prompt) if !matches!(prompt, Prompt::Infill(_)) => {
                self.encode_last_tokens(prompt, wanted, most)
            }
            (_, prompt) => self.encode_prompt(prompt, wanted, room),
        }
    }

    /// Encodes a conversation without as many of the oldest turns as are too many. A conversation of `n` turns is rendered at
    /// most `2 + log2(n)` times: the number of dropped turns is searched by bisection.
    fn encode_turns(
        self,
        prompt: Prompt,
        wanted: ParseOptions,
        room: PromptLimit,
    ) -> Result<EncodedPrompt, ApiError> {
        let Prompt::Conversation {
            field,
            messages,
            tools,
            continues,
            kwargs,
        } = prompt
        else {
            return self.encode_prompt(prompt, wanted, room);
        };
        let encode = |messages: Vec<Message>| {
            let (tools, kwargs) = (tools.clone(), kwargs.clone());
            let prompt = Prompt::Conversation {
                field,
                messages,
                tools,
                continues,
                kwargs,
            };
            self.encode_prompt(prompt, wanted, room)
        };
        let most = self.truncation.prompt_tokens_max(self.model.context_max);
        let turns = DroppableTurns::of(&messages);
        let whole = encode(messages.clone());
        if turns.count() == 0 || !is_too_long(&whole, most) {
            return whole;
        }
        // With `few` turns dropped the prompt is too long, with `many` it is as short as wanted.
        let (mut few, mut many) = (0, turns.count());
        let mut shortest = encode(turns.kept(&messages, many));
        if shortest.is_err() || is_too_long(&shortest, most) {
            // The answer gets what is left, if anything is.
            return shortest.or_else(|error| whole.map_err(|_| error));
        }
        drop(whole);
        while many - few > 1 {
            let middle = few + (many - few) / 2;
            let encoded = encode(turns.kept(&messages, middle));
            if encoded.is_err() || is_too_long(&encoded, most) {
                few = middle;
            } else {
                (many, shortest) = (middle, encoded);
            }
        }
        tracing::debug!(dropped = many, "oldest turns dropped");
        shortest
    }

    /// Encodes a prompt, of which the last tokens stay: as many as the request asks for.
    fn encode_last_tokens(
        self,
        prompt: Prompt,
        wanted: ParseOptions,
        asked: Option<usize>,
    ) -> Result<EncodedPrompt, ApiError> {
        let context_max = self.model.context_max;
        if let Some(most) = asked.filter(|most| *most > context_max) {
            let why = format!("must be at most the model's context, which is {context_max}");
            return Err(wrong_bound(most, &why));
        }
        let field = prompt.field();
        let most = asked.unwrap_or_else(|| self.truncation.prompt_tokens_max(context_max));
        let bytes = PromptLimit::of_context(self.model).bytes_max();
        let prompt = shortened(prompt, bytes.saturating_add(CUT_WORD_BYTES));
        let mut encoded = self.encode_prompt(prompt, wanted, PromptLimit::WIDEST)?;
        let tokens = encoded.ids.len();
        if tokens > most {
            let (seen, spans) = (
                std::mem::take(&mut encoded.runs),
                std::mem::take(&mut encoded.spans),
            );
            let bos = self.model.tokenizer.bos();
            let begins = bos.is_some() && encoded.ids.first().copied() == bos;
            encoded.runs = keep_last(&mut encoded.ids, (&seen, &spans), most, bos);
            // The text is that of the ids that stay.
            encoded.text = None;
            // An answer about images of which none is left would be made up.
            if encoded.runs.is_empty() && !seen.is_empty() {
                let last = spans.last().map_or(0, |span| span.start);
                let least = tokens - last + usize::from(begins);
                let why = format!(
                    "keeps no image of {field}: the last image and what is around it are {least} tokens"
                );
                return Err(match asked {
                    Some(most) => wrong_bound(most, &why),
                    None => self.full_context(field, tokens, &seen),
                });
            }
        }
        Ok(encoded)
    }
}

/// The error of a number of tokens that are to stay.
fn wrong_bound(most: usize, why: &str) -> ApiError {
    let field = "truncate_prompt_tokens";
    let message = format!("{field}: is {most}; {why}");
    ApiError::field(field, "invalid_value", message)
}

/// The prompt without text at its beginning that is beyond the last `bytes`: no context holds more, so it is not tokenized.
/// Template text and ids stay.
fn shortened(prompt: Prompt, mut bytes: usize) -> Prompt {
    match prompt {
        Prompt::Text(text) => Prompt::Text(last_bytes(&text, bytes).to_owned()),
        Prompt::Pieces(mut pieces) => {
            for piece in pieces.iter_mut().rev() {
                if let PromptPiece::User(text) = piece
                    && text.len() > bytes
                {
                    *text = last_bytes(text, bytes).into();
                }
                bytes = bytes.saturating_sub(piece.bytes());
            }
            Prompt::Pieces(pieces)
        }
        Prompt::Continued { context, then } => Prompt::Continued {
            context,
            then: Box::new(shortened(*then, bytes)),
        },
        mut prompt => {
            if let Prompt::Conversation { messages, .. } = &mut prompt {
                shorten_messages(messages, bytes);
            }
            prompt
        }
    }
}

/// Leaves out text of the first messages that is beyond the last `bytes` of all.
fn shorten_messages(messages: &mut [Message], mut bytes: usize) {
    for message in messages.iter_mut().rev() {
        for text in texts_of(&mut message.content) {
            if text.len() > bytes {
                *text = last_bytes(text, bytes).to_owned();
            }
            bytes = bytes.saturating_sub(text.len());
        }
    }
}

/// The texts of a content, the last one first: a text, or the parts of a list that are texts.
fn texts_of(content: &mut Value) -> Vec<&mut String> {
    match content {
        Value::String(text) => vec![text],
        Value::Array(parts) => {
            let texts = parts
                .iter_mut()
                .rev()
                .filter_map(|part| match part.get_mut("text") {
                    Some(Value::String(text)) => Some(text),
                    _ => None,
                });
            texts.collect()
        }
        _ => Vec::new(),
    }
}

/// At most the last `bytes` bytes of a text, whole characters.
fn last_bytes(text: &str, bytes: usize) -> &str {
    &text[text.ceil_char_boundary(text.len().saturating_sub(bytes))..]
}

/// Drops the oldest turns of a conversation, as truncation does, until at most `images_max` images are in it, and the images
/// that are in no message any more; the others get new numbers. Nothing is dropped where that does not suffice.
pub fn drop_image_turns(prompts: &mut [Prompt], images: &mut Vec<ImagePart>, images_max: usize) {
    let [Prompt::Conversation { messages, .. }] = prompts else {
        return;
    };
    if images.len() <= images_max {
        return;
    }
    let turns = DroppableTurns::of(messages);
    let counts: Vec<usize> = (1..=turns.count()).collect();
    let has_too_many = |&dropped: &usize| {
        let kept = turns.kept(messages, dropped);
        image_numbers(&kept).len() > images_max
    };
    let Some(&dropped) = counts.get(counts.partition_point(has_too_many)) else {
        return;
    };
    let mut kept = turns.kept(messages, dropped);
    let numbers = image_numbers(&kept);
    for message in &mut kept {
        renumber_images(&mut message.content, &numbers);
    }
    tracing::debug!(dropped, "oldest turns dropped for their images");
    *messages = kept;
    let mut number = 0..;
    images.retain(|_| {
        number
            .next()
            .is_some_and(|number| numbers.contains(&number))
    });
}

/// Numbers of the images that are parts of these messages.
fn image_numbers(messages: &[Message]) -> BTreeSet<usize> {
    let contents = messages.iter().map(|message| &message.content);
    let parts = contents.filter(|content| content.is_array());
    parts.flat_map(images_of).collect()
}

/// Gives the images of a message the numbers of their places among `numbers`.
fn renumber_images(content: &mut Value, numbers: &BTreeSet<usize>) {
    let old = images_of(content).into_iter();
    let Value::Array(parts) = content else {
        return;
    };
    let images = parts.iter_mut().filter(|part| part["type"] == "image");
    for (part, old) in images.zip(old) {
        *part = image_part(numbers.range(..old).count());
    }
}

/// Whether a prompt has more than `most` tokens, or so much text that it was not tokenized.
fn is_too_long(encoded: &Result<EncodedPrompt, ApiError>, most: usize) -> bool {
    match encoded {
        Ok(encoded) => encoded.ids.len() > most,
        Err(error) => matches!(error.code, "context_length_exceeded" | "too_long"),
    }
}

/// Keeps the last `most` ids, one of them for the beginning-of-sequence id if the ids begin with that; fewer, where the cut would
/// be within an image or its marks. Returns the runs of images that stay.
fn keep_last(
    ids: &mut Vec<u32>,
    (runs, spans): (&[ImageRun], &[Range<usize>]),
    most: usize,
    bos: Option<u32>,
) -> Vec<ImageRun> {
    let begins = most > 1 && bos.is_some() && ids.first().copied() == bos;
    let first = usize::from(begins);
    let end = first + ids.len().saturating_sub(most);
    let cut = spans.iter().find(|span| span.start < end && end < span.end);
    let end = cut.map_or(end, |span| span.end);
    ids.drain(first..end);
    let dropped = end - first;
    let kept = runs.iter().filter(|run| run.rows.start >= end);
    kept.map(|run| ImageRun {
        rows: run.rows.start - dropped..run.rows.end - dropped,
        ..run.clone()
    })
    .collect()
}

/// Parts of a conversation that may be dropped, oldest first: whole turns before the last user message, then the older
/// steps after that message (an assistant's message with the results of the tool calls).
///
/// The last user message, the last message with the step it belongs to, and instructions are in no part that is dropped.
#[derive(Debug)]
pub(super) struct DroppableTurns {
    /// Messages of each part, in order.
    turns: Vec<Range<usize>>,
}

impl DroppableTurns {
    /// The parts of a conversation.
    pub(super) fn of(messages: &[Message]) -> Self {
        let last_user = messages.iter().rposition(|message| message.role == "user");
        let starts_part = |i: usize| match messages[i].role.as_str() {
            "user" => true,
            "tool" | "system" | "developer" => false,
            _ => last_user.is_none_or(|last| i > last),
        };
        let mut bounds: Vec<usize> = (0..messages.len())
            .filter(|&i| i == 0 || starts_part(i))
            .collect();
        bounds.push(messages.len());
        let stays = |part: &Range<usize>| {
            part.end == messages.len()
                || last_user.is_some_and(|last| part.contains(&last))
                || messages[part.clone()].iter().all(is_instruction)
        };
        let parts = bounds.windows(2).map(|pair| pair[0]..pair[1]);
        Self {
            turns: parts.filter(|part| !stays(part)).collect(),
        }
    }

    /// Number of parts.
    pub(super) fn count(&self) -> usize {
        self.turns.len()
    }

    /// The conversation without the first `dropped` parts. A result whose tool call was dropped is dropped, too.
    pub(super) fn kept(&self, messages: &[Message], dropped: usize) -> Vec<Message> {
        let mut is_dropped = vec![false; messages.len()];
        for i in self.turns.iter().take(dropped).flat_map(Range::clone) {
            is_dropped[i] = !is_instruction(&messages[i]);
        }
        let (mut gone, mut called) = (HashSet::new(), HashSet::new());
        for (message, &is_dropped) in messages.iter().zip(&is_dropped) {
            let ids = if is_dropped { &mut gone } else { &mut called };
            ids.extend(call_ids(message));
        }
        let is_orphan = |message: &Message| {
            let id = message.rest.get("tool_call_id").and_then(|id| id.as_str());
            message.role == "tool" && id.is_some_and(|id| gone.contains(id) && !called.contains(id))
        };
        let kept = messages.iter().zip(&is_dropped);
        let kept = kept.filter(|(message, is_dropped)| !**is_dropped && !is_orphan(message));
        kept.map(|(message, _)| message.clone()).collect()
    }
}

/// Whether a message instructs the model: never dropped.
fn is_instruction(message: &Message) -> bool {
    matches!(message.role.as_str(), "system" | "developer")
}

/// Ids of the tool calls in a message.
fn call_ids(message: &Message) -> impl Iterator<Item = &str> {
    let calls = message
        .rest
        .get("tool_calls")
        .and_then(|calls| calls.as_array());
    let calls = calls.into_iter().flatten();
    calls.filter_map(|call| call.get("id")?.as_str())
}

#[cfg(test)]
mod turns_tests;

#[cfg(test)]
mod tests;
