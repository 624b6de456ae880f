//! Parser of `POST /v1/streams/{id}/ack`.

use crate::fields::Fields;
use generate::error::ApiError;

/// Error message for a missing `index`.
pub(crate) const INDEX_MESSAGE: &str = "must be the number of tokens the client has";

/// An acknowledgement of received tokens.
#[derive(Clone, Copy, Debug)]
pub struct Acknowledgement {
    /// Number of tokens that the client has.
    pub index: u64,
    /// The choice of the tokens; every choice if absent.
    pub choice: Option<usize>,
}

impl Acknowledgement {
    /// Parses an acknowledgement of a stream with choices up to `choice_max`.
    ///
    /// # Errors
    /// All invalid fields at once.
    pub fn parse(mut fields: Fields<'_>, choice_max: usize) -> Result<Self, ApiError> {
        let index = fields.integer("index", 0..=i128::from(u64::MAX));
        if fields.raw("index").is_none() {
            fields.reject("index", INDEX_MESSAGE);
        }
        let choice = fields.integer("choice", 0..=choice_max as i128);
        fields.finish()?;
        let index = index.and_then(|index| u64::try_from(index).ok());
        Ok(Self {
            index: index.unwrap_or(0),
            choice: choice.and_then(|choice| usize::try_from(choice).ok()),
        })
    }
}
