//! What a name in a request stands for.

use super::near::{near_names, near_words};
use super::{Library, LocalModel, Made, ServedModels, Serving, Slot};
use crate::wire::clock;
use generate::error::{ApiError, ErrorKind};
use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// The tag that goes without saying.
pub(crate) const LATEST: &str = ":latest";
/// Names that are remembered; they are all forgotten when there are more.
const NAMES_MAX: usize = 1024;
/// How long a name is taken for what it stood for: others may change the operator's directories.
const FRESH: Duration = Duration::from_secs(1);
/// Characters of an unknown name that are repeated to the caller.
const SHOWN_CHARS_MAX: usize = 64;

/// A model as a request named it.
#[derive(Clone)]
pub(crate) struct Named {
    /// What it is called in answers.
    pub(crate) name: Arc<str>,
    pub(crate) slot: Arc<Slot>,
    /// How it is asked differently.
    pub(crate) made: Option<Arc<Made>>,
}

/// A model that is ready, for one request: as long as it is held, it stays.
#[derive(Clone)]
pub(crate) struct Held {
    pub(crate) name: Arc<str>,
    pub(crate) made: Option<Arc<Made>>,
    pub(crate) serving: Arc<Serving>,
}

impl Named {
    fn of_slot(slot: &Arc<Slot>) -> Self {
        Self {
            name: Arc::from(slot.id.as_str()),
            slot: Arc::clone(slot),
            made: None,
        }
    }

    /// The model, if it is ready.
    ///
    /// # Errors
    /// It is not.
    pub(crate) fn hold(&self) -> Result<Held, ApiError> {
        Ok(Held {
            name: Arc::clone(&self.name),
            made: self.made.clone(),
            serving: self.slot.expect_ready()?,
        })
    }
}

/// Names that were asked for lately.
#[derive(Default)]
pub(crate) struct Names(RwLock<HashMap<String, (Named, Instant)>>);

impl Names {
    fn get(&self, name: &str, now: Instant) -> Option<Named> {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let (named, since) = known.get(name)?;
        (now.saturating_duration_since(*since) < FRESH).then(|| named.clone())
    }

    fn put(&self, name: &str, named: &Named, now: Instant) {
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= NAMES_MAX {
            known.clear();
        }
        known.insert(name.to_owned(), (named.clone(), now));
    }

    /// All of them are looked up again.
    pub(crate) fn forget(&self) {
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        known.clear();
    }
}

impl ServedModels {
    /// What stands for this name, without asking the library; no name means the first. `Err` gives
    /// the name back that has to be looked up.
    fn at_hand<'a>(&self, name: Option<&'a str>) -> Result<Named, &'a str> {
        let first = self.first();
        match name {
            None | Some("") => Ok(Named::of_slot(first)),
            Some(name) if name == first.id => Ok(Named::of_slot(first)),
            Some(name) => self.names.get(name, clock::now()).ok_or(name),
        }
    }

    /// The model of this name; no name means the first. May block: for where nothing can be waited for.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn find(&self, name: Option<&str>) -> Result<Named, ApiError> {
        self.at_hand(name).or_else(|name| {
            let found = self.library().map(|library| found_in(&**library, name));
            self.found(name, found.unwrap_or_default())
        })
    }

    /// The same, without holding anybody up.
    ///
    /// # Errors
    /// There is none.
    pub(crate) async fn look_up(&self, name: Option<&str>) -> Result<Named, ApiError> {
        let name = match (self.at_hand(name), self.library()) {
            (Ok(named), _) => return Ok(named),
            (Err(name), None) => return self.found(name, NameLookup::default()),
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
        self.found(&name, found)
    }

    fn found(&self, name: &str, found: NameLookup) -> Result<Named, ApiError> {
        let Some(local) = found.model else {
            let near = || match self.library() {
                Some(_) => found.near,
                None => near_names(name, std::iter::once(self.first().id.clone())),
            };
            return self
                .tagged(name)
                .ok_or_else(|| no_such_model(name, &near()));
        };
        let named = Named {
            slot: self.slot(local.weights.as_deref(), &local.name),
            name: Arc::from(local.name),
            made: local.made,
        };
        self.names.put(name, &named, clock::now());
        Ok(named)
    }

    /// The first model, named with the tag that goes without saying, or without.
    fn tagged(&self, name: &str) -> Option<Named> {
        let first = self.first();
        let bare = |name: &str| name.strip_suffix(LATEST).unwrap_or(name).to_owned();
        (bare(name) == bare(&first.id)).then(|| Named::of_slot(first))
    }
}

/// What a library has for a name.
#[derive(Default)]
struct NameLookup {
    model: Option<LocalModel>,
    /// Names that were probably meant, where there is no model.
    near: Vec<String>,
}

/// Looks a name up; may block.
fn found_in(library: &dyn Library, name: &str) -> NameLookup {
    let model = library.find(name);
    let near = match model {
        Some(_) => Vec::new(),
        None => near_names(name, library.all().into_iter().map(|local| local.name)),
    };
    NameLookup { model, near }
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
