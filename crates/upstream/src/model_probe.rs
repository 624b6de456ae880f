//! Which model an upstream serves, and how it is asked for tokens.

use super::config::UpstreamApi;
use super::http_call::Target;
use serde::Deserialize;

/// Names of models in a message.
const NAMES_SHOWN_MAX: usize = 8;

/// Kind of server of an upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum UpstreamKind {
    /// Millrace of this version: random numbers depend on seed, choice and index, and an answer continues from its tokens.
    Millrace(String),
    /// Returns ids with `return_token_ids`.
    OpenAi,
    /// Returns text.
    OpenAiText,
    /// llama.cpp's server.
    LlamaCpp,
}

/// A model that an upstream serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FoundModel {
    /// Name in requests.
    pub(crate) name: String,
    pub(crate) kind: UpstreamKind,
    /// Tokens that prompt and answer may have together, where the upstream says it.
    pub(crate) context_max: Option<usize>,
}

#[derive(Deserialize)]
struct ListedModels {
    data: Vec<Listed>,
}

#[derive(Clone, Deserialize)]
struct Listed {
    id: String,
    #[serde(default)]
    owned_by: String,
    max_model_len: Option<usize>,
    /// Millrace's, of a model that is not loaded.
    state: Option<String>,
}

/// Asks an upstream for its models.
///
/// # Errors
/// The upstream does not answer, or does not serve the model; the text says what the operator can do.
pub(crate) async fn find_model(target: Target<'_>) -> Result<FoundModel, String> {
    let list = target.get_json("/v1/models").await?;
    let list: ListedModels =
        serde_json::from_value(list).map_err(|why| format!("/v1/models: {why}"))?;
    let model = choose(&list.data, target.config.model.as_deref())?;
    if let Some(state) = &model.state {
        return Err(format!("model {:?} is {state:.40}", model.id));
    }
    let kind = match (target.config.api, model.owned_by.as_str()) {
        (UpstreamApi::Auto, "millrace") => {
            let version = target.get_json("/version").await?;
            let version = version["version"].as_str().unwrap_or_default();
            UpstreamKind::Millrace(version.to_owned())
        }
        (UpstreamApi::Auto, "llamacpp") | (UpstreamApi::LlamaCpp, _) => UpstreamKind::LlamaCpp,
        (UpstreamApi::Auto | UpstreamApi::OpenAi, _) => UpstreamKind::OpenAi,
        (UpstreamApi::OpenAiText, _) => UpstreamKind::OpenAiText,
    };
    let context_max = match kind {
        // The context of one slot.
        UpstreamKind::LlamaCpp => target.get_json("/props").await.ok().and_then(|props| {
            let context = &props["default_generation_settings"]["n_ctx"];
            context.as_u64().and_then(|n| usize::try_from(n).ok())
        }),
        _ => model.max_model_len,
    };
    Ok(FoundModel {
        name: model.id,
        kind,
        context_max,
    })
}

/// The model of this name; without one, the only model.
fn choose(list: &[Listed], name: Option<&str>) -> Result<Listed, String> {
    let found = match (name, list) {
        (Some(name), _) => list.iter().find(|model| model.id == name),
        (None, [only]) => Some(only),
        (None, _) => None,
    };
    if let Some(found) = found {
        return Ok(found.clone());
    }
    if list.is_empty() {
        return Err("lists no model".to_owned());
    }
    let shown = list.iter().take(NAMES_SHOWN_MAX);
    let shown: Vec<_> = shown
        .map(|model| format!("\"{:.100}\"", model.id))
        .collect();
    let rest = match list.len().saturating_sub(NAMES_SHOWN_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let shown = shown.join(", ") + &rest;
    Err(match name {
        Some(name) => format!("has no model {name:?} (upstream.model); it lists {shown}"),
        None => format!("lists several models: set upstream.model to one of {shown}"),
    })
}

impl UpstreamKind {
    /// Whether ids may be those of a cover of text.
    pub(crate) fn may_cover_text(&self) -> bool {
        matches!(self, Self::OpenAiText | Self::LlamaCpp)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(names: &[&str]) -> Vec<Listed> {
        let of = |name: &&str| Listed {
            id: (*name).to_owned(),
            owned_by: String::new(),
            max_model_len: None,
            state: None,
        };
        names.iter().map(of).collect()
    }

    #[test]
    fn only_model_is_chosen_and_choices_are_named() {
        let chosen = |names: &[&str], name| choose(&listed(names), name).map(|model| model.id);
        assert_eq!(chosen(&["a"], None).as_deref(), Ok("a"));
        assert_eq!(chosen(&["a", "b"], Some("b")).as_deref(), Ok("b"));
        for (names, name, parts) in [
            (&[][..], None, &["no model"][..]),
            (&["a", "b"], None, &["upstream.model", "\"a\", \"b\""]),
            (&["a", "b"], Some("c"), &["\"c\"", "\"a\", \"b\""]),
            (&["x"; 20], None, &["and 12 more"]),
        ] {
            let why = chosen(names, name).unwrap_err();
            assert!(parts.iter().all(|part| why.contains(part)), "{why}");
        }
    }
}
