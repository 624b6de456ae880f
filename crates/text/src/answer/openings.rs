//! Delimiters that open calls in a family's answers.

use super::call_form::{CallSyntax, HeaderPart, Way};
use super::family::{AnswerFormat, ToolFamily};
use super::mark::{Counts, Mark};
use super::syntax::{Place, Then};

/// Delimiters of a family for a [`DelimiterSet`](super::DelimiterSet); `None` for a family without calls.
pub(super) fn of(format: AnswerFormat) -> Option<Vec<Mark>> {
    if format.tools == ToolFamily::Harmony {
        let parts = HeaderPart::openings().into_iter();
        let mark =
            |(text, part)| Mark::new(text, Counts::Anywhere, Some(CallSyntax(Way::Header(part))));
        return Some(parts.map(mark).collect());
    }
    let syntax = format.tools.syntax()?;
    let calls = syntax.markers.iter().map(|marker| {
        let first = marker.text.chars().next();
        let form = match marker.then {
            Then::Call(body) => Some(CallSyntax(Way::Body(body, None))),
            Then::CallHere(body) => Some(CallSyntax(Way::Body(body, first))),
            _ => None,
        };
        let counts = match (marker.place, form) {
            (Place::Start, _) => Counts::Start,
            (Place::Between, None) => Counts::Between,
            _ => Counts::Anywhere,
        };
        Mark::new(marker.text, counts, form)
    });
    // After reasoning, delimiters that are valid only at the start are valid again.
    let thoughts = format.reasoning_delimiters().into_iter();
    let thoughts = thoughts.flat_map(|(opens, closes)| opens.iter().chain(closes));
    let thoughts = thoughts.map(|text| Mark::new(text, Counts::Anywhere, None));
    Some(calls.chain(thoughts).collect())
}
