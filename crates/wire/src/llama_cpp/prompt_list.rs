//! A prompt that is a list: token ids, or strings and token ids that make one prompt. Items are parsed one by one, and an
//! id takes four bytes.

use crate::fields::bounds::{IDS_MAX, token_id, token_id_message};
use crate::fields::{JsonType, RawJson, as_text, json_type};
use generate::error::Problem;
use generate::request::{MIXED_PARTS_MAX, MixedPart, Prompt};
use serde::Deserializer as _;
use serde::de::{Error as _, SeqAccess, Visitor};
use std::fmt;

/// The items of a list so far.
struct PromptList<'a> {
    path: &'a str,
    vocab: usize,
    items: usize,
    ids: usize,
    texts: usize,
    parts: Vec<MixedPart>,
    /// The first item, if that is a list itself.
    inner: Option<RawJson<'a>>,
    problem: Option<Problem>,
}

/// Parses the list `raw`, the field `path`. A list of one prompt is that prompt.
///
/// # Errors
/// An item is neither a string nor a token id; the list has several prompts, or more than [`MIXED_PARTS_MAX`] parts.
pub(super) fn parse_list(path: &str, raw: RawJson<'_>, vocab: usize) -> Result<Prompt, Problem> {
    let list = PromptList::parse(path, raw, vocab)?;
    let Some(inner) = list.inner else {
        return list.into_prompt();
    };
    if list.items > 1 {
        return Err(several(path, list.items));
    }
    let inner_path = format!("{path}[0]");
    let inner = PromptList::parse(&inner_path, inner, vocab)?;
    match inner.inner {
        Some(_) => Err(wrong_item(&inner_path, 0)),
        None => inner.into_prompt(),
    }
}

fn several(path: &str, prompts: usize) -> Problem {
    let message =
        format!("has {prompts} prompts: one is accepted here; /v1/completions takes several");
    Problem::new(path, message)
}

fn wrong_item(path: &str, index: usize) -> Problem {
    Problem::new(
        format!("{path}[{index}]"),
        "must be a string or a token id, which make one prompt together",
    )
}

impl<'a> PromptList<'a> {
    fn parse(path: &'a str, raw: RawJson<'a>, vocab: usize) -> Result<Self, Problem> {
        let mut list = Self {
            path,
            vocab,
            items: 0,
            ids: 0,
            texts: 0,
            parts: Vec::new(),
            inner: None,
            problem: None,
        };
        let mut json = serde_json::Deserializer::from_str(raw.get());
        let parsed = json.deserialize_seq(EachItem(&mut list));
        match list.problem.take() {
            Some(problem) => Err(problem),
            None if parsed.is_err() => Err(Problem::new(path, "must be a list")),
            None => Ok(list),
        }
    }

    /// Takes the next item; false after an invalid one.
    fn add(&mut self, item: RawJson<'a>) -> bool {
        let index = self.items;
        self.items += 1;
        let result = match json_type(item) {
            JsonType::String => {
                self.texts += 1;
                let text = as_text(item).unwrap_or_default();
                self.parts.push(MixedPart::Text(text.into_owned()));
                Ok(())
            }
            JsonType::Number => self.add_id(index, item),
            JsonType::Array if index == 0 => {
                self.inner = Some(item);
                Ok(())
            }
            JsonType::Array if self.inner.is_some() => Ok(()),
            _ => Err(wrong_item(self.path, index)),
        };
        let result = result.and_then(|()| self.check_size());
        self.problem = result.err();
        self.problem.is_none()
    }

    fn add_id(&mut self, index: usize, item: RawJson<'_>) -> Result<(), Problem> {
        let id = token_id(item, self.vocab).ok_or_else(|| {
            Problem::new(
                format!("{}[{index}]", self.path),
                token_id_message(self.vocab),
            )
        })?;
        self.ids += 1;
        match self.parts.last_mut() {
            Some(MixedPart::Ids(ids)) => ids.push(id),
            _ => self.parts.push(MixedPart::Ids(vec![id])),
        }
        Ok(())
    }

    fn check_size(&self) -> Result<(), Problem> {
        if self.ids > IDS_MAX {
            let message = format!("must hold at most {IDS_MAX} token ids");
            return Err(Problem::new(self.path, message));
        }
        if self.parts.len() > MIXED_PARTS_MAX {
            let message =
                format!("must hold at most {MIXED_PARTS_MAX} strings and runs of token ids");
            return Err(Problem::new(self.path, message));
        }
        Ok(())
    }

    fn into_prompt(mut self) -> Result<Prompt, Problem> {
        if self.texts > 1 && self.texts == self.items {
            return Err(several(self.path, self.items));
        }
        Ok(match (self.parts.len(), self.parts.pop()) {
            (1, Some(MixedPart::Text(text))) => Prompt::Text(text),
            (1, Some(MixedPart::Ids(ids))) => Prompt::Ids(ids),
            (_, None) => Prompt::Ids(Vec::new()),
            (_, Some(last)) => {
                self.parts.push(last);
                Prompt::Mixed(self.parts)
            }
        })
    }
}

/// Passes each item of a list on.
struct EachItem<'l, 'a>(&'l mut PromptList<'a>);

impl<'a> Visitor<'a> for EachItem<'_, 'a> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<S: SeqAccess<'a>>(self, mut seq: S) -> Result<(), S::Error> {
        while let Some(item) = seq.next_element::<RawJson<'a>>()? {
            if !self.0.add(item) {
                return Err(S::Error::custom("an invalid item"));
            }
        }
        Ok(())
    }
}
