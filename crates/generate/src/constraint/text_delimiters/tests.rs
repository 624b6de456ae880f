//! Reasoning between text delimiters: its budget, and the content constraint after it, for every cut into tokens.
//!
//! Promise (Structured output): a constraint begins after the reasoning, wherever tokens cut the closing delimiter;
//! in channels it applies to the final channel, a call's to the commentary channel, in every API, streamed and
//! non-streaming.
//! Also held by `server/tests/it/speech/channels.rs`.

use super::*;
use proptest::prelude::*;
use std::sync::Mutex;
use testing::small_vocabulary::{EOS, WORD, tokenizer, with_words};
use text::{ReasoningFamily, ToolFamily};

const FORMAT: AnswerFormat = AnswerFormat {
    tools: ToolFamily::None,
    reasoning: ReasoningFamily::Granite,
};

fn after(prompt: &str, budget: u64) -> TextReasoningBudget {
    let spelled = TextDelimiters::find(FORMAT, prompt, &tokenizer()).expect("marks");
    TextReasoningBudget::new(spelled, Some(budget), &tokenizer(), false, None)
}

/// Accepts a text byte by byte; returns the forced tokens after it, as text.
fn say(it: &mut TextReasoningBudget, text: &str) -> String {
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
fn matching_closing_delimiter_is_forced_whole() {
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
fn reasoning_within_budget_is_unconstrained() {
    let mut it = after("", 60);
    let text = "Here is my thought process: 2 + 2. Here is my response: 4, and much more than sixty tokens of it, as anybody can see.";
    assert_eq!(say(&mut it, text), "");
    let mut none = after("", 3);
    assert_eq!(say(&mut none, "Here it is, without a thought."), "");
    assert!(TextDelimiters::find(FORMAT, "<think></think>", &tokenizer()).is_none());
}

/// Records accepted tokens; allows digits, and the end after the first.
#[derive(Default)]
struct Digits {
    said: Arc<Mutex<Vec<u32>>>,
    any: bool,
}

impl Constraint for Digits {
    fn mask(&mut self, allowed: &mut [u32]) -> bool {
        (b'0'..=b'9').for_each(|digit| set(allowed, u32::from(digit)));
        if self.any {
            set(allowed, EOS);
        }
        true
    }

    fn accept(&mut self, token: u32) {
        self.any = true;
        self.said.lock().expect("one thread").push(token);
    }

    fn is_complete(&self) -> bool {
        false
    }
}

fn under_a_form(
    prompt: &str,
    tokenizer: &Arc<Tokenizer>,
) -> (TextReasoningBudget, Arc<Mutex<Vec<u32>>>) {
    let (direct, after) = (Digits::default(), Digits::default());
    let said = Arc::clone(&after.said);
    let closings = DelimiterSet::reasoning_closings(FORMAT, tokenizer)
        .map(Arc::new)
        .expect("marks");
    let eos = Arc::from([EOS]);
    let form = FormatAfterReasoning::new(Box::new(direct), Box::new(after), &closings, &eos);
    let spelled = TextDelimiters::find(FORMAT, prompt, tokenizer).expect("marks");
    (
        TextReasoningBudget::new(spelled, None, tokenizer, false, Some(form)),
        said,
    )
}

fn may_come(it: &mut TextReasoningBudget, tokenizer: &Tokenizer) -> Vec<u32> {
    let mut mask = vec![0; tokenizer.vocab_size().div_ceil(32)];
    let is_bound = it.mask(&mut mask);
    let all = 0..u32::try_from(tokenizer.vocab_size()).expect("a small vocabulary");
    all.filter(|&id| !is_bound || has(&mask, id)).collect()
}

const THOUGHT: &str = " it is 4, or </thin 5 or Here is my answer. Here is my response:";

proptest! {
    /// For every cut of the reasoning into tokens of a vocabulary: tokens that would extend beyond the delimiter are not
    /// allowed, and everything after the delimiter belongs to the content constraint.
    #[test]
    fn format_begins_after_the_delimiter_at_every_split(cuts in prop::collection::btree_set(1..THOUGHT.len() + 2, 0..12)) {
        let all = format!("{THOUGHT}42");
        let mut ends: Vec<usize> = cuts.into_iter().collect();
        ends.push(all.len());
        let mut pieces = Vec::new();
        let mut from = 0;
        for end in ends {
            pieces.push(all[from..end.max(from)].to_owned());
            from = end;
        }
        pieces.retain(|piece| !piece.is_empty());
        let mut words: Vec<String> = pieces.iter().filter(|piece| piece.len() > 1).cloned().collect();
        words.sort();
        words.dedup();
        let tokenizer = with_words(&words);
        let (mut it, said) = under_a_form("x Here is my thought process:", &tokenizer);
        let mut at = 0;
        for piece in &pieces {
            let word = words.iter().position(|word| word == piece);
            let byte = u32::from(piece.as_bytes()[0]);
            let id = word.map_or(byte, |word| WORD + u32::try_from(word).expect("few"));
            let crosses = at < THOUGHT.len() && at + piece.len() > THOUGHT.len();
            let allowed = may_come(&mut it, &tokenizer);
            if at < THOUGHT.len() {
                prop_assert!(!allowed.contains(&EOS), "it has not answered");
                prop_assert_eq!(allowed.contains(&id), !crosses, "{:?} at {}", piece, at);
            }
            if at >= THOUGHT.len() || crosses {
                // Single bytes never extend beyond a delimiter.
                for byte in piece.bytes() {
                    prop_assert!(may_come(&mut it, &tokenizer).contains(&u32::from(byte)));
                    it.accept(u32::from(byte));
                }
            } else {
                it.accept(id);
            }
            at += piece.len();
        }
        let said = said.lock().expect("one thread").clone();
        prop_assert_eq!(said, [u32::from(b'4'), u32::from(b'2')]);
        let end = may_come(&mut it, &tokenizer);
        prop_assert!(end.contains(&EOS) && !end.contains(&u32::from(b'a')));
    }
}

#[test]
fn content_constraint_allows_reasoning_or_content_only() {
    let tokenizer = tokenizer();
    let (mut it, said) = under_a_form("", &tokenizer);
    let first = may_come(&mut it, &tokenizer);
    let bytes = |text: &str| text.bytes().map(u32::from).collect::<Vec<_>>();
    assert_eq!(
        first.iter().filter(|&&id| id < 256).count(),
        12,
        "digits, H and <"
    );
    for id in bytes("Here is my thought process:") {
        assert!(may_come(&mut it, &tokenizer).contains(&id));
        it.accept(id);
    }
    for id in bytes("12 apples</think>7") {
        assert!(may_come(&mut it, &tokenizer).contains(&id), "{id}");
        it.accept(id);
    }
    assert_eq!(*said.lock().expect("one thread"), bytes("7"));
    let (mut direct, after) = under_a_form("", &tokenizer);
    direct.accept(u32::from(b'4'));
    assert_eq!(
        may_come(&mut direct, &tokenizer).len(),
        11,
        "digits and the end"
    );
    assert!(after.lock().expect("one thread").is_empty());
}
