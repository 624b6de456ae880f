//! Delimiters that open calls in a family's answers.

use super::call_syntax::{CallSyntax, CallSyntaxKind, HeaderPart};
use super::family_syntax::{self, DelimiterEffect, DelimiterPlace};
use super::model_family::{AnswerFormat, ToolFamily};
use super::watched_delimiter::{WatchPlace, WatchedDelimiter};

/// Delimiters of a family for a [`DelimiterSet`](super::DelimiterSet); `None` for a family without calls.
pub(super) fn of(format: AnswerFormat) -> Option<Vec<WatchedDelimiter>> {
    if format.tools == ToolFamily::Harmony {
        let parts = HeaderPart::openings().into_iter();
        let mark = |(text, part)| {
            WatchedDelimiter::new(
                text,
                WatchPlace::Anywhere,
                Some(CallSyntax(CallSyntaxKind::Header(part))),
            )
        };
        return Some(parts.map(mark).collect());
    }
    let syntax = format.tools.syntax()?;
    let markers = family_syntax::all_markers(syntax, format.reasoning.thoughts());
    let calls = markers.map(|marker| {
        let first = marker.text.chars().next();
        let form = match marker.then {
            DelimiterEffect::Call(body) => Some(CallSyntaxKind::CallBody(body, None, marker.close)),
            DelimiterEffect::CallHere(body) => {
                Some(CallSyntaxKind::CallBody(body, first, marker.close))
            }
            _ => None,
        };
        let form = form.map(CallSyntax);
        let counts = match (marker.place, form) {
            (DelimiterPlace::Start, _) => WatchPlace::Start,
            (DelimiterPlace::Between, None) => WatchPlace::Between,
            _ => WatchPlace::Anywhere,
        };
        WatchedDelimiter::new(marker.text, counts, form)
    });
    // After reasoning, delimiters that are valid only at the start are valid again.
    let thoughts = format.reasoning_delimiters().into_iter();
    let thoughts = thoughts.flat_map(|(opens, closes)| opens.iter().chain(closes));
    let thoughts = thoughts.map(|text| WatchedDelimiter::new(text, WatchPlace::Anywhere, None));
    Some(calls.chain(thoughts).collect())
}
