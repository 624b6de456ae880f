//! The split law by tokens: each case encoded in several vocabularies and decoded as the server decodes
//! tokens.

use super::labelled::Case;
use super::{parse_case, texts};
use crate::strict_calls::vocabulary::{self, Marks};
use proptest::prelude::Rng;
use proptest::test_runner::{RngAlgorithm, TestRng};
use std::collections::BTreeSet;
use std::sync::Arc;
use text::{Decoder, Tokenizer};

/// Random tokenizations and groupings of each case in each vocabulary.
const WAYS: u8 = 3;
/// Largest number of tokens in a group.
const GROUP_MAX: u32 = 8;

/// A text as tokens, with counts of special properties.
struct Spelt {
    ids: Vec<u32>,
    /// Delimiters that are one token.
    marks: usize,
    /// Tokens that straddle the end of a delimiter, or end inside a character.
    across: usize,
}

/// Delimiters without meaning in this family are written in letters: decoding drops the text of their tokens.
fn spell(tokenizer: &Tokenizer, shown: &[u32], text: &str, rng: &mut TestRng) -> Spelt {
    let mut spelt = Spelt {
        ids: Vec::new(),
        marks: 0,
        across: 0,
    };
    let mut at = 0;
    while at < text.len() {
        let begins = vocabulary::beginnings(tokenizer, &text.as_bytes()[at..], rng);
        let means = |id: u32| !tokenizer.is_control(id) || shown.binary_search(&id).is_ok();
        let first = begins.into_iter().find(|&(id, _)| means(id));
        let (id, bytes) = first.expect("every byte is a token");
        let is_mark = vocabulary::is_mark(&text.as_bytes()[at..at + bytes]);
        spelt.marks += usize::from(is_mark);
        let end = at + bytes;
        spelt.across += usize::from(!text.is_char_boundary(end) || (bytes > 1 && !is_mark));
        spelt.ids.push(id);
        at = end;
    }
    spelt
}

/// Decoded text of groups of tokens.
fn decoded(
    tokenizer: &Arc<Tokenizer>,
    shown: &[u32],
    ids: &[u32],
    rng: &mut TestRng,
) -> Vec<String> {
    let mut decoder = Decoder::new(Arc::clone(tokenizer), false).showing(shown.into());
    let most = 1 + rng.next_u32() % GROUP_MAX;
    let (mut pieces, mut piece, mut room) = (Vec::new(), String::new(), 1);
    for &id in ids {
        decoder.push(id, &mut piece);
        room -= 1;
        if room == 0 {
            pieces.push(std::mem::take(&mut piece));
            room = 1 + rng.next_u32() % most;
        }
    }
    decoder.finish(&mut piece);
    pieces.push(piece);
    pieces
}

/// Families whose cases used such tokens.
#[derive(Default)]
struct Used {
    marks: BTreeSet<String>,
    across: BTreeSet<String>,
}

fn check(case: &Case, marks: Marks, tokenizer: &Arc<Tokenizer>, used: &mut Used) {
    let whole = parse_case(case, [case.text.as_str()]);
    let shown = case.format.visible_control_ids(tokenizer);
    let dialect = case.label.split(": ").next().unwrap_or_default();
    for way in 0..WAYS {
        let mut rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[way; 32]);
        let spelt = spell(tokenizer, &shown, &case.text, &mut rng);
        let pieces = decoded(tokenizer, &shown, &spelt.ids, &mut rng);
        assert_eq!(pieces.concat(), case.text, "{}, {marks:?}", case.label);
        let got = parse_case(case, pieces.iter().map(String::as_str));
        assert_eq!(got, whole, "{}, {marks:?}: {pieces:?}", case.label);
        if spelt.marks > 0 {
            used.marks.insert(dialect.to_owned());
        }
        if spelt.across > 0 {
            used.across.insert(dialect.to_owned());
        }
    }
}

#[test]
fn parts_are_independent_of_tokenization() {
    let texts = texts();
    for marks in [Marks::Control, Marks::Words, Marks::Letters] {
        let tokenizer = vocabulary::tokenizer(marks);
        let mut used = Used::default();
        for (_, case) in &texts {
            check(case, marks, &tokenizer, &mut used);
        }
        for dialect in super::DIALECTS {
            let label = dialect.label;
            assert_eq!(
                used.marks.contains(label),
                marks != Marks::Letters,
                "{label}, {marks:?}"
            );
            assert!(used.across.contains(label), "{label}, {marks:?}");
        }
    }
}
