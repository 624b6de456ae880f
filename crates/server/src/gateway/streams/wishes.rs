//! What a request's header fields say about its stream.

use axum::http::HeaderMap;
use generate::error::{ApiError, Problem};

/// The header that asks for a stream that goes on without its client.
pub(crate) const RESUMABLE: &str = "x-stream-resumable";
/// The header that says who returns credit.
const ACKS: &str = "x-stream-acks";

/// What a client wants of its stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wishes {
    pub(crate) resumable: bool,
    pub(crate) explicit_acks: bool,
}

impl Wishes {
    /// Reads them; all that cannot be read is told at once.
    pub(crate) fn parse(headers: &HeaderMap) -> Result<Self, ApiError> {
        let mut problems = Vec::new();
        let mut read = |name: &str, words: &str, read: fn(&str) -> Option<bool>| {
            let value = headers.get(name)?;
            let meant = value.to_str().ok().and_then(|text| read(text.trim()));
            if meant.is_none() {
                problems.push(Problem::new(name, words));
            }
            meant
        };
        let resumable = read(RESUMABLE, "must be 1 or 0", |text| match text {
            "1" | "true" => Some(true),
            "0" | "false" => Some(false),
            _ => None,
        });
        let explicit_acks = read(ACKS, "must be explicit or socket", |text| match text {
            "explicit" => Some(true),
            "socket" => Some(false),
            _ => None,
        });
        if !problems.is_empty() {
            return Err(ApiError::fields(problems));
        }
        Ok(Self {
            resumable: resumable.unwrap_or(false),
            explicit_acks: explicit_acks.unwrap_or(false),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::status::status_code;
    use axum::http::{HeaderName, HeaderValue};

    fn parse(fields: &[(&'static str, &'static str)]) -> Result<Wishes, ApiError> {
        let field = |&(name, value)| {
            (
                HeaderName::from_static(name),
                HeaderValue::from_static(value),
            )
        };
        Wishes::parse(&fields.iter().map(field).collect())
    }

    #[test]
    fn wishes_are_read_and_nonsense_is_not() {
        let wishes = |resumable, explicit_acks| Wishes {
            resumable,
            explicit_acks,
        };
        let rows: [(&[_], _); 4] = [
            (&[], wishes(false, false)),
            (&[(RESUMABLE, "1")], wishes(true, false)),
            (&[(RESUMABLE, "0"), (ACKS, "explicit")], wishes(false, true)),
            (
                &[(RESUMABLE, " true "), (ACKS, "socket")],
                wishes(true, false),
            ),
        ];
        for (fields, want) in rows {
            assert_eq!(parse(fields).ok(), Some(want), "{fields:?}");
        }
        let error = parse(&[(RESUMABLE, "yes"), (ACKS, "2")]).expect_err("nonsense");
        assert_eq!(
            (status_code(error.kind).as_u16(), error.problems.len()),
            (400, 2)
        );
    }
}
