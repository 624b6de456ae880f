//! White space between the parts of JSON.

/// One space, or a line end and at most 20 blanks of indentation; each gap has it once or not at all. llama.cpp's
/// `space` rule has the same bound. A small model fills gap after gap, so a longer one costs an answer its tokens.
pub(crate) const JSON_WHITE_SPACE: &str = r" |\n[ \t]{0,20}";
