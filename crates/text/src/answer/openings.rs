//! Where calls open in a family's answers, and how what follows is written.

use super::family::{AnswerFormat, ToolFamily};
use super::syntax::{Body, Place, Then};
use super::watched::{Counts, Mark};
use super::written::HeaderPart;

/// How what follows an opening is written: a grammar's source together with the tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallForm(pub(super) Way);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// A call, some of whose first characters may be there: those of a marker that is one itself.
    Body(Body, Option<char>),
    /// A part of gpt-oss's headers, with the messages under them.
    Header(HeaderPart),
}

impl CallForm {
    /// A call in gpt-oss's `commentary` channel, from the recipient to the end of the arguments.
    pub const HARMONY_CALL: Self = Self(Way::Header(HeaderPart::Recipient));
    /// gpt-oss's answers from the first header on, which may be that of a call.
    pub const HARMONY_FIRST: Self = Self(Way::Header(HeaderPart::Tail));
}

/// The marks of a family that a watch looks for; `None`: it writes no calls.
pub(super) fn of(format: AnswerFormat) -> Option<Vec<Mark>> {
    if format.tools == ToolFamily::Harmony {
        let parts = HeaderPart::openings().into_iter();
        let mark =
            |(text, part)| Mark::new(text, Counts::Anywhere, Some(CallForm(Way::Header(part))));
        return Some(parts.map(mark).collect());
    }
    let syntax = format.tools.syntax()?;
    let calls = syntax.markers.iter().map(|marker| {
        let first = marker.text.chars().next();
        let form = match marker.then {
            Then::Call(body) => Some(CallForm(Way::Body(body, None))),
            Then::CallHere(body) => Some(CallForm(Way::Body(body, first))),
            _ => None,
        };
        let counts = match (marker.place, form) {
            (Place::Start, _) => Counts::Start,
            (Place::Between, None) => Counts::Between,
            _ => Counts::Anywhere,
        };
        Mark::new(marker.text, counts, form)
    });
    // After a thought it is as at the beginning.
    let thoughts = format.thought_texts().into_iter();
    let thoughts = thoughts.flat_map(|(opens, closes)| opens.iter().chain(closes));
    let thoughts = thoughts.map(|text| Mark::new(text, Counts::Anywhere, None));
    Some(calls.chain(thoughts).collect())
}
