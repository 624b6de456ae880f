//! The split law by tokens: each golden as the ids of vocabularies, decoded as the server decodes them.

use super::labelled::Case;
use super::{parse_case, texts};
use crate::strict_calls::vocabulary::{self, Marks};
use proptest::prelude::Rng;
use proptest::test_runner::{RngAlgorithm, TestRng};
use std::collections::BTreeSet;
use std::sync::Arc;
use text::{Decoder, Tokenizer};

/// Ways of choosing the tokens of each golden in each vocabulary, and of grouping them.
const WAYS: u8 = 3;
/// Most tokens that come together.
const GROUP_MAX: u32 = 8;

/// A text as tokens; what was used of the vocabulary.
struct Spelt {
    ids: Vec<u32>,
    /// Marks that are one token.
    marks: usize,
    /// Tokens across the end of a mark, or with half a character.
    across: usize,
}

/// A mark that means nothing to this family is written in letters: decoding shows its token to nobody.
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

/// What the decoder gives for groups of the tokens.
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

/// The dialects that used such tokens at all.
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
fn however_tokens_are_chosen_and_grouped_nothing_changes() {
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
