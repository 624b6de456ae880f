//! Mistral 3's tower in a file of Ollama's converter: rows of queries and keys are in the order of transformers, and the row at
//! the end of a line is an embedding of the text.

use crate::gguf::{Gguf, TensorInfo, TensorKind, Text};
use crate::tensor_entry::TensorEntry;
use kernels::{Format, dequantize};
use std::borrow::Cow;

/// The row at the end of a line, in an `mmproj`.
pub(super) const LINE_END: &str = "v.token_embd.img_break";
/// The token whose embedding it is.
const TOKEN: &[u8] = b"[IMG_BREAK]";
const EMBEDDING: &str = "token_embd.weight";

/// Differences of a tower in such a file from one in an `mmproj`.
#[derive(Debug)]
pub(super) struct HalvedRows {
    heads: usize,
    /// `[dim]`, and its numbers in F32.
    dims: [u64; 1],
    pub(super) line_end: Vec<u8>,
}

impl HalvedRows {
    /// The rows of a file of this family of texts; `None`: the file has no such token, or no number of heads.
    pub(super) fn of(gguf: &Gguf, family: &str) -> Option<Self> {
        let heads = gguf.find::<u32>(&format!("{family}.vision.attention.head_count"));
        let mut tokens = gguf.array::<Text<'_>>("tokenizer.ggml.tokens").ok()?;
        let token = tokens.position(|text| text.as_bytes() == TOKEN)?;
        let embedding = gguf.tensor(EMBEDDING)?;
        let format = embedding.format().ok()?;
        let row_bytes = embedding.bytes.len() / embedding.rows().max(1);
        let raw = embedding
            .bytes
            .get(token * row_bytes..(token + 1) * row_bytes)?;
        let mut numbers = vec![0.0; embedding.cols()];
        dequantize(format, raw, &mut numbers);
        Some(Self {
            heads: heads.ok()?? as usize,
            dims: [numbers.len() as u64],
            line_end: numbers.into_iter().flat_map(f32::to_le_bytes).collect(),
        })
    }

    /// The row at the end of a line.
    pub(super) fn line_end(&self) -> TensorEntry<'_> {
        TensorEntry {
            name: LINE_END,
            dims: &self.dims,
            kind: TensorKind::from(Format::F32),
            bytes: self.line_end.len() as u64,
        }
    }

    /// The bytes of a tensor, the rows of queries and keys in pairs.
    pub(super) fn read<'a>(&self, name: &str, tensor: &TensorInfo<'a>) -> Cow<'a, [u8]> {
        let is_turned = [".attn_q.weight", ".attn_k.weight"]
            .iter()
            .any(|end| name.ends_with(end));
        let rows = tensor.rows();
        let head = rows.checked_div(self.heads).unwrap_or(0);
        if !is_turned || head < 2 || !head.is_multiple_of(2) || head * self.heads != rows {
            return Cow::Borrowed(tensor.bytes);
        }
        let row_bytes = tensor.bytes.len() / rows;
        let source = |row: usize| row / head * head + row % 2 * (head / 2) + row % head / 2;
        let moved = (0..rows).flat_map(|row| &tensor.bytes[source(row) * row_bytes..][..row_bytes]);
        Cow::Owned(moved.copied().collect())
    }
}
