//! Tokenizer, chat templates, incremental decoder, stop strings, output parsers and grammars. No engine, no
//! HTTP.

mod answer;
mod decoder;
mod grammar;
mod stop;
mod template;
mod tokenizer;
mod vocab;

pub use answer::{
    AnswerFormat, AnswerParser, AnswerParts, BLANKS_HELD_MAX, CallSyntax, ConstrainedTool,
    DelimiterSet, DelimiterWatch, HEAD_BYTES_MAX, HEADER_BYTES_MAX, NAME_BYTES_MAX, NESTING_MAX,
    Part, ReasoningFamily, ToolFamily, ToolSchemas, VALUE_HELD_BYTES_MAX,
};
pub use decoder::{Decoder, TextCover};
pub use grammar::{
    CHOICES_IN_GRAMMAR_MAX, CLOSED_NAMES_MAX, COMPILE_STACK_BYTES, DERIVATIVE_NODES_MAX,
    EXCLUDED_CHARS_MAX, EXCLUSION_CHECKS_MAX, GBNF_COMPARISONS_MAX, GBNF_DEPTH_MAX,
    GBNF_REPEAT_MAX, GBNF_RULES_MAX, GBNF_TERMINALS_MAX, GRAMMAR_BYTES_MAX, GRAMMAR_SYMBOLS_MAX,
    GRAMMARS_MAX, Grammar, GrammarCompiler, GrammarError, GrammarMatcher, GrammarSource,
    INTERSECTED_MAX, LARGE_NUMBERS_MAX, LARK_DEPTH_MAX, LEXER_FUEL, LEXER_START_FUEL,
    LEXER_STATES_MAX, MASK_FUEL, MASK_ITEMS_MAX, MULTIPLE_DIGITS_MAX, MatcherError,
    NUMBER_CHARS_MAX, OPTIONAL_PROPERTIES_MAX, PATTERN_PAIRS_MAX, PATTERNS_AT_ONCE_MAX,
    REFUSALS_MAX, REWRITTEN_PARTS_MAX, ROW_ITEMS_MAX, SCHEMA_COPIES_MAX, SCHEMA_DEPTH_MAX,
    SCHEMA_FORMATS, SCHEMA_NUMBER_MAX, SCHEMA_PLACES_MAX, strict_schema_violation,
};
pub use stop::{StopHit, StopMatcher};
pub use template::{
    BASE_MODEL, Capabilities, ChatTemplate, FUEL, GenericPlace, GenericTools, INVALID_ARGUMENTS,
    ImageMark, Message, OUTPUT_BYTES_MAX, OWN_TEMPLATE, RenderInput, SOURCE_BYTES_MAX,
    TAG_BYTES_MAX, TemplateError, ToolSupport, VALUE_BYTES_MAX, VALUE_ITEMS_MAX, WORK_MAX,
    image_mark, image_marks, image_part, images_of, text_part, turn_format_name,
    with_escaped_values,
};
pub use tokenizer::{
    IdRun, InfillTokens, TEXT_BYTES_MAX, Tokenizer, TokenizerError, template_texts,
};
pub use vocab::{
    InfillIds, MERGES_MAX, TOKEN_BYTES_MAX, TOKENS_MAX, TokenKind, VOCAB_BYTES_MAX, VocabModel,
    VocabSpec,
};
