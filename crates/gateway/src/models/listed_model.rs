//! The models there are, as they are listed.

use super::{
    DerivedModel, LocalModel, ModelEntry, ModelFacts, ModelRegistry, ModelState, ModelTask,
};
use generate::error::ApiError;
use std::sync::Arc;
use std::time::UNIX_EPOCH;
use text::Capabilities;
use wire::model_card::{AdapterCard, ModelCard};

/// A model of the list.
pub struct ListedModel {
    /// Name in requests.
    pub name: String,
    /// Time of the file's last change, in seconds since the Unix epoch.
    pub created_unix_s: i64,
    /// Tokens that prompt and answer may have together; of a ready model.
    pub context_max: Option<usize>,
    pub(crate) state: ModelState,
    /// `None` for the first model until the file was read.
    pub facts: Option<Arc<ModelFacts>>,
    /// The derived model, if the name is one of a derived model.
    pub made: Option<Arc<DerivedModel>>,
    engines: Option<usize>,
}

impl ListedModel {
    fn of_entry(entry: &ModelEntry) -> Self {
        let state = entry.state();
        let (created_unix_s, facts) = match &state {
            ModelState::Ready(serving) => {
                let model = &serving.model;
                (model.created_unix_s, Some(Arc::new(model.facts.clone())))
            }
            _ => (entry.created_unix_s, None),
        };
        Self {
            name: entry.id().to_owned(),
            created_unix_s,
            context_max: context_max(&state),
            state,
            facts,
            made: None,
            engines: None,
        }
    }

    fn of_local(local: LocalModel, entry: Option<&ModelEntry>) -> Self {
        let state = entry.map_or(ModelState::Unloaded, ModelEntry::state);
        let modified = local.facts.modified.duration_since(UNIX_EPOCH);
        let modified_s = modified.map_or(0, |since| since.as_secs());
        let created_unix_s = match (&state, entry) {
            (ModelState::Ready(serving), _) => serving.model.created_unix_s,
            (_, Some(entry)) if modified_s == 0 => entry.created_unix_s,
            _ => i64::try_from(modified_s).unwrap_or(0),
        };
        Self {
            name: local.name,
            created_unix_s,
            context_max: context_max(&state),
            state,
            facts: Some(local.facts),
            made: local.made,
            engines: local.engines,
        }
    }

    /// Capabilities of a ready model.
    pub fn capabilities(&self) -> Option<Capabilities> {
        match &self.state {
            ModelState::Ready(serving) => Some(serving.model.handle.capabilities),
            _ => None,
        }
    }

    fn task(&self) -> Option<ModelTask> {
        self.facts.as_ref().map(|facts| facts.task)
    }

    /// What the model can do, as far as that is known without trying its chat template.
    fn abilities(&self) -> Option<Vec<&'static str>> {
        match (self.task()?, self.capabilities()) {
            (task, Some(capabilities)) => Some(task.capabilities(capabilities)),
            (ModelTask::Generation, None) => None,
            (task, None) => Some(task.capabilities(Capabilities::NONE)),
        }
    }

    fn adapter_card(&self) -> Option<AdapterCard> {
        let made = self.made.as_deref()?;
        let name = made.adapter.as_deref()?;
        let serving = match &self.state {
            ModelState::Ready(serving) => Some(serving),
            _ => None,
        };
        let file = serving.and_then(|serving| {
            let mut adapters = serving.model.handle.adapters.all().iter();
            Some(adapters.find(|adapter| adapter.name == name)?.file.clone())
        });
        Some(AdapterCard {
            parent: made.parent.clone(),
            root: file,
        })
    }

    /// The entry of the model in lists.
    pub fn model_card(&self) -> ModelCard {
        ModelCard {
            name: self.name.clone(),
            created_unix_s: self.created_unix_s,
            context_max: self.context_max,
            capabilities: self.capabilities(),
            kind: self.task().map(ModelTask::kind),
            abilities: self.abilities(),
            engines: self.engines,
            adapter: self.adapter_card(),
            state: match &self.state {
                ModelState::Ready(_) => None,
                state => Some(state.name()),
            },
        }
    }
}

fn context_max(state: &ModelState) -> Option<usize> {
    match state {
        ModelState::Ready(serving) => Some(serving.model.handle.context_max),
        _ => None,
    }
}

impl ModelRegistry {
    /// All models, the first first.
    pub async fn list_models(&self) -> Vec<ListedModel> {
        let Some(library) = self.library().cloned() else {
            return vec![ListedModel::of_entry(self.first_entry())];
        };
        let all = tokio::task::spawn_blocking(move || library.all()).await;
        let listed = |local: LocalModel| {
            let entry = self.known_entry(local.weights.as_deref());
            ListedModel::of_local(local, entry.as_deref())
        };
        all.unwrap_or_default().into_iter().map(listed).collect()
    }

    /// The entry of one model.
    ///
    /// # Errors
    /// The name is unknown.
    pub async fn listed_model(&self, name: Option<&str>) -> Result<ListedModel, ApiError> {
        let named = self.look_up(name).await?;
        let Some(library) = self.library().cloned() else {
            return Ok(ListedModel::of_entry(&named.entry));
        };
        let asked = named.name.to_string();
        let local = tokio::task::spawn_blocking(move || library.find(&asked)).await;
        Ok(match local.unwrap_or_default() {
            Some(local) => ListedModel::of_local(local, Some(&named.entry)),
            None => ListedModel::of_entry(&named.entry),
        })
    }
}
