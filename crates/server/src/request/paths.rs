//! Normalization of request paths, and suggestions for unknown paths.
//!
//! A base URL with or without `/v1`, with `/v1` twice, or with a slash at the end is the most common mistake of
//! clients. The meaning is clear, so such requests are answered. The error response of an unknown path names the path
//! that was probably meant.

use crate::openapi;
use axum::http::Uri;
use axum::http::uri::PathAndQuery;
use std::borrow::Cow;
use wire::fields::edit_distance;

/// The prefix of versioned paths.
const V1: &str = "/v1";
/// First segments under [`V1`] that are accepted without the prefix, with all paths below.
const WITHOUT_V1: [&str; 7] = [
    "chat",
    "completions",
    "embeddings",
    "messages",
    "models",
    "rerank",
    "responses",
];
/// Paths of other servers that are aliases of paths of this server.
const ALIASES: [(&str, &str); 5] = [
    // Cohere's, whose body is that of /v1/rerank.
    ("/v2/rerank", "/v1/rerank"),
    ("/healthz", "/health"),
    ("/livez", "/health/liveness"),
    ("/readyz", "/health/readiness"),
    ("/ping", "/health"),
];
/// Length of a path up to which a suggestion is searched.
const SUGGESTION_BYTES_MAX: usize = 128;
/// Largest edit distance between an unknown path and a suggestion.
const SUGGESTION_DISTANCE_MAX: usize = 3;

/// Where a path is, seen from the prefix of all paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PrefixPlace {
    /// Below the prefix, or there is no prefix.
    Below,
    /// The prefix itself, without a slash at the end.
    Root,
    /// Elsewhere.
    Outside,
}

/// Takes the prefix off a request's target, and rewrites the rest to the canonical path.
pub(crate) fn enter_prefix(uri: &mut Uri, prefix: &str) -> PrefixPlace {
    let rest = match uri.path().strip_prefix(prefix) {
        Some("") if !prefix.is_empty() => return PrefixPlace::Root,
        Some(rest) if prefix.is_empty() || rest.starts_with('/') => rest,
        _ => return PrefixPlace::Outside,
    };
    if !prefix.is_empty() {
        let rest = rest.to_owned();
        set_path(uri, &rest);
    }
    canonicalize(uri);
    PrefixPlace::Below
}

fn set_path(uri: &mut Uri, path: &str) {
    let target = match uri.query() {
        Some(query) => format!("{path}?{query}"),
        None => path.to_owned(),
    };
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = PathAndQuery::try_from(target).ok();
    if let Ok(changed) = Uri::from_parts(parts) {
        *uri = changed;
    }
}

/// Rewrites a request's target to the canonical path.
fn canonicalize(uri: &mut Uri) {
    if let Cow::Owned(path) = canonical_path(uri.path()) {
        set_path(uri, &path);
    }
}

/// The canonical path: no empty segments, and `/v1` once if the route has that prefix.
fn canonical_path(path: &str) -> Cow<'_, str> {
    if path == "/" || !path.starts_with('/') {
        return Cow::Borrowed(path);
    }
    let mut path = without_empty_segments(path);
    while let Some(rest) = path.strip_prefix(V1)
        && (is_under(rest, V1) || is_under(rest, "/api"))
    {
        path = Cow::Owned(rest.to_owned());
    }
    if let Some((_, name)) = ALIASES.iter().find(|(alias, _)| *alias == path) {
        return Cow::Owned((*name).to_owned());
    }
    let first = path[1..].split('/').next().unwrap_or_default();
    if WITHOUT_V1.contains(&first) {
        Cow::Owned(format!("{V1}{path}"))
    } else {
        path
    }
}

fn without_empty_segments(path: &str) -> Cow<'_, str> {
    if !path.contains("//") && !path.ends_with('/') {
        return Cow::Borrowed(path);
    }
    let segments = path.split('/').filter(|segment| !segment.is_empty());
    let path: String = segments.flat_map(|segment| ["/", segment]).collect();
    Cow::Owned(if path.is_empty() {
        "/".to_owned()
    } else {
        path
    })
}

fn is_under(path: &str, root: &str) -> bool {
    let rest = path.strip_prefix(root);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The error message for an unknown path.
pub(crate) fn not_found_message(path: &str) -> String {
    let nothing = "unknown path";
    match (path, suggested_path(path)) {
        (V1, _) => format!(
            "{nothing}: this is a base URL; GET /v1/models lists the models, GET /docs lists all paths"
        ),
        ("/api", _) => format!(
            "{nothing}: this is a base URL; GET /api/tags lists the models, GET /docs lists all paths"
        ),
        (_, Some(meant)) => format!("{nothing}; did you mean {meant}?"),
        (_, None) => format!("{nothing}; GET /docs lists all paths"),
    }
}

/// The known path that was probably meant.
fn suggested_path(path: &str) -> Option<&'static str> {
    if path.len() > SUGGESTION_BYTES_MAX {
        return None;
    }
    // One character is wrong.
    if let Some(found) = known_paths().find(|known| edit_distance(path, known) == 1) {
        return Some(found);
    }
    // A known path with a surplus prefix or suffix; the longest is the most specific.
    let within = known_paths()
        .filter(|known| path.ends_with(known) || path.starts_with(known) && is_under(path, known));
    if let Some(found) = within.max_by_key(|known| known.len()) {
        return Some(found);
    }
    // A known path without its end or its beginning.
    let more = |known: &&str| {
        let begins = known
            .strip_prefix(path)
            .is_some_and(|rest| rest.starts_with('/'));
        begins || known.ends_with(path)
    };
    if let Some(found) = known_paths().filter(more).min_by_key(|known| known.len()) {
        return Some(found);
    }
    let near = known_paths().map(|known| {
        (
            edit_distance(without_prefix(path), without_prefix(known)),
            known,
        )
    });
    let near = near.filter(|&(changes, known)| {
        changes <= SUGGESTION_DISTANCE_MAX.min(without_prefix(known).len() / 3)
    });
    near.min_by_key(|&(changes, _)| changes)
        .map(|(_, known)| known)
}

