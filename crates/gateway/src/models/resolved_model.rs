//! Meaning of a model's name in a request.

use super::{DerivedModel, Library, LocalModel, ModelEntry, ModelRegistry, ReadyModel};
use crate::locks::{read, write};
use generate::error::{ApiError, ErrorKind};
use generate::model_handle::AdapterUse;
use generate::sampling::SamplingDefaults;
use std::collections::HashMap;
use std::sync::{Arc, RwLock};
use std::time::{Duration, Instant};
use wire::clock;
use wire::fields::edit_distance;
use wire::ollama::store_request::LATEST;

/// Cached names; a full cache is cleared.
const NAMES_MAX: usize = 1024;
/// How long a resolved name is reused: the operator's directories may change.
const FRESH: Duration = Duration::from_secs(1);
/// Characters of an unknown name that are repeated to the caller.
const SHOWN_CHARS_MAX: usize = 64;

/// The model that a request's name resolves to.
#[derive(Clone)]
pub struct ResolvedModel {
    /// Name in responses.
    pub name: Arc<str>,
    /// The entry of the model.
    pub entry: Arc<ModelEntry>,
    /// Defaults of a derived model.
    pub(crate) made: Option<Arc<DerivedModel>>,
    /// Sampling parameters that are recommended under this name; `None`: those of the loaded model.
    recommended: Option<SamplingDefaults>,
}

/// A ready model, leased to one request: the model stays loaded while the lease exists.
#[derive(Clone)]
pub struct ModelLease {
    /// Name of the model in responses.
    pub name: Arc<str>,
    pub(crate) made: Option<Arc<DerivedModel>>,
    recommended: Option<SamplingDefaults>,
    /// The loaded model.
    pub serving: Arc<ReadyModel>,
}

impl ModelLease {
    /// Adapters of a request that says nothing about adapters.
    ///
    /// # Errors
    /// The name is one of an adapter that the loaded model does not have.
    pub fn adapters(&self) -> Result<Vec<AdapterUse>, ApiError> {
        let adapter = self.made.as_ref().and_then(|made| made.adapter.as_deref());
        self.serving.model.handle.adapters.of_model(adapter)
    }

    /// Sampling parameters that are recommended for this model.
    pub(crate) fn recommended_sampling(&self) -> SamplingDefaults {
        self.recommended
            .unwrap_or(self.serving.model.facts.sampling)
    }
}

impl ResolvedModel {
    fn first(models: &ModelRegistry) -> Self {
        let entry = models.first_entry();
        Self {
            name: Arc::from(entry.id()),
            entry: Arc::clone(entry),
            made: models.first_defaults(),
            recommended: None,
        }
    }

    /// A lease of the model.
    ///
    /// # Errors
    /// The model is not ready.
    pub fn try_lease(&self) -> Result<ModelLease, ApiError> {
        Ok(ModelLease {
            name: Arc::clone(&self.name),
            made: self.made.clone(),
            recommended: self.recommended,
            serving: self.entry.expect_ready()?,
        })
    }
}

/// Recently resolved names.
#[derive(Default)]
pub(crate) struct NameCache(RwLock<HashMap<String, (ResolvedModel, Instant)>>);

impl NameCache {
    fn get(&self, name: &str, now: Instant) -> Option<ResolvedModel> {
        let known = read(&self.0);
        let (named, since) = known.get(name)?;
        (now.saturating_duration_since(*since) < FRESH).then(|| named.clone())
    }

    fn put(&self, name: &str, named: &ResolvedModel, now: Instant) {
        let mut known = write(&self.0);
        if known.len() >= NAMES_MAX {
            known.clear();
        }
        known.insert(name.to_owned(), (named.clone(), now));
    }

    /// Clears the cache.
    pub(crate) fn clear_names(&self) {
        let mut known = write(&self.0);
        known.clear();
    }
}

