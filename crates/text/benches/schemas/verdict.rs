//! One schema: compiled, and its instances followed token by token.

use crate::suite::{Case, Instance};
use serde::Serialize;
use serde_json::Value;
use serde_json::ser::Formatter;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Instant;
use text::{GrammarCompiler, GrammarSource, Tokenizer};

/// The outcome of a schema: that of the first instance with a fault.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    Passes,
    /// The schema does not compile; why.
    Refused(String),
    /// A valid instance is rejected, or an instance reaches a bound of its answer; where.
    WronglyRejected(String),
    /// An invalid instance is accepted.
    WronglyAccepted(String),
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Passes => f.write_str("passes"),
            Self::Refused(why) => write!(f, "refused\t{why}"),
            Self::WronglyRejected(place) => write!(f, "wrongly rejected\t{place}"),
            Self::WronglyAccepted(text) => write!(f, "wrongly accepted\t{text}"),
        }
    }
}

/// A verdict with times in microseconds.
pub(crate) struct Checked {
    pub(crate) verdict: Verdict,
    /// `None` where the schema is refused.
    pub(crate) compile_us: Option<f64>,
    /// Of each mask with the token accepted after it.
    pub(crate) masks_us: Vec<f64>,
}

pub(crate) struct Engine {
    compiler: GrammarCompiler,
    tokenizer: Arc<Tokenizer>,
    mask: Vec<u32>,
    /// Whether the bitmask before each token is computed; otherwise tokens are only accepted.
    computes_masks: bool,
}

impl Engine {
    pub(crate) fn new(
        compiler: GrammarCompiler,
        tokenizer: Arc<Tokenizer>,
        computes_masks: bool,
    ) -> Self {
        // The first grammar builds the trie of the vocabulary.
        drop(compiler.compile(&GrammarSource::JsonObject));
        let mask = vec![0; tokenizer.vocab_size().div_ceil(32)];
        Self {
            compiler,
            tokenizer,
            mask,
            computes_masks,
        }
    }

    pub(crate) fn check(&mut self, case: &Case, closes: bool) -> Checked {
        let source = GrammarSource::JsonSchema(case.schema.clone());
        let source = if closes {
            source.with_closed_objects()
        } else {
            source
        };
        let start = Instant::now();
        let grammar = self.compiler.compile(&source);
        let compile_us = us(start);
        let mut masks_us = Vec::new();
        let grammar = match grammar {
            Ok(grammar) => grammar,
            Err(error) => {
                return Checked {
                    verdict: Verdict::Refused(error.to_string()),
                    compile_us: None,
                    masks_us,
                };
            }
        };
        let mut verdict = Verdict::Passes;
        for test in &case.tests {
            let fault = self.follow(&grammar, test, &mut masks_us);
            if verdict == Verdict::Passes {
                verdict = fault;
            }
        }
        Checked {
            verdict,
            compile_us: Some(compile_us),
            masks_us,
        }
    }

    fn follow(
        &mut self,
        grammar: &text::Grammar,
        test: &Instance,
        masks_us: &mut Vec<f64>,
    ) -> Verdict {
        let text = written(&test.data);
        let ids = match self.tokenizer.encode(&text, false) {
            Ok(ids) => ids,
            Err(error) => return Verdict::WronglyRejected(format!("not encoded: {error}")),
        };
        let mut matcher = grammar.matcher();
        for (at, &id) in ids.iter().enumerate() {
            if !self.computes_masks {
                match (matcher.accept(id), test.valid) {
                    (Ok(()), _) => continue,
                    (Err(_), true) => return Verdict::WronglyRejected(self.place(&ids, at)),
                    (Err(_), false) => return Verdict::Passes,
                }
            }
            let start = Instant::now();
            self.mask.fill(0);
            let masked = matcher.mask(&mut self.mask);
            let is_allowed = self.mask[id as usize / 32] >> (id % 32) & 1 == 1;
            let accepted = match masked {
                Ok(()) if is_allowed => matcher.accept(id),
                other => other,
            };
            masks_us.push(us(start));
            if let Err(error) = accepted {
                return Verdict::WronglyRejected(error.0);
            }
            if !is_allowed {
                return if test.valid {
                    Verdict::WronglyRejected(self.place(&ids, at))
                } else {
                    Verdict::Passes
                };
            }
        }
        match (test.valid, matcher.is_accepting()) {
            (true, false) => Verdict::WronglyRejected(self.place(&ids, ids.len())),
            (false, true) => Verdict::WronglyAccepted(text),
            _ => Verdict::Passes,
        }
    }

    /// The end of the accepted text, and the token that is rejected after it.
    fn place(&self, ids: &[u32], at: usize) -> String {
        let texts = |ids: &[u32]| -> String {
            let bytes = ids.iter().filter_map(|&id| self.tokenizer.bytes(id));
            String::from_utf8_lossy(&bytes.collect::<Vec<_>>().concat()).into_owned()
        };
        let (before, after) = ids.split_at(at);
        let before = &before[before.len().saturating_sub(24)..];
        let next = &after[..after.len().min(1)];
        format!("{}⟨{}⟩", texts(before), texts(next))
    }
}

fn us(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e6
}

/// JSON in one line with a space after commas and colons, as the suite's own runner writes instances.
fn written(data: &Value) -> String {
    let mut out = Vec::new();
    let mut writer = serde_json::Serializer::with_formatter(&mut out, SpacedJson);
    let outcome = data.serialize(&mut writer);
    outcome.expect("JSON is written to memory");
    String::from_utf8(out).expect("JSON is UTF-8")
}

struct SpacedJson;

impl Formatter for SpacedJson {
    fn begin_array_value<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { out.write_all(b", ") }
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { out.write_all(b", ") }
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        out.write_all(b": ")
    }
}
