//! From a source to a grammar over one vocabulary.

use super::cache::Cache;
use super::matcher::GrammarMatcher;
use super::schema::Schema;
use super::source::Source;
use super::{GrammarError, GrammarSource, slices, vocabulary};
use crate::Tokenizer;
use llguidance::api::{ParserLimits, TopLevelGrammar};
use llguidance::toktrie::InferenceCapabilities;
use llguidance::{ParserFactory, TokenParser};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Regular expression nodes that compiling a grammar may make; about 50 per microsecond.
pub const LEXER_FUEL: u64 = 1_000_000;
/// Symbols in a compiled grammar's productions.
pub const GRAMMAR_SYMBOLS_MAX: usize = 200_000;
/// Work of the lexer for one mask; about 14 per microsecond.
pub const MASK_FUEL: u64 = 200_000;
/// Work of the parser for one mask, in Earley items; about 20 per microsecond.
pub const MASK_ITEMS_MAX: usize = 50_000;
/// States the lexer of one answer may remember, of 1 to 2 KB each.
pub const LEXER_STATES_MAX: usize = 16_384;
/// Stack of the thread that compiles: a schema's references may go as deep as it has places.
pub const COMPILE_STACK_BYTES: usize = 256 << 20;

/// Compiles grammars for one vocabulary.
pub struct GrammarCompiler {
    tokenizer: Arc<Tokenizer>,
    eos: Vec<u32>,
    /// Made when the first grammar is compiled.
    factory: OnceLock<Result<ParserFactory, String>>,
    cache: Mutex<Cache>,
}

/// A compiled grammar. Cheap to start many answers from.
pub struct Grammar {
    /// At the beginning of an answer.
    start: TokenParser,
}

impl GrammarCompiler {
    /// For answers of this vocabulary that end with one of `eos`.
    pub fn new(tokenizer: Arc<Tokenizer>, eos: &[u32]) -> Self {
        Self {
            tokenizer,
            eos: eos.to_vec(),
            factory: OnceLock::new(),
            cache: Mutex::default(),
        }
    }

    /// The grammar, if it was compiled lately. Quick.
    pub fn find(&self, source: &GrammarSource) -> Option<Arc<Grammar>> {
        self.cached(&source.key())
    }

    /// The grammar. Takes milliseconds, the first time a second where the vocabulary is large, and
    /// up to [`COMPILE_STACK_BYTES`] of stack on a thread of its own: not for a thread that others wait for.
    ///
    /// # Errors
    /// The source is not understood or over a bound.
    pub fn compile(&self, source: &GrammarSource) -> Result<Arc<Grammar>, GrammarError> {
        let key = source.key();
        if let Some(grammar) = self.cached(&key) {
            return Ok(grammar);
        }
        let compiled = std::thread::scope(|scope| {
            let compiler = std::thread::Builder::new()
                .name("grammar".into())
                .stack_size(COMPILE_STACK_BYTES)
                .spawn_scoped(scope, || self.compile_here(source));
            match compiler.map(std::thread::ScopedJoinHandle::join) {
                Ok(Ok(compiled)) => compiled,
                Ok(Err(_)) => Err(GrammarError::whole("could not be compiled")),
                Err(_) => Err(GrammarError::whole(GrammarError::NO_THREAD)),
            }
        });
        let grammar = Arc::new(compiled?);
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        cache.put(key, &grammar);
        Ok(grammar)
    }

    fn cached(&self, key: &str) -> Option<Arc<Grammar>> {
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        cache.get(key)
    }

    fn compile_here(&self, source: &GrammarSource) -> Result<Grammar, GrammarError> {
        let start = match source.read(&self.tokenizer)? {
            Source::Other(grammar) => self.parser(grammar).map_err(GrammarError::whole)?,
            Source::Schema(schema) => self.of_schema(&schema)?,
            Source::Calls(grammar, schemas) => self.parser(grammar).map_err(|why| {
                let culprit = schemas.iter().find_map(|(tool, schema)| {
                    let error = self.of_schema(schema).err()?;
                    Some(error.in_tool(*tool))
                });
                culprit.unwrap_or_else(|| GrammarError::whole(why))
            })?,
        };
        Ok(Grammar { start })
    }

    fn of_schema(&self, schema: &Schema) -> Result<TokenParser, GrammarError> {
        self.parser(schema.grammar()).map_err(|why| {
            let (place, why) = schema.culprit(why, |part| self.parser(part).map(|_| ()));
            GrammarError { place, why }
        })
    }

    fn parser(&self, grammar: TopLevelGrammar) -> Result<TokenParser, String> {
        let factory = self.factory.get_or_init(|| self.factory());
        let factory = factory.as_ref().map_err(Clone::clone)?;
        let parser = factory.create_parser(grammar);
        parser.map_err(|error| first_lines(&error))
    }

    fn factory(&self) -> Result<ParserFactory, String> {
        let vocabulary = vocabulary::of(&self.tokenizer, &self.eos);
        let capabilities = InferenceCapabilities {
            ff_tokens: self.tokenizer.encodes_running(),
            ..InferenceCapabilities::default()
        };
        let factory = ParserFactory::new(&vocabulary, capabilities, &slices::all());
        let mut factory = factory.map_err(|error| first_lines(&error))?;
        factory.quiet();
        *factory.limits_mut() = ParserLimits {
            initial_lexer_fuel: LEXER_FUEL,
            max_grammar_size: GRAMMAR_SYMBOLS_MAX,
            step_lexer_fuel: MASK_FUEL,
            step_max_items: MASK_ITEMS_MAX,
            max_lexer_states: LEXER_STATES_MAX,
            // Its time has no bound.
            precompute_large_lexemes: false,
            verbose_errors: false,
            ..ParserLimits::default()
        };
        Ok(factory)
    }
}

impl Grammar {
    /// An answer that has not begun. It shares nothing with others, so that none can slow another
    /// or use up its bounds.
    pub fn matcher(&self) -> GrammarMatcher {
        GrammarMatcher::new(self.start.deep_clone())
    }
}

/// What went wrong, in words for a caller: without a stack trace or the library's own state.
pub(super) fn first_lines(error: &impl std::fmt::Display) -> String {
    const BYTES_MAX: usize = 400;
    let error = error.to_string();
    let error = error.split("\n<").next().unwrap_or_default().trim();
    let end = (0..=BYTES_MAX.min(error.len())).rev();
    let end = end.into_iter().find(|end| error.is_char_boundary(*end));
    error[..end.unwrap_or(0)].to_owned()
}
