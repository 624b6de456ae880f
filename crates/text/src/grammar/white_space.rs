//! White space between JSON tokens.

/// One space, or a line break and at most 20 characters of indentation, at most once per gap; the bound of
/// llama.cpp's `space` rule. A small model fills every gap, so more white space would cost the answer tokens.
pub(crate) const JSON_WHITE_SPACE: &str = r" |\n[ \t]{0,20}";