impl ModelRegistry {
    /// Resolves a name without the model store; no name means the first model. `Err` returns the name to be looked
    /// up.
    fn find_cached<'a>(&self, name: Option<&'a str>) -> Result<ResolvedModel, &'a str> {
        let first = self.first_entry();
        match name {
            None | Some("") => Ok(ResolvedModel::first(self)),
            Some(name) if name == first.id() => Ok(ResolvedModel::first(self)),
            Some(name) => self.names.get(name, clock::now()).ok_or(name),
        }
    }

    /// The model of this name; no name means the first. May block: for where nothing can be waited for.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn find_blocking(&self, name: Option<&str>) -> Result<ResolvedModel, ApiError> {
        self.expect_named(name)?;
        self.find_cached(name).or_else(|name| {
            let found = self.library().map(|library| found_in(&**library, name));
            self.resolve_lookup(name, found.unwrap_or_default())
        })
    }

    /// Resolves a name, without blocking the thread.
    ///
    /// # Errors
    /// The name is unknown.
    pub async fn look_up(&self, name: Option<&str>) -> Result<ResolvedModel, ApiError> {
        self.expect_named(name)?;
        let name = match (self.find_cached(name), self.library()) {
            (Ok(named), _) => return Ok(named),
            (Err(name), None) => return self.resolve_lookup(name, NameLookup::default()),
            (Err(name), Some(_)) => name.to_owned(),
        };
        let found = match self.library().cloned() {
            Some(library) => {
                let asked = name.clone();
                let found = tokio::task::spawn_blocking(move || found_in(&*library, &asked));
                found.await.unwrap_or_default()
            }
            None => NameLookup::default(),
        };
        self.resolve_lookup(&name, found)
    }

    /// An error for a request without a name where no model is the one for such requests.
    fn expect_named(&self, name: Option<&str>) -> Result<(), ApiError> {
        let unnamed = self.library().and_then(|library| library.unnamed());
        match (name, unnamed) {
            (None | Some(""), Some(why)) => Err(ApiError::field("model", "model_required", why)),
            _ => Ok(()),
        }
    }

    fn resolve_lookup(&self, name: &str, found: NameLookup) -> Result<ResolvedModel, ApiError> {
        let Some(local) = found.model else {
            let near = || match self.library() {
                Some(_) => found.near.clone(),
                None => near_names(name, std::iter::once(self.first_entry().id().to_owned())),
            };
            return self.tagged_first(name).ok_or_else(|| match &found.absence {
                Some(why) => ApiError::capacity(
                    "model_files_missing",
                    why.as_str(),
                    self.gateway_limits().retry_after,
                ),
                None => no_such_model(name, &near()),
            });
        };
        let named = ResolvedModel {
            entry: self.entry(local.weights.as_deref(), &local.name),
            name: Arc::from(local.name),
            made: local.made,
            recommended: Some(local.facts.sampling),
        };
        self.names.put(name, &named, clock::now());
        Ok(named)
    }

    /// The first model, with or without the default tag.
    fn tagged_first(&self, name: &str) -> Option<ResolvedModel> {
        let first = self.first_entry();
        let bare = |name: &str| name.strip_suffix(LATEST).unwrap_or(name).to_owned();
        (bare(name) == bare(first.id())).then(|| ResolvedModel::first(self))
    }
}

/// Result of a lookup in the model store.
#[derive(Default)]
struct NameLookup {
    model: Option<LocalModel>,
    /// Names that were probably meant, where there is no model.
    near: Vec<String>,
    /// Why a model of other processes is not here.
    absence: Option<String>,
}

/// Looks a name up; may block.
fn found_in(library: &dyn Library, name: &str) -> NameLookup {
    let model = library.find(name);
    let near = match model {
        Some(_) => Vec::new(),
        None => near_names(name, library.all().into_iter().map(|local| local.name)),
    };
    let absence = match model {
        Some(_) => None,
        None => library.absence(name),
    };
    NameLookup {
        model,
        near,
        absence,
    }
}

/// Nothing has this name.
fn no_such_model(name: &str, near: &[String]) -> ApiError {
    let shown: String = name.chars().take(SHOWN_CHARS_MAX).collect();
    let mut error = ApiError::field(
        "model",
        "model_not_found",
        format!("model '{shown}' not found{}", near_words(near)),
    );
    error.kind = ErrorKind::NotFound;
    error
}

