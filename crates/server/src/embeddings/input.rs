//! The texts of a request.

use super::INPUTS_MAX;
use crate::ask::Prompt;
use crate::fields::{self, Fields, Kind, Raw};
use crate::openai::control;

/// A string, strings, ids, or lists of ids. What is wrong is noted.
pub(super) fn read(fields: &mut Fields<'_>, name: &str, vocab: usize) -> Vec<Prompt> {
    let Some(raw) = fields.raw(name) else {
        fields.wrong(name, "is required");
        return Vec::new();
    };
    if let Some(text) = fields::text(raw) {
        return one(fields, name, &text).into_iter().collect();
    }
    match fields::list(raw, usize::MAX).as_deref() {
        Some([]) | None => fields.wrong(
            name,
            "must be a string, a list of strings, token ids, or lists of token ids",
        ),
        Some(items) if fields::kind(items[0]) == Kind::Number => {
            return ids(fields, name, items, vocab).into_iter().collect();
        }
        Some(items) if items.len() > INPUTS_MAX => {
            fields.wrong(name, format!("must hold at most {INPUTS_MAX} texts"));
        }
        Some(items) => {
            let read = |(i, item): (usize, &Raw<'_>)| {
                let path = format!("{name}[{i}]");
                if let Some(text) = fields::text(item) {
                    return one(fields, &path, &text);
                }
                match fields::list(item, usize::MAX) {
                    Some(items) => ids(fields, &path, &items, vocab),
                    None => {
                        fields.wrong(path, "must be a string or a list of token ids");
                        None
                    }
                }
            };
            return items.iter().enumerate().filter_map(read).collect();
        }
    }
    Vec::new()
}

fn one(fields: &mut Fields<'_>, path: &str, text: &str) -> Option<Prompt> {
    if text.is_empty() {
        fields.wrong(path, "must not be empty");
        return None;
    }
    Some(Prompt::Text(text.to_owned()))
}

fn ids(fields: &mut Fields<'_>, path: &str, items: &[Raw<'_>], vocab: usize) -> Option<Prompt> {
    if items.is_empty() {
        fields.wrong(path, "must hold at least one token id");
        return None;
    }
    let read = |(i, raw): (usize, &Raw<'_>)| {
        let id = control::token_id(raw, vocab);
        if id.is_none() {
            fields.wrong(format!("{path}[{i}]"), control::token_id_words(vocab));
        }
        id
    };
    let ids: Vec<Option<u32>> = items.iter().enumerate().map(read).collect();
    ids.into_iter()
        .collect::<Option<Vec<u32>>>()
        .map(Prompt::Ids)
}
