//! Bounds of one grammar, which several files keep.

/// Bytes of a grammar or of a schema as it was sent.
pub const GRAMMAR_BYTES_MAX: usize = 1 << 18;
/// Regular expression nodes that compiling a grammar may make; about 50 per microsecond.
pub const LEXER_FUEL: u64 = 1_000_000;
/// Symbols in a grammar's productions. What it takes to compile grows with their square: 0.7 s at this bound.
pub const GRAMMAR_SYMBOLS_MAX: usize = 25_000;
/// Work of the lexer for one mask; about 14 per microsecond.
pub const MASK_FUEL: u64 = 200_000;
/// Work of the parser for one mask, in Earley items; about 20 per microsecond.
pub const MASK_ITEMS_MAX: usize = 50_000;
/// Parser items of one row: places at which the grammar may be at once. An optional property takes 4 where it may
/// come next; what a row takes grows with the square, 10 ms at this bound.
pub const ROW_ITEMS_MAX: usize = 10_000;
/// States the lexer of one answer may remember, of 1 to 2 KB each.
pub const LEXER_STATES_MAX: usize = 16_384;