/// Suggestions in one error message.
const NEAR_MAX: usize = 3;
/// Models whose names are compared with an unknown one.
const COMPARED_MAX: usize = 1024;
/// Characters of a name that are compared: time grows with their square.
const COMPARED_CHARS_MAX: usize = 64;

/// The names nearest to an unknown name, the nearest first; all names if there are few.
fn near_names(name: &str, all: impl Iterator<Item = String>) -> Vec<String> {
    let asked = normalized_name(name);
    let all: Vec<String> = all.take(COMPARED_MAX).collect();
    let mut near: Vec<(usize, String)> = Vec::new();
    for name in &all {
        let changes = edit_distance(&asked, &normalized_name(name));
        if is_near(&asked, &normalized_name(name), changes) {
            near.push((changes, name.clone()));
        }
    }
    near.sort();
    near.truncate(NEAR_MAX);
    if near.is_empty() && all.len() <= NEAR_MAX {
        all
    } else {
        near.into_iter().map(|(_, name)| name).collect()
    }
}

/// A name for comparison: lower case, without the default tag.
fn normalized_name(name: &str) -> String {
    let name = name.strip_suffix(LATEST).unwrap_or(name);
    name.chars()
        .take(COMPARED_CHARS_MAX)
        .flat_map(char::to_lowercase)
        .collect()
}

/// Spelled alike, the beginning of one another, or of one family (`qwen3:0.6b` and `qwen3:8b`, `org/qwen3` and
/// `qwen3`).
fn is_near(asked: &str, name: &str, changes: usize) -> bool {
    let short = asked.len().min(name.len());
    let begins = short >= 3 && (asked.starts_with(name) || name.starts_with(asked));
    begins
        || model_family(asked) == model_family(name)
        || changes <= (short / 4).max(2).min(short / 2)
}

/// The part of a name between owner and tag.
fn model_family(name: &str) -> &str {
    let name = name.rsplit('/').next().unwrap_or(name);
    name.split(':').next().unwrap_or(name)
}

/// The end of the sentence "model ... not found".
fn near_words(near: &[String]) -> String {
    let quoted: Vec<String> = near.iter().map(|name| format!("'{name}'")).collect();
    match quoted.as_slice() {
        [] => "; GET /v1/models lists the models there are".to_owned(),
        [one] => format!("; there is {one}"),
        [first @ .., last] => format!("; there are {} and {last}", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::{near_names, near_words};

    #[test]
    fn nearest_names_come_first() {
        let many = [
            "qwen3:0.6b",
            "qwen3:1.7b",
            "llama3.2:1b",
            "org/Mistral-7B:Q4_K_M",
            "millrace-mini",
        ];
        let rows: [(&[&str], &str, &[&str]); 10] = [
            (&many, "qwen3:0.6", &["qwen3:0.6b", "qwen3:1.7b"]),
            (&many, "qwen3", &["qwen3:0.6b", "qwen3:1.7b"]),
            (&many, "QWEN3:8b", &["qwen3:0.6b", "qwen3:1.7b"]),
            (&many, "lama3.2:1b", &["llama3.2:1b"]),
            (&many, "mistral-7b", &["org/Mistral-7B:Q4_K_M"]),
            (&many, "millrace-mini2:latest", &["millrace-mini"]),
            (&many, "gpt-4o", &[]),
            (&many, "q", &[]),
            (&["millrace-mini"], "gpt-4o", &["millrace-mini"]),
            (&[], "gpt-4o", &[]),
        ];
        for (all, asked, want) in rows {
            let near = near_names(asked, all.iter().map(|&name| name.to_owned()));
            assert_eq!(near, want, "{asked}");
        }
    }

    #[test]
    fn few_names_are_joined_as_text() {
        let words =
            |names: &[&str]| near_words(&names.iter().map(|&n| n.to_owned()).collect::<Vec<_>>());
        assert_eq!(words(&["a"]), "; there is 'a'");
        assert_eq!(words(&["a", "b", "c"]), "; there are 'a', 'b' and 'c'");
        assert!(words(&[]).contains("/v1/models"));
    }
}
