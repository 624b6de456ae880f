//! Kinds of text that many forms allow whole: their tokens are allowed at once, without a walk through the trie.
//!
//! The library looks, before each mask, for the widest kind that the form allows here whatever its words are, takes the
//! mask of that kind's tokens, and walks the rest of the vocabulary. Its own kinds are those of JSON strings; a
//! vocabulary's tokens are mostly words, so regular expressions over letters were walks through nearly all of it.

/// Kinds, as regular expressions; one that contains another is asked first. Longer tokens than a kind
/// has are walked.
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
