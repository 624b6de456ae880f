//! How a call is written from its opening on.

use super::harmony::{CALL, CHANNEL, END, RETURN, START};
use super::syntax::Body;

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

/// From where on a header is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeaderPart {
    /// From the role on.
    Role,
    /// After the role.
    Tail,
    /// After the token that opens a channel.
    Channel,
    /// After a message.
    After,
    /// A call's recipient, after its channel; to the end of its arguments.
    Recipient,
}

impl HeaderPart {
    /// What may begin a header, and from where on it then is written.
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
