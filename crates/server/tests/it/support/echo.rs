//! A model that says what it is told to: its prompt is its script.

use super::vocab::{BOS, CHANNELS, EOS, WORD, WORDS};
use model::{Batch, Dims, Forward, ForwardError, PageId, SpanView, Want};

/// The script stands between two control tokens; what comes after may open its reasoning. Earlier messages stand before.
pub const TEMPLATE: &str = "{% for m in messages[:-1] %}[{{ m.role }}]{{ m.content }}{% for c in m.tool_calls or [] %}\
    {{ c.function | tojson }}{% endfor %}{% endfor %}<|eos|>{{ messages[-1].content }}<|bos|>\
    {% if enable_thinking %}{{ '<think>\n' }}{% endif %}";
/// The same of a template that has no place for tools: all messages are shown, the last is the script.
pub const TEMPLATE_WITHOUT_TOOLS: &str = "{% for m in messages[:-1] %}[{{ m.role }}]{{ m.content }}{% endfor %}\
    <|eos|>{{ messages[-1].content }}<|bos|>";
/// The same for a model that writes in channels.
pub const TEMPLATE_OF_CHANNELS: &str = "{% for m in messages[:-1] %}[{{ m.role }}]{{ m.content }}\
    {% for c in m.tool_calls or [] %}{{ c.function | tojson }}{% endfor %}{% endfor %}\
    <|eos|>{{ messages[-1].content }}<|bos|><|start|>assistant";
/// What the templates open.
const OPENED: [&[u8]; 2] = [b"<think>\n", b"<|start|>assistant"];
/// Tokens that are said as such: what opens and closes reasoning, and what opens a call.
const MARKS: [u32; 3] = [WORD + 6, WORD + 7, WORD + 8];
/// How much likelier the next token of the script is than any other.
const SURE: f32 = 60.0;

/// The model.
pub struct Echo {
    /// (pages, page_tokens)
    tokens: Vec<u32>,
    logits: Vec<f32>,
    words: &'static [&'static [u8]],
    /// Words that are said as such.
    marks: Vec<u32>,
}

impl Echo {
    /// Nothing was said to it yet.
    pub fn new() -> Self {
        Self::with(&WORDS, MARKS.to_vec())
    }

    /// The same over the vocabulary of channels.
    pub fn in_channels() -> Self {
        let marks = (WORD..).take(CHANNELS.len()).collect();
        Self::with(&CHANNELS, marks)
    }

    fn with(words: &'static [&'static [u8]], marks: Vec<u32>) -> Self {
        Self {
            tokens: vec![0; dims(words).pages * dims(words).page_tokens],
            logits: Vec::new(),
            words,
            marks,
        }
    }

    fn push_row(&mut self, span: &SpanView<'_>, position: usize) {
        let said: Vec<u32> = (0..=position).map(|p| self.tokens[slot(span, p)]).collect();
        let next = self.next(&said);
        let vocab = u32::try_from(self.dims().vocab).expect("a small vocabulary");
        let row = (0..vocab).map(|id| if id == next { SURE } else { 0.0 });
        self.logits.extend(row);
    }

    /// What the script has after that: marks as the tokens they are, all else by bytes.
    fn next(&self, said: &[u32]) -> u32 {
        let place = |of| said.iter().position(|&id| id == of);
        let (Some(from), Some(to)) = (place(EOS), place(BOS)) else {
            return EOS;
        };
        let (script, answer) = (self.bytes(&said[from + 1..to]), self.bytes(&said[to + 1..]));
        let opened = |text: &&[u8]| answer.starts_with(text) && !script.starts_with(text);
        let opened = OPENED.into_iter().find(opened).unwrap_or_default();
        let rest = script
            .get(answer.len() - opened.len()..)
            .unwrap_or_default();
        let is_next = |&id: &u32| rest.starts_with(&self.bytes(&[id]));
        let mark = self.marks.iter().copied().find(is_next);
        mark.or(rest.first().map(|&byte| u32::from(byte)))
            .unwrap_or(EOS)
    }

    /// What tokens stand for.
    fn bytes(&self, ids: &[u32]) -> Vec<u8> {
        let of = |&id: &u32| match u8::try_from(id) {
            Ok(byte) => vec![byte],
            Err(_) if id >= WORD => self.words[(id - WORD) as usize].to_vec(),
            Err(_) => Vec::new(),
        };
        ids.iter().flat_map(of).collect()
    }
}

fn dims(words: &[&[u8]]) -> Dims {
    Dims {
        vocab: 258 + words.len(),
        context_max: 4096,
        page_tokens: 16,
        pages: 1024,
        rows_max: 512,
        logit_rows_max: 256,
    }
}

fn slot(span: &SpanView<'_>, position: usize) -> usize {
    let page_tokens = dims(&WORDS).page_tokens;
    span.pages[position / page_tokens] as usize * page_tokens + position % page_tokens
}

impl Forward for Echo {
    fn dims(&self) -> Dims {
        dims(self.words)
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
                Want::None | Want::LastHidden | Want::AllHidden | Want::FirstHidden => end,
                Want::Last => end - 1,
                Want::All => span.position,
            };
            (first..end).for_each(|position| self.push_row(&span, position));
        }
        Ok(&mut self.logits)
    }

    fn copy_page(&mut self, from: PageId, to: PageId) {
        let tokens = self.dims().page_tokens;
        let from = from as usize * tokens;
        self.tokens
            .copy_within(from..from + tokens, to as usize * tokens);
    }
}
