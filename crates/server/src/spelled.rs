//! A budget for reasoning whose marks are plain text, of several tokens each.
//!
//! **States.** *Beginning*: what was said may yet open the reasoning. *Thinking*: the text is searched for a mark that closes it.
//! *Closing*: the budget is used up, and the tokens of the mark that goes with the one that opened it come one after
//! the other. *Answering*: anything may come.

use crate::allowed::set;
use engine::Constraint;
use std::sync::Arc;
use text::{AnswerFormat, Decoder, Tokenizer};

/// How a model spells its reasoning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Spelled {
    opens: &'static [&'static str],
    closes: &'static [&'static str],
    /// Which of them the prompt had opened.
    is_open: Option<usize>,
}

impl Spelled {
    /// Of a model that writes so, after this prompt; `None`: it marks none, or the prompt says that it is over.
    pub(crate) fn find(format: AnswerFormat, prompt: &str) -> Option<Self> {
        let (opens, closes) = format.thought_texts()?;
        let prompt = prompt.trim_end();
        let is_open = opens.iter().position(|open| prompt.ends_with(open));
        let spelled = Self {
            opens,
            closes,
            is_open,
        };
        (!format.closes_reasoning(prompt)).then_some(spelled)
    }
}

/// The constraint of such an answer.
pub(crate) struct SpelledBudget {
    spelled: Spelled,
    /// Tokens it may think.
    budget: u64,
    tokenizer: Arc<Tokenizer>,
    decoder: Decoder,
    /// What was said so far, while it may open the reasoning; the end of what was thought, in which a mark may begin.
    text: String,
    /// The tokens of the mark that closes what was opened.
    close: Vec<u32>,
    at: At,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Beginning,
    /// So many tokens were thought.
    Thinking(u64),
    /// So many tokens of the mark are there.
    Closing(usize),
    Answering,
}

impl SpelledBudget {
    /// At the beginning of an answer.
    pub(crate) fn new(
        spelled: Spelled,
        budget: u64,
        tokenizer: &Arc<Tokenizer>,
        at_text_start: bool,
    ) -> Self {
        let mut it = Self {
            budget,
            decoder: Decoder::new(Arc::clone(tokenizer), at_text_start),
            tokenizer: Arc::clone(tokenizer),
            text: String::new(),
            close: Vec::new(),
            at: At::Beginning,
            spelled,
        };
        if let Some(open) = it.spelled.is_open {
            it.think(open);
        }
        it
    }

    /// It thinks, after the mark of this number.
    fn think(&mut self, open: usize) {
        let closes = self.spelled.closes;
        let close = closes
            .get(open)
            .or(closes.first())
            .copied()
            .unwrap_or_default();
        self.close = self.tokenizer.encode(close, false).unwrap_or_default();
        self.text.clear();
        self.at = At::Thinking(0);
    }

    /// Whether what was said opens the reasoning, and with which mark.
    fn begin(&mut self) {
        let said = self.text.trim_start();
        let opens = self.spelled.opens;
        if let Some(open) = opens.iter().position(|open| said.starts_with(open)) {
            self.think(open);
        } else if !opens.iter().any(|open| open.starts_with(said)) {
            self.at = At::Answering;
        }
    }

    /// Looks for a mark in what was thought, and forgets what can be no part of one.
    fn look(&mut self, used: u64) {
        let closes = self.spelled.closes;
        if closes.iter().any(|close| self.text.contains(close)) {
            self.at = At::Answering;
            return;
        }
        let longest = closes.iter().map(|close| close.len()).max().unwrap_or(0);
        let cut = self.text.len().saturating_sub(longest);
        let cut = (cut..=self.text.len()).find(|&at| self.text.is_char_boundary(at));
        self.text.drain(..cut.unwrap_or(0));
        self.at = At::Thinking(used + 1);
    }

    /// The tokens of the mark that must come now.
    fn due(&self) -> &[u32] {
        match self.at {
            At::Thinking(used) if used >= self.budget => &self.close,
            At::Closing(len) => &self.close[len..],
            _ => &[],
        }
    }
}

impl Constraint for SpelledBudget {
    fn mask(&mut self, allowed: &mut [u32]) -> bool {
        let Some(&id) = self.due().first() else {
            return false;
        };
        set(allowed, id);
        true
    }

    fn accept(&mut self, token: u32) {
        let due = self.due().len();
        if due > 0 {
            self.at = match due {
                1 => At::Answering,
                _ => At::Closing(self.close.len() + 1 - due),
            };
            return;
        }
        match self.at {
            At::Beginning => {
                self.decoder.push(token, &mut self.text);
                self.begin();
            }
            At::Thinking(used) => {
                self.decoder.push(token, &mut self.text);
                self.look(used);
            }
            At::Closing(_) | At::Answering => {}
        }
    }

    /// There may always be more to say.
    fn is_complete(&self) -> bool {
        false
    }

    fn forced(&self, most: usize, into: &mut Vec<u32>) {
        into.extend(self.due().iter().take(most));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_vocab::tokenizer;
    use text::{ReasoningFamily, ToolFamily};

    const FORMAT: AnswerFormat = AnswerFormat {
        tools: ToolFamily::None,
        reasoning: ReasoningFamily::Granite,
    };

    fn after(prompt: &str, budget: u64) -> SpelledBudget {
        let spelled = Spelled::find(FORMAT, prompt).expect("marks");
        SpelledBudget::new(spelled, budget, &tokenizer(), false)
    }

    /// Says a text, byte by byte; gives what was forced after it, as text.
    fn say(it: &mut SpelledBudget, text: &str) -> String {
        for byte in text.bytes() {
            let mut mask = [0; 9];
            assert!(!it.mask(&mut mask), "{text:?} is free");
            it.accept(u32::from(byte));
        }
        let mut all = Vec::new();
        loop {
            let (mut mask, mut forced) = ([0u32; 9], Vec::new());
            if !it.mask(&mut mask) {
                return String::from_utf8(all).expect("a mark");
            }
            it.forced(1, &mut forced);
            let id = forced[0];
            assert_eq!(mask.iter().map(|word| word.count_ones()).sum::<u32>(), 1);
            assert_eq!(mask[id as usize / 32] >> (id % 32) & 1, 1);
            all.extend(tokenizer().bytes(id).expect("a token"));
            it.accept(id);
        }
    }

    #[test]
    fn the_mark_that_goes_with_the_first_comes_whole() {
        for (open, close) in [
            ("Here is my thought process:", "Here is my response:"),
            ("Here's my thought process:", "Here's my response:"),
            ("<think>", "</think>"),
        ] {
            let mut it = after("", 3);
            assert_eq!(say(&mut it, &format!("\n{open}abc")), close);
            assert_eq!(say(&mut it, "and then anything at all"), "");
            let mut opened = after(&format!("x{open}\n"), 2);
            assert_eq!(say(&mut opened, "ab"), close);
        }
    }

    #[test]
    fn who_closes_in_time_is_left_alone() {
        let mut it = after("", 60);
        let text = "Here is my thought process: 2 + 2. Here is my response: 4, and much more than sixty tokens of it, as anybody can see.";
        assert_eq!(say(&mut it, text), "");
        let mut none = after("", 3);
        assert_eq!(say(&mut none, "Here it is, without a thought."), "");
        assert!(Spelled::find(FORMAT, "<think></think>").is_none());
    }
}
