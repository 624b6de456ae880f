//! Token slices: sets of tokens that many constraints allow completely, so that the trie need not be walked
//! for them.
//!
//! Before each mask, llguidance finds the widest slice that the constraint allows here, takes the slice's
//! precomputed mask, and walks only the rest of the vocabulary. The built-in slices are for JSON strings.
//! Most tokens are words, so without word slices a regular expression over letters would walk nearly the
//! whole vocabulary.

/// Slices as regular expressions, wider slices after narrower ones. Longer tokens are walked.
pub(super) fn all() -> Vec<String> {
    const WORDS: [&str; 4] = [
        "[a-z]{1,16}",
        "[A-Za-z]{1,16}",
        "[a-z ]{1,16}",
        "[A-Za-z ]{1,16}",
    ];
    let json = llguidance::earley::SlicedBiasComputer::general_slices();
    json.into_iter().chain(WORDS.map(str::to_owned)).collect()
}
