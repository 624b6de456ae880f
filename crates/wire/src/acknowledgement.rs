//! Parser of `POST /v1/streams/{id}/ack`.

use crate::fields::Fields;
use generate::error::ApiError;

/// Error message for a missing `index`.
pub(crate) const INDEX_MESSAGE: &str = "must be the number of tokens the client has";

/// An acknowledgement of received tokens, or of the end.
#[derive(Clone, Copy, Debug)]
pub struct Acknowledgement {
    /// Number of tokens that the client has; a body without it has `end`.
    pub index: Option<u64>,
    /// The choice of the tokens; every choice if absent.
    pub choice: Option<usize>,
    /// Whether the client has the end, or does not need it.
    pub end: bool,
}

impl Acknowledgement {
    /// Parses an acknowledgement of a stream with choices up to `choice_max`.
    ///
    /// # Errors
    /// All invalid fields at once.
    pub fn parse(mut fields: Fields<'_>, choice_max: usize) -> Result<Self, ApiError> {
        let index = fields.integer("index", 0..=i128::from(u64::MAX));
        let end = fields.boolean("end").unwrap_or(false);
        if fields.raw("index").is_none() && fields.raw("end").is_none() {
            fields.reject("index", INDEX_MESSAGE);
        }
        let choice = fields.integer("choice", 0..=choice_max as i128);
        fields.finish()?;
        Ok(Self {
            index: index.and_then(|index| u64::try_from(index).ok()),
            choice: choice.and_then(|choice| usize::try_from(choice).ok()),
            end,
        })
    }
}
