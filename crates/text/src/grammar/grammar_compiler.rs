//! Compilation of sources to grammars over one vocabulary, and the cache of compiled grammars and of rejected sources.

use super::error::{GrammarError, GrammarRejection, first_lines};
use super::grammar_matcher::{Grammar, GrammarMatcher};
use super::grammar_source::{CheckedSource, GrammarSource};
use super::json_schema::BoundedSchema;
use super::lexer_work::{
    GRAMMAR_SYMBOLS_MAX, LEXER_FUEL, LEXER_START_FUEL, LEXER_STATES_MAX, MASK_FUEL, MASK_ITEMS_MAX,
    ROW_ITEMS_MAX,
};
use super::number_lexemes::NumberedGrammar;
use super::{grammar_matcher, lexer_work};
use crate::Tokenizer;
use llguidance::api::{GrammarInit, ParserLimits};
use llguidance::toktrie::InferenceCapabilities;
use llguidance::{ParserFactory, panic_utils};
use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Stack of the compiling thread: references of a schema may nest as deep as the schema has values.
pub const COMPILE_STACK_BYTES: usize = 256 << 20;

/// Compiles grammars for one vocabulary.
pub struct GrammarCompiler {
    tokenizer: Arc<Tokenizer>,
    eos: Vec<u32>,
    /// Created with the first grammar.
    factory: OnceLock<Result<ParserFactory, String>>,
    cache: Mutex<GrammarCache>,
}

impl GrammarCompiler {
    /// A compiler for answers in this vocabulary that end with one of `eos`.
    pub fn new(tokenizer: Arc<Tokenizer>, eos: &[u32]) -> Self {
        Self {
            tokenizer,
            eos: eos.to_vec(),
            factory: OnceLock::new(),
            cache: Mutex::default(),
        }
    }

    /// The cached grammar of a source. Does not compile.
    pub fn find_cached(&self, source: &GrammarSource) -> Option<Arc<Grammar>> {
        self.cached(&source.key())?.ok()
    }

    /// Compiles a grammar. Takes milliseconds, and the first time up to a second for a large vocabulary; uses
    /// up to [`COMPILE_STACK_BYTES`] of stack on a separate thread. Blocks the calling thread. Rejections are
    /// cached like grammars.
    ///
    /// # Errors
    /// The source is invalid or exceeds a bound.
    pub fn compile(&self, source: &GrammarSource) -> Result<Arc<Grammar>, GrammarError> {
        let key = source.key();
        if let Some(known) = self.cached(&key) {
            return known;
        }
        let compiled = std::thread::scope(|scope| {
            let compiler = std::thread::Builder::new()
                .name("grammar".into())
                .stack_size(COMPILE_STACK_BYTES)
                .spawn_scoped(scope, || self.compile_here(source));
            compiler.map(std::thread::ScopedJoinHandle::join)
        });
        let Ok(compiled) = compiled else {
            // A later attempt may find a thread.
            return Err(GrammarError::whole(GrammarError::NO_THREAD));
        };
        let compiled =
            compiled.unwrap_or_else(|_| Err(GrammarError::whole("could not be compiled")));
        let compiled = compiled.map(Arc::new);
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        cache.put(key, &compiled);
        compiled
    }

    fn cached(&self, key: &str) -> Option<Result<Arc<Grammar>, GrammarError>> {
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        cache.get(key)
    }

    fn compile_here(&self, source: &GrammarSource) -> Result<Grammar, GrammarError> {
        let whole = |refusal: GrammarRejection| GrammarError::whole(refusal.why);
        let start = match source.read(&self.tokenizer)? {
            CheckedSource::Other(grammar) => self.start(grammar).map_err(whole)?,
            CheckedSource::Lark(grammar) => {
                let (start, _) = self.start_counted(grammar, false).map_err(whole)?;
                start
            }
            CheckedSource::BoundedSchema(schema) => self.of_schema(&schema)?,
            CheckedSource::Calls(grammar, schemas) => self.start(grammar).map_err(|refusal| {
                let culprit = schemas.iter().find_map(|(tool, schema)| {
                    let error = self.of_schema(schema).err()?;
                    Some(error.in_tool(*tool))
                });
                culprit.unwrap_or_else(|| whole(refusal))
            })?,
        };
        Ok(Grammar { start })
    }

    fn of_schema(&self, schema: &BoundedSchema) -> Result<GrammarMatcher, GrammarError> {
        schema
            .grammar()
            .and_then(|grammar| self.start(grammar))
            .map_err(|refusal| {
                let (place, why) = schema.culprit(refusal, |part| self.symbols(part));
                GrammarError { place, why }
            })
    }

    /// A matcher of a grammar within all bounds.
    fn start(&self, grammar: NumberedGrammar) -> Result<GrammarMatcher, GrammarRejection> {
        let (start, _) = self.start_counted(grammar, true)?;
        Ok(start)
    }

    /// Number of symbols of a grammar within all bounds.
    fn symbols(&self, grammar: NumberedGrammar) -> Result<usize, GrammarRejection> {
        let (_, symbols) = self.start_counted(grammar, true)?;
        Ok(symbols)
    }

