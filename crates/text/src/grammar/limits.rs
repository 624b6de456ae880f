//! Bounds of one grammar.

/// Bytes of a grammar or schema as received.
pub const GRAMMAR_BYTES_MAX: usize = 1 << 18;
/// Regular expression nodes that compilation may create; about 50 per microsecond.
pub const LEXER_FUEL: u64 = 1_000_000;
/// Symbols in the productions of a grammar. Compilation time grows quadratically: 0.7 s at this bound.
pub const GRAMMAR_SYMBOLS_MAX: usize = 25_000;
/// Work of the lexer for one mask; about 14 units per microsecond.
pub const MASK_FUEL: u64 = 200_000;
/// Work of the parser for one mask, in Earley items; about 20 per microsecond.
pub const MASK_ITEMS_MAX: usize = 50_000;
/// Earley items of one row: simultaneous positions in the grammar. An optional property that may come next
/// takes 4; time grows quadratically, 10 ms at this bound.
pub const ROW_ITEMS_MAX: usize = 10_000;
/// Lexer states that one answer may create, 1 to 2 KB each.
pub const LEXER_STATES_MAX: usize = 16_384;
