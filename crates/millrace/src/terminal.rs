//! One answer, streamed to a terminal with the server's token log, decoder and stop matcher, by a thread that may block.

use crate::args::SamplingArgs;
use crate::failure::Failure;
use crate::loading::LoadedEngine;
use engine::{Choice, Progress, Rejected, Request, SamplingParams, Terms, Token};
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;
use stream::{End, FailCode, Read, Reader};
use text::{Decoder, StopHit, StopMatcher};

/// Tokens of one read from the log.
const READ_TOKENS: usize = 64;

/// A finished answer.
pub(crate) struct Answer {
    pub(crate) text: String,
    pub(crate) end: End,
    pub(crate) prompt_tokens: usize,
    pub(crate) tokens: u64,
    pub(crate) progress: Arc<Progress>,
}

impl Answer {
    /// From the start of the prompt's computation to the first token.
    pub(crate) fn prompt_time(&self) -> Duration {
        span_between(self.progress.started_ns(), self.progress.first_token_ns())
    }

    /// From the first token to the last.
    pub(crate) fn decode_time(&self) -> Duration {
        span_between(self.progress.first_token_ns(), self.progress.ended_ns())
    }

    /// Checks that the answer ended regularly.
    ///
    /// # Errors
    /// The reason why the answer is incomplete; `model` is named if its logits are not finite.
    pub(crate) fn expect_whole(&self, model: &str) -> Result<(), Failure> {
        match self.end {
            End::Stop(_) | End::Length => Ok(()),
            End::Failed(FailCode::NotFinite) => {
                Err(Failure::user(format!("{model}: {NOT_FINITE}")))
            }
            end => Err(Failure::bug(format!("the answer ended with {end:?}"))),
        }
    }
}

/// The error for logits that are not finite, which is a fault of the model's file.
const NOT_FINITE: &str =
    "the model's logits are NaN or infinite: its weights are damaged or were converted wrongly";

fn span_between(from_ns: u64, to_ns: u64) -> Duration {
    Duration::from_nanos(to_ns.saturating_sub(from_ns))
}

/// Generates an answer to `prompt` and writes the text to `out` as soon as it is final.
pub(crate) fn answer(
    loaded: &LoadedEngine,
    prompt: Vec<u32>,
    args: &SamplingArgs,
    out: &mut impl Write,
) -> Result<Answer, Failure> {
    let prompt_tokens = prompt.len();
    let room = loaded.context_max.saturating_sub(prompt_tokens);
    if room == 0 {
        let why = format!(
            "the prompt has {prompt_tokens} tokens, the context {}",
            loaded.context_max
        );
        return Err(Failure::user(why));
    }
    let max_tokens = args.max_tokens.unwrap_or(room).min(room);
    let (writer, reader) = stream::open(&loaded.tokens, max_tokens)
        .map_err(|why| Failure::bug(format!("no segments for one stream: {why:?}")))?;
    let progress = Arc::new(Progress::default());
    let request = Request {
        prompt,
        sampling: sampling_params(args),
        max_tokens,
        eos: loaded.tokenizer.eos_ids().into(),
        choices: vec![Choice {
            tokens: writer,
            top: None,
            terminator: None,
            constraint: None,
        }],
        embedding: None,
        deadline: None,
        credit_window: 0,
        terms: Terms::default(),
        progress: Arc::clone(&progress),
        permits: None,
        held: None,
    };
    loaded
        .engine
        .submit(request)
        .map_err(|rejected| rejection_failure(&rejected))?;
    let mut decoder = TerminalDecoder::new(loaded, args, prompt_tokens == 0);
    let (end, tokens) = decoder.read_all(reader, out)?;
    Ok(Answer {
        text: decoder.text,
        end,
        prompt_tokens,
        tokens,
        progress,
    })
}

fn rejection_failure(rejected: &Rejected) -> Failure {
    match rejected {
        Rejected::Invalid(_, why) => Failure::user(why),
        Rejected::Full(_) | Rejected::Closed(_) => Failure::bug("the engine took no request"),
    }
}

fn sampling_params(args: &SamplingArgs) -> SamplingParams {
    SamplingParams {
        temperature: args.temperature,
        top_k: args.top_k,
        top_p: args.top_p,
        min_p: args.min_p,
        seed: args.seed.unwrap_or_else(fresh_seed),
        ..SamplingParams::default()
    }
}

/// An unpredictable seed: the standard library's per-process random keys.
fn fresh_seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one("seed")
}

/// Decodes token ids to text on the terminal.
struct TerminalDecoder {
    decoder: Decoder,
    stops: StopMatcher,
    piece: String,
    text: String,
}

impl TerminalDecoder {
    fn new(loaded: &LoadedEngine, args: &SamplingArgs, at_text_start: bool) -> Self {
        Self {
            decoder: Decoder::new(Arc::clone(&loaded.tokenizer), at_text_start),
            stops: StopMatcher::new(&args.stop),
            piece: String::new(),
            text: String::new(),
        }
    }

    /// Reads to the end, or to a stop string, where dropping the reader cancels the sequence.
    fn read_all(
        &mut self,
        mut reader: Reader<Token>,
        out: &mut impl Write,
    ) -> Result<(End, u64), Failure> {
        let mut buffer = [Token {
            id: 0,
            logprob: 0.0,
        }; READ_TOKENS];
        loop {
            match reader.read_blocking(&mut buffer) {
                Read::Items(count) => {
                    for token in &buffer[..count] {
                        if let Some(hit) = self.push(token.id, out)? {
                            let end = End::Stop(stream::Stop::StopString(hit.index));
                            return Ok((end, reader.cursor()));
                        }
                    }
                    out.flush()?;
                }
                Read::Ended(end) => {
                    self.finish(out)?;
                    return Ok((end, reader.cursor()));
                }
                Read::Empty => {}
            }
        }
    }

    fn push(&mut self, id: u32, out: &mut impl Write) -> Result<Option<StopHit>, Failure> {
        self.piece.clear();
        self.decoder.push(id, &mut self.piece);
        let before = self.text.len();
        let hit = self.stops.push(&self.piece, &mut self.text);
        out.write_all(&self.text.as_bytes()[before..])?;
        Ok(hit)
    }

    fn finish(&mut self, out: &mut impl Write) -> Result<(), Failure> {
        self.piece.clear();
        self.decoder.finish(&mut self.piece);
        let before = self.text.len();
        if self.stops.push(&self.piece, &mut self.text).is_none() {
            self.stops.finish(&mut self.text);
        }
        out.write_all(&self.text.as_bytes()[before..])?;
        out.flush()?;
        Ok(())
    }
}
