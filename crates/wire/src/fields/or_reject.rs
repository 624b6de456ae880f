//! Fields that must have a value.

use super::Fields;
use std::fmt::Display;

/// A value that a field must have.
pub trait OrReject: Sized {
    /// The value; without one, records in `fields` the condition that `field` violates. Both are formatted for an error only.
    #[must_use]
    fn or_reject(
        self,
        fields: &mut Fields<'_>,
        field: impl Display,
        constraint: impl Display,
    ) -> Self;
}

impl<T> OrReject for Option<T> {
    fn or_reject(
        self,
        fields: &mut Fields<'_>,
        field: impl Display,
        constraint: impl Display,
    ) -> Self {
        if self.is_none() {
            fields.reject(field, constraint);
        }
        self
    }
}
