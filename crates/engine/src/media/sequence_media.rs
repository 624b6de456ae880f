//! The inputs of a sequence: their rows, numbers and places.

use super::layout::{self, InputPlace};
use super::media_ids::{MediaIds, MediaName};
use super::media_input::MediaAbilities;
use crate::{CacheSalt, MediaInput};
use model::{Batch, EncoderInput};
use std::ops::Range;
use std::sync::Arc;

/// An input whose rows are part of a sequence.
pub(crate) struct SequenceInput {
    place: InputPlace,
    /// Number in place of each of its rows among the tokens.
    pub(crate) row: u32,
    pub(crate) input: EncoderInput,
}

impl SequenceInput {
    /// Rows of the sequence.
    pub(crate) fn rows(&self) -> Range<usize> {
        self.place.rows.clone()
    }
}

/// The inputs of a sequence, ascending; shared by the choices of a request. A sequence of tokens alone has none.
#[derive(Clone, Default)]
pub(crate) struct SequenceMedia(Option<Arc<SequenceInputs>>);

struct SequenceInputs {
    inputs: Box<[SequenceInput]>,
    /// See [`MediaAbilities`].
    axes: bool,
    blocks: bool,
}

impl SequenceMedia {
    /// Numbers the inputs of a request, and puts their numbers in the place of tokens of the prompt. The caller has
    /// checked that there are numbers.
    pub(crate) fn number(
        inputs: Vec<MediaInput>,
        (salt, abilities): (CacheSalt, &MediaAbilities),
        prompt: &mut [u32],
        ids: &mut MediaIds,
    ) -> Self {
        let ranges: Vec<_> = inputs.iter().map(|i| (i.rows.clone(), i.grid)).collect();
        let places = layout::places(ranges.into_iter());
        let numbered = inputs.into_iter().zip(places).map(|(input, place)| {
            let row = ids.row_of(MediaName {
                key: input.key,
                salt,
                rows: input.rows.len(),
                grid: input.grid,
            });
            if let Some(tokens) = prompt.get_mut(input.rows) {
                tokens.fill(row);
            }
            SequenceInput {
                place,
                row,
                input: input.input,
            }
        });
        Self(Some(Arc::new(SequenceInputs {
            inputs: numbered.collect(),
            axes: abilities.axes,
            blocks: abilities.blocks,
        })))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Rows before the first input; of a sequence without inputs `usize::MAX`.
    pub(crate) fn rows_before(&self) -> usize {
        let first = self.inputs().first();
        first.map_or(usize::MAX, |input| input.place.rows.start)
    }

    /// All inputs.
    pub(crate) fn inputs(&self) -> &[SequenceInput] {
        self.0.as_ref().map_or(&[], |all| &all.inputs)
    }

    /// The inputs that end after this row.
    pub(crate) fn inputs_from(&self, row: usize) -> &[SequenceInput] {
        let inputs = self.inputs();
        &inputs[inputs.partition_point(|input| input.place.rows.end <= row)..]
    }

    /// The rows of the first input from `row` on that are computed as a block, where rows of an input see each other. The last
    /// row of an input is none: the block stores its keys and values, and as a row of the prompt it has the same again.
    pub(crate) fn next_block(&self, row: usize) -> Option<Range<usize>> {
        self.0.as_ref().filter(|all| all.blocks)?;
        let inputs = self.inputs_from(row).iter();
        let mut blocks = inputs.map(|input| input.rows().start.max(row)..input.rows().end);
        blocks.find(|block| block.len() > 1)
    }

    /// Adds what a model needs of the rows of the span that was added last: their vectors, which `encoded` gives by what
    /// stands for the input's rows, and their positions on axes. Rows without an encoding stay as they are, so that the model
    /// refuses them.
    pub(crate) fn put_rows<'a>(
        &self,
        batch: &mut Batch,
        encoded: impl Fn(u32) -> Option<&'a [f32]>,
    ) {
        if self.is_empty() {
            return;
        }
        let Some(span) = batch.ranges().last() else {
            return;
        };
        let rows = span.position..span.position + span.tokens.len();
        for input in self.inputs_from(rows.start) {
            let of_input = input.rows();
            if of_input.start >= rows.end {
                break;
            }
            let inside = of_input.start.max(rows.start)..of_input.end.min(rows.end);
            let in_span = inside.start - rows.start..inside.end - rows.start;
            if let Some(vectors) = encoded(input.row) {
                let width = vectors.len() / of_input.len();
                let from = (inside.start - of_input.start) * width;
                let vectors = vectors.get(from..from + inside.len() * width);
                batch.set_vectors(in_span, vectors.unwrap_or(&[]));
            }
        }
        self.put_axes(batch);
    }

    /// Adds the positions on axes of the span that was added last, if the sequence has them.
    pub(crate) fn put_axes(&self, batch: &mut Batch) {
        if self.0.as_ref().is_some_and(|all| all.axes) {
            batch.set_axes_at(|row| self.axes(row));
        }
    }

    /// The positions of a row on three axes.
    fn axes(&self, row: usize) -> [u32; 3] {
        let inputs = self.inputs();
        let begun = inputs.partition_point(|input| input.place.rows.start <= row);
        let before = begun.checked_sub(1).map(|last| &inputs[last].place);
        layout::axes(before, row)
    }
}