fn known_paths() -> impl Iterator<Item = &'static str> {
    openapi::paths().filter(|known| known.len() > 1 && !known.contains('{'))
}

/// The path without the prefix of the API.
fn without_prefix(path: &str) -> &str {
    let rest = path.strip_prefix(V1).or_else(|| path.strip_prefix("/api"));
    rest.filter(|rest| rest.starts_with('/')).unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::{PrefixPlace, canonicalize, enter_prefix, not_found_message};

    #[test]
    fn prefix_is_taken_off_the_path() {
        use PrefixPlace::{Below, Outside, Root};
        for (path, prefix, want, rest) in [
            ("/models?a=/x", "", Below, "/v1/models?a=/x"),
            ("/", "", Below, "/"),
            ("/x/models?a=b", "/x", Below, "/v1/models?a=b"),
            ("/x/", "/x", Below, "/"),
            ("/x", "/x", Root, "/x"),
            ("/x?a=b", "/x", Root, "/x?a=b"),
            ("/xy/v1/models", "/x", Outside, "/xy/v1/models"),
            ("/v1/models", "/x", Outside, "/v1/models"),
            ("/a/b/health", "/a/b", Below, "/health"),
        ] {
            let mut uri = path.parse().unwrap();
            assert_eq!(enter_prefix(&mut uri, prefix), want, "{path}");
            assert_eq!(uri.to_string(), rest, "{path}");
        }
    }

    #[test]
    fn path_variants_of_a_base_url_are_canonicalized() {
        let rows = [
            ("/", "/"),
            ("/v1/models", "/v1/models"),
            ("/v1/models/", "/v1/models"),
            ("//v1//models", "/v1/models"),
            ("/v1/v1/models?a=/v1/v1/", "/v1/models?a=/v1/v1/"),
            ("/v1/v1/v1/chat/completions", "/v1/chat/completions"),
            ("/v1/api/chat", "/api/chat"),
            ("/v1/v10", "/v1/v10"),
            ("/models", "/v1/models"),
            ("/models/org/name", "/v1/models/org/name"),
            ("/models/a%2Fb", "/v1/models/a%2Fb"),
            ("/embeddings/", "/v1/embeddings"),
            ("/rerank", "/v1/rerank"),
            ("/v2/rerank", "/v1/rerank"),
            ("/completions", "/v1/completions"),
            ("/responses/r/cancel", "/v1/responses/r/cancel"),
            ("/messages/count_tokens", "/v1/messages/count_tokens"),
            ("/chat/completions", "/v1/chat/completions"),
            ("/modelsx", "/modelsx"),
            ("/api/chat/", "/api/chat"),
            ("/healthz", "/health"),
            ("/readyz/", "/health/readiness"),
            ("/v1", "/v1"),
            ("/v1/", "/v1"),
            ("//", "/"),
            (
                "http://localhost:1/v1/v1/models",
                "http://localhost:1/v1/models",
            ),
        ];
        for (path, want) in rows {
            let mut uri = path.parse().unwrap();
            canonicalize(&mut uri);
            assert_eq!(uri.to_string(), want, "{path}");
        }
    }

    #[test]
    fn unknown_path_error_suggests_a_path() {
        let rows = [
            ("/v1", Some("/v1/models")),
            ("/api", Some("/api/tags")),
            ("/v1/chat/completion", Some("/v1/chat/completions?")),
            ("/v1/chat", Some("/v1/chat/completions?")),
            ("/v1/completion", Some("/v1/completions?")),
            ("/v1/completionz", Some("/v1/completions?")),
            ("/embedding", Some("/v1/embeddings?")),
            ("/v1/embedding", Some("/v1/embeddings?")),
            ("/openai/v1/chat/completions", Some("/v1/chat/completions?")),
            (
                "/v1/chat/completions/chat/completions",
                Some("/v1/chat/completions?"),
            ),
            ("/generate", Some("/api/generate?")),
            ("/api/tag", Some("/api/tags?")),
            ("/v1/message", Some("/v1/messages?")),
            ("/v1/images/generations", None),
            ("/favicon.ico", None),
            ("/nothing", None),
            ("/x", None),
        ];
        for (path, meant) in rows {
            let message = not_found_message(path);
            let want = meant.unwrap_or("GET /docs");
            assert!(message.contains(want), "{path}: {message}");
            assert_eq!(
                message.contains("did you mean"),
                meant.is_some_and(|m| m.ends_with('?')),
                "{path}: {message}"
            );
        }
        assert!(!not_found_message(&"/v1/model".repeat(100)).contains("mean"));
    }
}
