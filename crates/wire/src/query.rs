//! A request's query, by name.

use generate::error::ApiError;
use http::Uri;

/// Fields a query may have.
const FIELDS_MAX: usize = 16;

/// A request's query.
pub struct Query(Vec<(String, String)>);

impl Query {
    /// Takes it apart.
    ///
    /// # Errors
    /// It is none, or too long.
    pub fn of(uri: &Uri) -> Result<Self, ApiError> {
        serde_urlencoded::from_str::<Vec<(String, String)>>(uri.query().unwrap_or_default())
            .ok()
            .filter(|fields| fields.len() <= FIELDS_MAX)
            .map(Self)
            .ok_or_else(|| ApiError::bad_request("invalid_query", "the query cannot be read"))
    }

    /// The first value of `name`.
    pub fn get(&self, name: &str) -> Option<&str> {
        let mut fields = self.0.iter();
        fields
            .find(|(field, _)| field == name)
            .map(|(_, value)| value.as_str())
    }

    /// The same, as a number from 0 to `max`.
    pub fn number(&self, name: &str, max: u64) -> Result<Option<u64>, ApiError> {
        let Some(text) = self.get(name) else {
            return Ok(None);
        };
        let number = text.parse().ok().filter(|&number| number <= max);
        number.map(Some).ok_or_else(|| {
            let words = format!("{name}: must be an integer from 0 to {max}");
            ApiError::field(name, "invalid_value", words)
        })
    }
}
