//! What a synthetic decoder was made for: text, embeddings, or scores of documents.

use super::spec::SynthSpec;
use weights::config::Architecture;
use weights::gguf::GgufWriter;

/// The prompt of a reranker, with places for query and document, as llama.cpp's converter writes it for Qwen's.
const RERANK_TEMPLATE: &str = "<|im_start|>system\nJudge whether the Document meets the requirements.<|im_end|>\n\
     <|im_start|>user\n<Query>: {query}\n<Document>: {document}<|im_end|>\n<|im_start|>assistant\n";
/// Width between the dense projections, in widths of the stream.
const DENSE_FACTOR: u32 = 4;

/// What a synthetic decoder was made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskSynth {
    /// Text.
    Text,
    /// Embeddings: of the last token, or of Gemma's embedding model the mean, through dense projections.
    Embedding,
    /// Scores of documents: two rows of weights for the answers yes and no.
    Ranking,
}

impl TaskSynth {
    /// The task of this family's usual models.
    pub(super) fn of(architecture: Architecture) -> Self {
        match architecture {
            Architecture::GemmaEmbedding => Self::Embedding,
            _ => Self::Text,
        }
    }

    /// Whether texts end with the token for the end.
    pub(super) fn adds_eos(self) -> bool {
        self == Self::Embedding
    }
}

impl SynthSpec {
    /// Adds the keys of the task.
    pub(super) fn put_task(&self, out: &mut GgufWriter) {
        let key = |part: &str| format!("{}.{part}", self.architecture.name());
        let has_dense = self.architecture == Architecture::GemmaEmbedding;
        match self.task {
            TaskSynth::Text => {}
            TaskSynth::Embedding if has_dense => {
                let inner = DENSE_FACTOR * self.dim;
                out.u32(&key("pooling_type"), 1)
                    .bool(&key("attention.causal"), false)
                    .u32(&key("dense_2_feat_in"), self.dim)
                    .u32(&key("dense_2_feat_out"), inner)
                    .u32(&key("dense_3_feat_in"), inner)
                    .u32(&key("dense_3_feat_out"), self.dim);
            }
            TaskSynth::Embedding => {
                out.u32(&key("pooling_type"), 3);
            }
            TaskSynth::Ranking => {
                out.u32(&key("pooling_type"), 4)
                    .strings(&key("classifier.output_labels"), &["yes", "no"])
                    .str("tokenizer.chat_template.rerank", RERANK_TEMPLATE);
            }
        }
    }
}
