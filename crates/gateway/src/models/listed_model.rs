//! The models there are, as they are listed.

use super::{DerivedModel, Library, LocalModel, ModelEntry, ModelRegistry, ModelState};
use engine::Pooling;
use generate::error::ApiError;
use generate::infill_prompt::RerankTemplate;
use generate::sampling::SamplingDefaults;
use serde_json::{Map, Value};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use text::{Capabilities, ToolSupport};
use wire::derived_model::{AdapterCard, ModelCard};

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
    /// Whether another model would describe images for a model that is not loaded.
    has_vision_proxy: bool,
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
            has_vision_proxy: false,
        }
    }

    fn of_local(local: LocalModel, entry: Option<&ModelEntry>, library: &dyn Library) -> Self {
        let has_vision_proxy = library.has_vision_proxy(&local);
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
            has_vision_proxy,
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
            (_, Some(capabilities)) => Some(self.capability_names(capabilities)),
            (ModelTask::Generation, None) => None,
            (_, None) => Some(self.capability_names(Capabilities::NONE)),
        }
    }

    /// What the model can do, with the names of Ollama's API; `template`: what its chat template can.
    pub fn capability_names(&self, template: Capabilities) -> Vec<&'static str> {
        let task = self.task().unwrap_or(ModelTask::Generation);
        task.capabilities(template, self.takes_images())
    }

    /// Whether the model takes images: of a loaded model as it was loaded, of another as its files and the settings say.
    pub(crate) fn takes_images(&self) -> bool {
        match &self.state {
            ModelState::Ready(serving) => serving.model.takes_images(),
            _ => {
                let facts = self.facts.as_ref();
                self.has_vision_proxy || facts.is_some_and(|facts| facts.tower.is_some())
            }
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
        let Some(library) = self.library() else {
            return vec![ListedModel::of_entry(self.first_entry())];
        };
        let store = Arc::clone(library);
        let all = tokio::task::spawn_blocking(move || store.all()).await;
        self.listed(all.unwrap_or_default(), &**library)
    }

    /// As [`Self::list_models`]. May block: for where nothing can be waited for.
    pub(crate) fn list_blocking(&self) -> Vec<ListedModel> {
        match self.library() {
            Some(library) => self.listed(library.all(), &**library),
            None => vec![ListedModel::of_entry(self.first_entry())],
        }
    }

    fn listed(&self, all: Vec<LocalModel>, library: &dyn Library) -> Vec<ListedModel> {
        let listed = |local: LocalModel| {
            let entry = self.known_entry(local.weights.as_deref());
            ListedModel::of_local(local, entry.as_deref(), library)
        };
        all.into_iter().map(listed).collect()
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
        let store = Arc::clone(&library);
        let local = tokio::task::spawn_blocking(move || store.find(&asked)).await;
        Ok(match local.unwrap_or_default() {
            Some(local) => ListedModel::of_local(local, Some(&named.entry), &*library),
            None => ListedModel::of_entry(&named.entry),
        })
    }
}

/// What a model computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelTask {
    /// Text, and embeddings.
    Generation,
    /// Embeddings: an encoder, or a decoder that was trained for them.
    Embedding,
    /// Scores of documents for a query: a model with a classification head.
    Ranking,
}

impl ModelTask {
    /// The kind of the model in lists.
    pub fn kind(self) -> &'static str {
        match self {
            Self::Generation => "text",
            Self::Embedding => "embedding",
            Self::Ranking => "rerank",
        }
    }

    /// What a model that generates no text is for, for errors.
    pub(crate) fn purpose(self) -> &'static str {
        match self {
            Self::Ranking => "it scores documents for a query (/v1/rerank)",
            Self::Generation | Self::Embedding => "it computes embeddings (/v1/embeddings)",
        }
    }

    /// What a model for this task can do, with the names of Ollama's API; `template`: what its chat template can.
    fn capabilities(self, template: Capabilities, takes_images: bool) -> Vec<&'static str> {
        let names = match self {
            Self::Embedding => return vec!["embedding"],
            Self::Ranking => return vec!["rerank"],
            Self::Generation => [
                ("completion", true),
                ("tools", template.tools != ToolSupport::None),
                ("vision", takes_images),
                ("thinking", template.thinking),
            ],
        };
        let names = names.into_iter().filter(|(_, can)| *can);
        names.map(|(name, _)| name).collect()
    }
}

