//! The query string of a request, by name.

use crate::metadata::METADATA_MAX;
use generate::error::ApiError;
use http::Uri;

/// Limit of fields in a query string: all entries of a `metadata` filter, and others.
const FIELDS_MAX: usize = METADATA_MAX + 16;

/// The fields of a query string.
pub struct Query(Vec<(String, String)>);

impl Query {
    /// Parses the query string of a URI.
    ///
    /// # Errors
    /// The query string is malformed or has too many fields.
    pub fn of(uri: &Uri) -> Result<Self, ApiError> {
        serde_urlencoded::from_str::<Vec<(String, String)>>(uri.query().unwrap_or_default())
            .ok()
            .filter(|fields| fields.len() <= FIELDS_MAX)
            .map(Self)
            .ok_or_else(|| {
                ApiError::bad_request(
                    "invalid_query",
                    "the query string is malformed or has too many fields",
                )
            })
    }

    /// The first value of `name`.
    pub fn get(&self, name: &str) -> Option<&str> {
        let mut fields = self.0.iter();
        fields
            .find(|(field, _)| field == name)
            .map(|(_, value)| value.as_str())
    }

    /// Members of an object in the notation `object[member]=value`.
    pub fn members(&self, object: &str) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().filter_map(move |(field, value)| {
            let member = field.strip_prefix(object)?.strip_prefix('[')?;
            Some((member.strip_suffix(']')?, value.as_str()))
        })
    }

    /// Number of fields with this name.
    pub fn count(&self, name: &str) -> usize {
        self.0.iter().filter(|(field, _)| field == name).count()
    }

    /// The first value of `name` as a number from 0 to `max`.
    ///
    /// # Errors
    /// The value is not such a number.
    pub fn number(&self, name: &str, max: u64) -> Result<Option<u64>, ApiError> {
        let Some(text) = self.get(name) else {
            return Ok(None);
        };
        let number = text.parse().ok().filter(|&number| number <= max);
        number.map(Some).ok_or_else(|| {
            let error_message = format!("{name}: must be an integer from 0 to {max}");
            ApiError::field(name, "invalid_value", error_message)
        })
    }
}
