//! An input of a request for the model's encoder, and the rules for it.

use crate::Request;
use model::{EncoderDims, EncoderInput};
use std::ops::Range;

/// Inputs of a request for the encoder.
pub const MEDIA_INPUTS_MAX: usize = 1024;

/// An input for the encoder, and the rows of the prompt that it becomes.
#[derive(Clone)]
pub struct MediaInput {
    /// Names the input and everything that shapes its rows: under equal keys, rows are equal.
    pub key: [u8; 32],
    /// Rows of the prompt, before the answered part. The tokens there have no meaning.
    pub rows: Range<usize>,
    /// Rows and columns of the grid that the input's rows are, for positions on three axes; (0, 0) for rows with the positions
    /// of tokens.
    pub grid: (u32, u32),
    /// The input; kept until the request ends.
    pub input: EncoderInput,
}

impl std::fmt::Debug for MediaInput {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MediaInput")
            .field("rows", &self.rows)
            .field("grid", &self.grid)
            .finish_non_exhaustive()
    }
}

/// Kinds of inputs that a model takes in place of tokens.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MediaAbilities {
    /// Sizes of the encoder, if there is one.
    pub(crate) encoder: Option<EncoderDims>,
    /// See [`model::Capabilities::axes`].
    pub(crate) axes: bool,
    /// Whether rows of an input see each other: the model has [`model::Forward::blocks`].
    pub(crate) blocks: bool,
}

impl MediaAbilities {
    /// Why a model with these abilities does not take a request's inputs; `None`: it does.
    pub(crate) fn refusal(&self, request: &Request) -> Option<String> {
        let inputs = request.media.len();
        if inputs == 0 {
            return None;
        }
        let Some(encoder) = self.encoder else {
            return Some(format!(
                "media has {inputs} inputs; the model has no encoder for them"
            ));
        };
        if inputs > MEDIA_INPUTS_MAX {
            return Some(format!(
                "media has {inputs} inputs; at most {MEDIA_INPUTS_MAX}"
            ));
        }
        if request.embedding.is_some() {
            return Some("media: an embedding is computed from tokens only".to_owned());
        }
        let answered = request.sampling.answered as usize;
        let mut free = 0..request.prompt.len().saturating_sub(answered);
        let mut inputs = request.media.iter().enumerate();
        inputs.find_map(|(at, input)| {
            let refusal = self.refusal_of(input, &free, encoder.rows_max);
            free.start = input.rows.end;
            refusal.map(|why| format!("media[{at}] {why}"))
        })
    }

    /// Why an input is not taken whose rows have to be in `free`.
    fn refusal_of(
        &self,
        input: &MediaInput,
        free: &Range<usize>,
        rows_max: usize,
    ) -> Option<String> {
        let (rows, (height, width)) = (&input.rows, input.grid);
        if rows.start < free.start || rows.is_empty() || rows.end > free.end {
            let (from, to) = (free.start, free.end);
            return Some(format!(
                "has rows {rows:?}; at least one, from {from}..{to}"
            ));
        }
        let len = rows.len();
        if len > rows_max {
            return Some(format!("has {len} rows; at most {rows_max}"));
        }
        let cells = height as usize * width as usize;
        (self.axes && cells != len && (height, width) != (0, 0))
            .then(|| format!("has {len} rows; its grid of {height} by {width} has {cells}"))
    }
}