/// The tower of a model that sees images.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TowerFacts {
    /// Kind of the projector, which decides how images become rows.
    pub projector: String,
    /// Name of the file, without the path before it.
    pub file: String,
    /// Bytes of the file.
    pub file_bytes: u64,
}

/// Metadata of a model's file.
#[derive(Clone, Debug)]
pub struct ModelFacts {
    /// Bytes of the model's files.
    pub file_bytes: u64,
    /// SHA-256 of the file in hexadecimal, if the whole file was read.
    pub sha256: Option<String>,
    /// Time of the last change of the files.
    pub modified: SystemTime,
    /// Architecture, as in GGUF.
    pub family: String,
    /// Number of weights.
    pub parameters: u64,
    /// Tensor format of most tensors.
    pub quantization: String,
    /// Chat template, if there is one.
    pub template: Option<String>,
    /// Turns of conversations: "template", a family's, or "base model"; empty for a model that generates no text.
    pub prompt_format: &'static str,
    /// The prompt for a query and a document, of a reranker that is a decoder.
    pub rerank_template: Option<RerankTemplate>,
    /// How hidden states become an embedding; `None`: in a way that this server does not support.
    pub pooling: Option<Pooling>,
    /// What the model computes.
    pub task: ModelTask,
    /// Sampling parameters that the files recommend.
    pub sampling: SamplingDefaults,
    /// The model's tower, if the model sees images.
    pub tower: Option<TowerFacts>,
    /// Metadata, without long values.
    pub info: Map<String, Value>,
}

impl Default for ModelFacts {
    fn default() -> Self {
        Self {
            file_bytes: 0,
            sha256: None,
            modified: UNIX_EPOCH,
            family: String::new(),
            parameters: 0,
            quantization: String::new(),
            template: None,
            prompt_format: "",
            rerank_template: None,
            pooling: Some(Pooling::Last),
            task: ModelTask::Generation,
            sampling: SamplingDefaults::default(),
            tower: None,
            info: Map::new(),
        }
    }
}

impl ModelFacts {
    /// Identifies the model: the SHA-256 of the file where known, or else 64 hexadecimal digits of a hash of the
    /// metadata; weights are too long to be read for a list.
    pub fn digest(&self) -> String {
        if let Some(sum) = &self.sha256 {
            return sum.clone();
        }
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.file_bytes.to_le_bytes());
        hasher.update(&self.parameters.to_le_bytes());
        for part in [&self.family, &self.quantization] {
            hasher.update(part.as_bytes()).update(&[0]);
        }
        hasher.update(self.template.as_deref().unwrap_or_default().as_bytes());
        for (name, value) in &self.info {
            hasher.update(name.as_bytes()).update(&[0]);
            hasher.update(value.to_string().as_bytes()).update(&[0]);
        }
        hasher.finalize().to_hex().to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn different_metadata_has_a_different_digest() {
        let plain = ModelFacts::default();
        let mut digests = vec![plain.digest()];
        let info = [("a".to_owned(), Value::from(1))];
        for other in [
            ModelFacts {
                file_bytes: 1,
                ..plain.clone()
            },
            ModelFacts {
                family: "llama".to_owned(),
                ..plain.clone()
            },
            ModelFacts {
                quantization: "llama".to_owned(),
                ..plain.clone()
            },
            ModelFacts {
                info: info.into_iter().collect(),
                ..plain.clone()
            },
        ] {
            digests.push(other.digest());
        }
        assert!(digests.iter().all(|digest| digest.len() == 64));
        digests.sort();
        digests.dedup();
        assert_eq!(digests.len(), 5);
        assert_eq!(plain.digest(), ModelFacts::default().digest());
    }
}
