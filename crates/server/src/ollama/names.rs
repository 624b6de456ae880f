//! Models by the names Ollama's clients use: with a tag, of which `latest` goes without saying.

use crate::error::ApiError;
use crate::served::{ServedModels, Slot};
use axum::http::StatusCode;
use std::sync::Arc;

/// The tag that goes without saying.
const LATEST: &str = ":latest";
/// Characters of an unknown name that are repeated to the caller.
const SHOWN_CHARS_MAX: usize = 64;

/// The model of this name, with `:latest` or without; no name means the first.
///
/// # Errors
/// There is none.
pub(crate) fn find<'a>(
    models: &'a ServedModels,
    name: Option<&str>,
) -> Result<&'a Arc<Slot>, ApiError> {
    let Some(name) = name.filter(|name| !name.is_empty()) else {
        return Ok(models.first());
    };
    let bare = name.strip_suffix(LATEST);
    let tagged = format!("{name}{LATEST}");
    let found = [Some(name), bare, Some(&tagged)]
        .into_iter()
        .flatten()
        .find_map(|name| models.find(Some(name)).ok());
    found.ok_or_else(|| {
        let shown: String = name.chars().take(SHOWN_CHARS_MAX).collect();
        ApiError::caller(
            StatusCode::NOT_FOUND,
            "model_not_found",
            format!("model '{shown}' not found"),
        )
    })
}

/// A model's name with its tag.
pub(crate) fn tagged(id: &str) -> String {
    let name = id.rsplit('/').next().unwrap_or(id);
    match name.contains(':') {
        true => id.to_owned(),
        false => format!("{id}{LATEST}"),
    }
}

#[cfg(test)]
mod tests {
    use super::tagged;

    #[test]
    fn every_name_has_a_tag() {
        for (id, want) in [
            ("tiny", "tiny:latest"),
            ("tiny:1b", "tiny:1b"),
            ("host:80/tiny", "host:80/tiny:latest"),
        ] {
            assert_eq!(tagged(id), want);
        }
    }
}
