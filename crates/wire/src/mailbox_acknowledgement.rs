//! Parser of `POST /v1/mailbox/ack`.

use crate::fields::Fields;
use generate::error::ApiError;

/// An acknowledgement of events in a mailbox.
#[derive(Clone, Debug)]
pub struct MailboxAcknowledgement {
    /// The cursor after the last event that the client needs no more.
    pub cursor: String,
}

impl MailboxAcknowledgement {
    /// Parses an acknowledgement. Whether the cursor is one is decided by the mailbox.
    ///
    /// # Errors
    /// All invalid fields at once.
    pub fn parse(mut fields: Fields<'_>) -> Result<Self, ApiError> {
        let cursor = fields.string("cursor");
        if fields.raw("cursor").is_none() {
            fields.reject("cursor", "must be a cursor that the mailbox has sent");
        }
        fields.finish()?;
        Ok(Self {
            cursor: cursor.unwrap_or_default().into(),
        })
    }
}
