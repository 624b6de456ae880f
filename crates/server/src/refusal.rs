//! In whose words a request is refused that no route answered: by its path.
//!
//! A route refuses in its own dialect. The door, the router and the guard against panics stand before the
//! routes, and look here. A new dialect brings a row.

use crate::wire::anthropic;
use crate::wire::native;
use crate::wire::ollama;
use crate::wire::openai;
use axum::body::Body;
use axum::http::Response;
use generate::error::ApiError;

/// Writes an error as the answer to a request.
type Spell = fn(&ApiError) -> Response<Body>;

/// A path, with all that is under it, and how it spells errors; OpenAI's way where there is no row.
const DIALECTS: &[(&str, Spell)] = &[
    ("/v1/messages", anthropic::refusal::response),
    ("/v1/inference", native::refusal::response),
    ("/v1/jobs", native::refusal::response),
    ("/v1/workflows", native::refusal::response),
    ("/v1/runs", native::refusal::response),
    ("/v1/heartbeats", native::refusal::response),
    ("/v1/loading", native::refusal::response),
    ("/v1/ready", native::refusal::response),
    ("/health", native::refusal::response),
    ("/api", ollama::refusal::response),
];

/// The error as the answer to a request for `path`.
pub(crate) fn response(path: &str, error: &ApiError) -> Response<Body> {
    let row = DIALECTS.iter().find(|(root, _)| is_under(path, root));
    let spell = row.map_or(openai::refusal::response as Spell, |&(_, spell)| spell);
    spell(error)
}

fn is_under(path: &str, root: &str) -> bool {
    let rest = path.strip_prefix(root);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::is_under;

    #[test]
    fn a_row_is_for_a_path_and_what_is_under_it() {
        let rows = [
            ("/v1/jobs", true),
            ("/v1/jobs/", true),
            ("/v1/jobs/7/stream", true),
            ("/v1/jobsite", false),
            ("/v1/job", false),
            ("/x/v1/jobs", false),
        ];
        for (path, want) in rows {
            assert_eq!(is_under(path, "/v1/jobs"), want, "{path}");
        }
    }
}
