//! Syntax of a call from the opening delimiter on.

use super::family_syntax::CallBody;
use super::harmony_parser::{CALL, CHANNEL, END, RETURN, START};

/// Syntax of the text after an opening delimiter. Together with the tools, the source of a grammar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallSyntax(pub(super) CallSyntaxKind);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallSyntaxKind {
    /// A call body. The first text is the delimiter's own, where the delimiter is the beginning of the call; the second
    /// closes the call, if not empty.
    CallBody(CallBody, &'static str, &'static str),
    /// A part of a Harmony header (gpt-oss), and the messages after the header.
    Header(HeaderPart),
}

impl CallSyntax {
    /// A call in gpt-oss's `commentary` channel, from the recipient to the end of the arguments.
    pub const HARMONY_CALL: Self = Self(CallSyntaxKind::Header(HeaderPart::Recipient));
    /// A gpt-oss answer from the first header on; the first message may be a call.
    pub const HARMONY_FIRST: Self = Self(CallSyntaxKind::Header(HeaderPart::Tail));
}

/// The place in a Harmony header where generation continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeaderPart {
    /// Before the role.
    Role,
    /// After the role.
    Tail,
    /// After the token that opens a channel.
    Channel,
    /// After a message.
    After,
    /// At the recipient of a call, after the channel; extends to the end of the arguments.
    Recipient,
}

impl HeaderPart {
    /// Tokens that may begin a header, each with the place in the header that follows.
    pub(super) fn openings() -> [(&'static str, Self); 5] {
        let after = |mark| (mark, Self::After);
        [
            (START, Self::Role),
            (CHANNEL, Self::Channel),
            after(END),
            after(CALL),
            after(RETURN),
        ]
    }
}