    fn start_counted(
        &self,
        grammar: NumberedGrammar,
        forces: bool,
    ) -> Result<(GrammarMatcher, usize), GrammarRejection> {
        let NumberedGrammar { grammar, numbers } = grammar;
        let factory = self.factory.get_or_init(|| self.factory());
        let factory = factory.as_ref().map_err(GrammarRejection::of)?;
        let (vocabulary, limits) = (factory.tok_env().clone(), factory.limits().clone());
        let read = panic_utils::catch_unwind(AssertUnwindSafe(|| {
            GrammarInit::Serialized(grammar).to_internal(Some(vocabulary), limits)
        }));
        let (grammar, mut lexer) = read.map_err(|error| GrammarRejection::of(&error))?;
        lexer.no_forcing |= !forces;
        let symbols = grammar.num_symbols();
        lexer_work::check_size(&lexer)?;
        numbers.apply(&mut lexer, factory.limits(), LEXER_START_FUEL)?;
        let empty = lexer_work::first_derivatives(&lexer, factory.limits())?;
        let parser = factory.create_parser_from_init_default(GrammarInit::Internal(grammar, lexer));
        let parser = parser.map_err(|error| GrammarRejection::of(&error))?;
        lexer_work::check(parser.parser.grammar(), &empty).map_err(GrammarRejection::wrong)?;
        Ok((GrammarMatcher::start(parser)?, symbols))
    }

    fn factory(&self) -> Result<ParserFactory, String> {
        let vocabulary = grammar_matcher::of(&self.tokenizer, &self.eos);
        let capabilities = InferenceCapabilities {
            ff_tokens: self.tokenizer.encodes_fragments(),
            ..InferenceCapabilities::default()
        };
        let factory = ParserFactory::new(&vocabulary, capabilities, &token_slices());
        let mut factory = factory.map_err(|error| first_lines(&error))?;
        factory.quiet();
        *factory.limits_mut() = ParserLimits {
            initial_lexer_fuel: LEXER_FUEL,
            max_grammar_size: GRAMMAR_SYMBOLS_MAX,
            max_items_in_row: ROW_ITEMS_MAX,
            step_lexer_fuel: MASK_FUEL,
            step_max_items: MASK_ITEMS_MAX,
            max_lexer_states: LEXER_STATES_MAX,
            // Its running time is not bounded by fuel.
            precompute_large_lexemes: false,
            verbose_errors: false,
        };
        Ok(factory)
    }
}

/// Token slices: sets of tokens that many constraints allow completely, so that the trie need not be walked for them. They
/// are regular expressions, wider slices after narrower ones. Longer tokens are walked.
///
/// Before each mask, llguidance finds the widest slice that the constraint allows here, takes the slice's precomputed
/// mask, and walks only the rest of the vocabulary. The built-in slices are for JSON strings. Most tokens are words, so
/// without word slices a regular expression over letters would walk nearly the whole vocabulary.
fn token_slices() -> Vec<String> {
    const WORDS: [&str; 4] = [
        "[a-z]{1,16}",
        "[A-Za-z]{1,16}",
        "[a-z ]{1,16}",
        "[A-Za-z ]{1,16}",
    ];
    let json = llguidance::earley::SlicedBiasComputer::general_slices();
    json.into_iter().chain(WORDS.map(str::to_owned)).collect()
}

/// Compiled grammars that are kept for later requests with equal sources.
pub const GRAMMARS_MAX: usize = 64;
/// Rejections that are kept for later requests with equal sources, separate from the grammars: rejected
/// sources evict no grammar.
pub const REFUSALS_MAX: usize = 64;

/// The most recently used grammars and rejections, by source.
pub(super) struct GrammarCache {
    grammars: RecentlyUsed<Arc<Grammar>>,
    refusals: RecentlyUsed<GrammarError>,
}

impl Default for GrammarCache {
    fn default() -> Self {
        Self {
            grammars: RecentlyUsed::new(GRAMMARS_MAX),
            refusals: RecentlyUsed::new(REFUSALS_MAX),
        }
    }
}

impl GrammarCache {
    pub(super) fn get(&mut self, key: &str) -> Option<Result<Arc<Grammar>, GrammarError>> {
        match self.grammars.get(key) {
            Some(grammar) => Some(Ok(grammar)),
            None => self.refusals.get(key).map(Err),
        }
    }

    /// Inserts a result and evicts the least recently used one of its kind.
    pub(super) fn put(&mut self, key: String, compiled: &Result<Arc<Grammar>, GrammarError>) {
        match compiled {
            Ok(grammar) => self.grammars.put(key, Arc::clone(grammar)),
            Err(refusal) => self.refusals.put(key, refusal.clone()),
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> (usize, usize) {
        (self.grammars.values.len(), self.refusals.values.len())
    }
}

/// A least-recently-used map.
struct RecentlyUsed<V> {
    values: HashMap<String, CachedValue<V>>,
    most: usize,
    /// Number of uses so far.
    uses: u64,
}

struct CachedValue<V> {
    value: V,
    /// Number of the last use.
    last: u64,
}

impl<V: Clone> RecentlyUsed<V> {
    fn new(most: usize) -> Self {
        Self {
            values: HashMap::new(),
            most,
            uses: 0,
        }
    }

    fn get(&mut self, key: &str) -> Option<V> {
        self.uses += 1;
        let used = self.values.get_mut(key)?;
        used.last = self.uses;
        Some(used.value.clone())
    }

    fn put(&mut self, key: String, value: V) {
        if self.values.len() >= self.most && !self.values.contains_key(&key) {
            let oldest = self.values.iter().min_by_key(|(_, used)| used.last);
            if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
                self.values.remove(&oldest);
            }
        }
        self.uses += 1;
        let last = self.uses;
        self.values.insert(key, CachedValue { value, last });
    }
}
