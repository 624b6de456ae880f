//! The tensors that a load of a synthetic model asks for, and its purpose: text, embeddings, or scores of documents.

use super::plan::TensorPart;
use super::spec::SynthSpec;
use weights::LoadError;
use weights::config::recurrent_rule::RecurrentRule;
use weights::config::{Architecture, LatentConfig};
use weights::gguf::GgufWriter;
use weights::parameters::{Packing, Tensors};

/// A tensor without its content.
pub(super) struct Outlined {
    pub(super) name: String,
    pub(super) dims: Vec<u64>,
    /// Whether any storage format will do; else the tensor has numbers.
    pub(super) is_matrix: bool,
}

/// Notes the name and the shape of each tensor.
pub(super) struct Outline<'a> {
    spec: &'a SynthSpec,
    pub(super) tensors: Vec<Outlined>,
}

/// Matrices without content.
pub(super) enum NoPacking {}

impl Packing for NoPacking {
    type Matrix = ();
    type Stack = ();
    type Table = ();
}

impl<'a> Outline<'a> {
    pub(super) fn new(spec: &'a SynthSpec) -> Self {
        Self {
            spec,
            tensors: Vec::new(),
        }
    }

    fn note(&mut self, name: &str, dims: &[usize], is_matrix: bool) {
        self.tensors.push(Outlined {
            name: name.to_owned(),
            dims: dims.iter().map(|&dim| dim as u64).collect(),
            is_matrix,
        });
    }
}

impl Tensors for Outline<'_> {
    type Packing = NoPacking;

    fn has(&self, name: &str) -> bool {
        self.spec.has_tensor(name)
    }

    /// The vocabulary: the embedding is the only tensor of a decoder whose shape is read from the file.
    fn rows_of(&self, _: &str) -> Result<usize, LoadError> {
        Ok(self.spec.vocab as usize)
    }

    fn split<const N: usize>(
        &mut self,
        name: &str,
        rows: [usize; N],
        cols: usize,
    ) -> Result<[(); N], LoadError> {
        self.note(name, &[cols, rows.iter().sum()], true);
        Ok([(); N])
    }

    fn interleaved<const N: usize>(
        &mut self,
        name: &str,
        _groups: usize,
        matrices: [&[usize]; N],
        cols: usize,
    ) -> Result<[(); N], LoadError> {
        self.split(name, matrices.map(|parts| parts.iter().sum()), cols)
    }

    fn float_matrix(&mut self, name: &str, rows: usize, cols: usize) -> Result<(), LoadError> {
        self.note(name, &[cols, rows], false);
        Ok(())
    }

    fn stacks<const N: usize>(
        &mut self,
        name: &str,
        count: usize,
        rows: [usize; N],
        cols: usize,
    ) -> Result<[(); N], LoadError> {
        self.note(name, &[cols, rows.iter().sum(), count], true);
        Ok([(); N])
    }

    fn stack_of(
        &mut self,
        name_of: impl Fn(usize) -> String,
        count: usize,
        rows: usize,
        cols: usize,
    ) -> Result<(), LoadError> {
        (0..count).for_each(|matrix| self.note(&name_of(matrix), &[cols, rows], true));
        Ok(())
    }

    fn joined_heads(
        &mut self,
        name: &str,
        heads: usize,
        sizes: &LatentConfig,
    ) -> Result<((), ()), LoadError> {
        let rows = heads * (sizes.plain + sizes.value);
        self.note(name, &[sizes.rank, rows], true);
        Ok(((), ()))
    }

    fn row_table(&mut self, name: &str, rows: usize, cols: usize) -> Result<(), LoadError> {
        self.note(name, &[cols, rows], true);
        Ok(())
    }

    /// Numbers that no check refuses.
    fn numbers(&mut self, name: &str, dims: &[u64]) -> Result<Vec<f32>, LoadError> {
        let dims: Vec<usize> = dims.iter().map(|&dim| dim as usize).collect();
        self.note(name, &dims, false);
        Ok(vec![-1.0; dims.iter().product()])
    }

    /// As llama.cpp's converter writes them: a column in Mamba-2, else a vector.
    fn per_head(&mut self, name: &str, heads: usize) -> Result<Vec<f32>, LoadError> {
        match self.spec.architecture.traits().recurrent {
            Some(RecurrentRule::Mamba(_)) => self.table(name, heads, 1),
            _ => self.vector(name, heads),
        }
    }

    /// Files of Gemma 3n have projections of layers that read the keys and values of earlier ones.
    fn ignore(&mut self, name: &str) {
        let part = TensorPart::of(name);
        if !self.spec.architecture.traits().altup {
            return;
        }
        let sizes = self.spec.sizes_of(part.layer);
        let (head_dim, dim) = (sizes.head_dim as usize, self.spec.dim as usize);
        match part.name {
            "attn_k_norm" => self.note(name, &[head_dim], false),
            _ => self.note(name, &[dim, sizes.kv_heads as usize * head_dim], true),
        }
    }

    fn ignore_prefix(&mut self, _: &str) {}

    fn finish_all(&mut self) -> Result<(), LoadError> {
        Ok(())
    }
}

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
