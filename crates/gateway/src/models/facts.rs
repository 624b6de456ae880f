//! Metadata of a model's file, for lists of models.

use engine::Pooling;
use generate::infill_prompt::RerankTemplate;
use generate::sampling::SamplingDefaults;
use serde_json::{Map, Value};
use std::time::{SystemTime, UNIX_EPOCH};
use text::{Capabilities, ToolSupport};

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
    pub fn capabilities(self, template: Capabilities) -> Vec<&'static str> {
        let names = match self {
            Self::Embedding => return vec!["embedding"],
            Self::Ranking => return vec!["rerank"],
            Self::Generation => [
                ("completion", true),
                ("tools", template.tools != ToolSupport::None),
                ("thinking", template.thinking),
            ],
        };
        let names = names.into_iter().filter(|(_, can)| *can);
        names.map(|(name, _)| name).collect()
    }
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
