//! A model that says what it is told to: its prompt is its script.

use super::vocab::{BOS, EOS, WORD, WORDS};
use model::{Batch, Dims, Forward, ForwardError, PageId, SpanView, Want};

/// The script stands between two control tokens; what comes after may open its reasoning.
pub const TEMPLATE: &str = "<|eos|>{{ messages[-1].content }}<|bos|>\
    {% if enable_thinking %}{{ '<think>\n' }}{% endif %}";
/// What the template opens.
const OPENED: &[u8] = b"<think>\n";
/// Tokens that are said as such: what opens and closes reasoning, and what opens a call.
const MARKS: [u32; 3] = [WORD + 6, WORD + 7, WORD + 8];
/// How much likelier the next token of the script is than any other.
const SURE: f32 = 60.0;

/// The model.
pub struct Echo {
    /// (pages, page_tokens)
    tokens: Vec<u32>,
    logits: Vec<f32>,
}

impl Echo {
    /// Nothing was said to it yet.
    pub fn new() -> Self {
        let dims = dims();
        Self {
            tokens: vec![0; dims.pages * dims.page_tokens],
            logits: Vec::new(),
        }
    }

    fn push_row(&mut self, span: &SpanView<'_>, position: usize) {
        let said: Vec<u32> = (0..=position).map(|p| self.tokens[slot(span, p)]).collect();
        let next = next(&said);
        let vocab = u32::try_from(dims().vocab).expect("a small vocabulary");
        let row = (0..vocab).map(|id| if id == next { SURE } else { 0.0 });
        self.logits.extend(row);
    }
}

/// What the script has after that: marks as the tokens they are, all else by bytes.
fn next(said: &[u32]) -> u32 {
    let place = |of| said.iter().position(|&id| id == of);
    let (Some(from), Some(to)) = (place(EOS), place(BOS)) else {
        return EOS;
    };
    let (script, answer) = (bytes(&said[from + 1..to]), bytes(&said[to + 1..]));
    let opened = answer.starts_with(OPENED) && !script.starts_with(OPENED);
    let at = answer.len() - if opened { OPENED.len() } else { 0 };
    let rest = script.get(at..).unwrap_or_default();
    let mark = MARKS
        .into_iter()
        .find(|&id| rest.starts_with(&bytes(&[id])));
    mark.or(rest.first().map(|&byte| u32::from(byte)))
        .unwrap_or(EOS)
}

/// What tokens stand for.
fn bytes(ids: &[u32]) -> Vec<u8> {
    let of = |&id: &u32| match u8::try_from(id) {
        Ok(byte) => vec![byte],
        Err(_) if id >= WORD => WORDS[(id - WORD) as usize].to_vec(),
        Err(_) => Vec::new(),
    };
    ids.iter().flat_map(of).collect()
}

fn dims() -> Dims {
    Dims {
        vocab: 258 + WORDS.len(),
        context_max: 2048,
        page_tokens: 16,
        pages: 1024,
        rows_max: 512,
        logit_rows_max: 256,
    }
}

fn slot(span: &SpanView<'_>, position: usize) -> usize {
    let page_tokens = dims().page_tokens;
    span.pages[position / page_tokens] as usize * page_tokens + position % page_tokens
}

impl Forward for Echo {
    fn dims(&self) -> Dims {
        dims()
    }

    fn forward(&mut self, batch: &Batch) -> Result<&mut [f32], ForwardError> {
        for span in batch.spans() {
            for (i, &token) in span.tokens.iter().enumerate() {
                let slot = slot(&span, span.position + i);
                self.tokens[slot] = token;
            }
        }
        self.logits.clear();
        for span in batch.spans() {
            let end = span.position + span.tokens.len();
            let first = match span.want {
                Want::None | Want::LastHidden | Want::AllHidden => end,
                Want::Last => end - 1,
                Want::All => span.position,
            };
            (first..end).for_each(|position| self.push_row(&span, position));
        }
        Ok(&mut self.logits)
    }

    fn copy_page(&mut self, from: PageId, to: PageId) {
        let tokens = dims().page_tokens;
        let from = from as usize * tokens;
        self.tokens
            .copy_within(from..from + tokens, to as usize * tokens);
    }
}
