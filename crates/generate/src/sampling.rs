//! Sampling parameters: for requests that leave them open (the operator's, those that a model's files recommend, or
//! llama.cpp's), as responses report them, and the sequence breakers of the DRY penalty.

use crate::error::ApiError;
use crate::generation_options::{GenerationOptions, PenaltyWindow, own_or_below};
use crate::request::GenerationParams;
use engine::{DRY_SEQUENCES_MAX, DryBreakers, SamplingParams};
use std::ops::RangeInclusive;
use text::Tokenizer;

/// A sampling parameter that has a default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SamplingParameter {
    /// Temperature; 0: greedy.
    Temperature,
    /// Number of the likeliest tokens that are kept; 0: all.
    TopK,
    /// Probability of the likeliest tokens that are kept; 1: all.
    TopP,
    /// Least probability in relation to the likeliest token's; 0: none.
    MinP,
    /// Repetition penalty; 1: none.
    RepetitionPenalty,
    /// Presence penalty; 0: none.
    PresencePenalty,
    /// Frequency penalty; 0: none.
    FrequencyPenalty,
    /// Tokens that the penalties count; -1: all, 0: none.
    PenaltyWindow,
}

/// Default values; `None` leaves a parameter to the next defaults.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[expect(missing_docs, reason = "the fields are those of GenerationOptions")]
pub struct SamplingDefaults {
    pub temperature: Option<f32>,
    pub top_k: Option<u32>,
    pub top_p: Option<f32>,
    pub min_p: Option<f32>,
    pub repetition_penalty: Option<f32>,
    pub presence_penalty: Option<f32>,
    pub frequency_penalty: Option<f32>,
    pub penalty_window: Option<PenaltyWindow>,
}

impl SamplingParameter {
    /// The values that a request may have, and a default, too.
    pub fn range(self) -> RangeInclusive<f64> {
        match self {
            Self::Temperature => 0.0..=2.0,
            Self::TopK | Self::PenaltyWindow => -1.0..=f64::from(u32::MAX),
            Self::TopP | Self::MinP => 0.0..=1.0,
            Self::RepetitionPenalty => 1e-6..=10.0,
            Self::PresencePenalty | Self::FrequencyPenalty => -2.0..=2.0,
        }
    }

    fn is_integer(self) -> bool {
        matches!(self, Self::TopK | Self::PenaltyWindow)
    }
}

impl SamplingDefaults {
    /// llama.cpp's.
    pub const LLAMA_CPP: Self = Self {
        temperature: Some(0.8),
        top_k: Some(40),
        top_p: Some(0.95),
        min_p: Some(0.05),
        repetition_penalty: None,
        presence_penalty: None,
        frequency_penalty: None,
        penalty_window: None,
    };

    /// Sets a parameter.
    ///
    /// # Errors
    /// The value is one that no request may have; the message is the bound.
    pub fn set(&mut self, parameter: SamplingParameter, value: f64) -> Result<(), String> {
        let range = parameter.range();
        let (min, max) = (range.start(), range.end());
        let is_integer = parameter.is_integer();
        if !range.contains(&value) || is_integer && value.fract() != 0.0 {
            let kind = if is_integer { "an integer" } else { "a number" };
            return Err(format!("must be {kind} from {min} to {max}, not {value}"));
        }
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the engine computes in f32"
        )]
        let number = Some(value as f32);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "an integer within its range; -1 saturates to 0"
        )]
        let count = value as u32;
        match parameter {
            SamplingParameter::Temperature => self.temperature = number,
            SamplingParameter::TopK => self.top_k = Some(count),
            SamplingParameter::TopP => self.top_p = number,
            SamplingParameter::MinP => self.min_p = number,
            SamplingParameter::RepetitionPenalty => self.repetition_penalty = number,
            SamplingParameter::PresencePenalty => self.presence_penalty = number,
            SamplingParameter::FrequencyPenalty => self.frequency_penalty = number,
            SamplingParameter::PenaltyWindow => {
                self.penalty_window = Some(match count {
                    _ if value < 0.0 => PenaltyWindow::All,
                    0 => PenaltyWindow::Off,
                    tokens => PenaltyWindow::Last(tokens),
                });
            }
        }
        Ok(())
    }

    /// These defaults, with those `below` for what is open.
    #[must_use]
    pub fn or(self, below: Self) -> Self {
        own_or_below! { self, below;
            temperature top_k top_p min_p repetition_penalty presence_penalty frequency_penalty penalty_window
        }
    }

    /// The options of a request that sets none.
    pub fn options(self) -> GenerationOptions {
        GenerationOptions {
            temperature: self.temperature,
            top_k: self.top_k,
            top_p: self.top_p,
            min_p: self.min_p,
            repetition_penalty: self.repetition_penalty,
            presence_penalty: self.presence_penalty,
            frequency_penalty: self.frequency_penalty,
            penalty_window: self.penalty_window,
            ..GenerationOptions::default()
        }
    }

    /// Values that are set, under Ollama's names.
    pub fn named_values(self) -> impl Iterator<Item = (&'static str, String)> {
        let number = |value: Option<f32>| value.map(|value| value.to_string());
        let window = self.penalty_window.map(|window| match window {
            PenaltyWindow::All => "-1".to_owned(),
            PenaltyWindow::Off => "0".to_owned(),
            PenaltyWindow::Last(tokens) => tokens.to_string(),
        });
        [
            ("temperature", number(self.temperature)),
            ("top_k", self.top_k.map(|top_k| top_k.to_string())),
            ("top_p", number(self.top_p)),
            ("min_p", number(self.min_p)),
            ("repeat_penalty", number(self.repetition_penalty)),
            ("repeat_last_n", window),
            ("presence_penalty", number(self.presence_penalty)),
            ("frequency_penalty", number(self.frequency_penalty)),
        ]
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)))
    }
}

/// The numbers among a generation's parameters, under the names of [`SamplingParams`]. A stream keeps them, and so they are small.
#[derive(Clone, Copy, Debug, PartialEq)]
#[expect(missing_docs, reason = "the fields are those of SamplingParams")]
pub struct ReportedSampling {
    pub seed: u64,
    pub temperature: f32,
    pub top_k: u32,
    pub top_p: f32,
    pub min_p: f32,
    pub typical_p: f32,
    pub repetition_penalty: f32,
    pub presence_penalty: f32,
    pub frequency_penalty: f32,
    pub penalty_window: u32,
    pub dry_multiplier: f32,
    pub dry_base: f32,
    pub dry_allowed_length: u32,
    pub dry_window: u32,
    pub xtc_probability: f32,
    pub xtc_threshold: f32,
    pub top_logprobs: u32,
    pub ignore_eos: bool,
    /// Limit of the answer's tokens; `None`: as many as the context has room for.
    pub max_tokens: Option<u32>,
}

impl ReportedSampling {
    /// The parameters of a request, with its seed.
    pub fn of(params: &GenerationParams) -> Self {
        let max_tokens = params.max_tokens.and_then(|max| u32::try_from(max).ok());
        Self {
            seed: params.seed.unwrap_or(0),
            max_tokens,
            ..Self::from(&params.sampling)
        }
    }
}

impl Default for ReportedSampling {
    fn default() -> Self {
        Self::from(&SamplingParams::default())
    }
}

impl From<&SamplingParams> for ReportedSampling {
    fn from(sampling: &SamplingParams) -> Self {
        macro_rules! copied {
            ($($field:ident)*) => { Self { $($field: sampling.$field,)* max_tokens: None } };
        }
        copied! {
            seed temperature top_k top_p min_p typical_p repetition_penalty presence_penalty frequency_penalty
            penalty_window dry_multiplier dry_base dry_allowed_length dry_window xtc_probability xtc_threshold
            top_logprobs ignore_eos
        }
    }
}

/// Tokens of a breaker after the first one.
const REST_TOKENS_MAX: usize = 20;

/// The breakers as sequences of tokens. Time grows with the vocabulary times the number of texts.
///
/// A token whose text contains a breaker is one alone. A token whose text ends with the beginning of a breaker is one
/// together with the tokens of the rest, as in llama.cpp.
///
/// # Errors
/// The texts make more than [`DRY_SEQUENCES_MAX`] sequences of several tokens.
pub(crate) fn breaker_tokens(
    texts: &[String],
    tokenizer: &Tokenizer,
) -> Result<DryBreakers, ApiError> {
    if texts.is_empty() {
        return Ok(DryBreakers::default());
    }
    let rests: Vec<Vec<Rest<'_>>> = texts.iter().map(|text| rests(text, tokenizer)).collect();
    let (mut sequences, mut longer) = (Vec::new(), 0);
    for id in 0..u32::try_from(tokenizer.vocab_size()).unwrap_or(u32::MAX) {
        let bytes = match tokenizer.bytes(id) {
            Some(bytes) if !bytes.is_empty() => bytes,
            _ => tokenizer.piece(id).unwrap_or_default().as_bytes(),
        };
        if texts.iter().any(|text| contains(bytes, text.as_bytes())) {
            sequences.push(vec![id]);
        }
        for rest in rests.iter().flatten() {
            if bytes.ends_with(rest.begun) {
                let sequence = [&[id][..], &rest.tokens].concat();
                longer += usize::from(sequence.len() > 1);
                sequences.push(sequence);
            }
        }
        if longer > DRY_SEQUENCES_MAX {
            let message = format!(
                "dry_sequence_breakers: begin in more than {DRY_SEQUENCES_MAX} (DRY_SEQUENCES_MAX) ways within tokens; \
                 name fewer or shorter ones"
            );
            return Err(ApiError::field(
                "dry_sequence_breakers",
                "invalid_value",
                message,
            ));
        }
    }
    Ok(DryBreakers::new(sequences))
}

/// A way of cutting a breaker into the end of one token and the tokens after it.
struct Rest<'a> {
    begun: &'a [u8],
    tokens: Vec<u32>,
}

fn rests<'a>(text: &'a str, tokenizer: &Tokenizer) -> Vec<Rest<'a>> {
    let cuts = text.char_indices().map(|(at, _)| at).skip(1);
    let rest = |at: usize| {
        let mut tokens = tokenizer.encode(&text[at..], false).ok()?;
        tokens.truncate(REST_TOKENS_MAX);
        let begun = &text.as_bytes()[..at];
        Some(Rest { begun, tokens })
    };
    cuts.filter_map(rest).collect()
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    match part {
        [byte] => bytes.contains(byte),
        part => bytes
            .windows(part.len().max(1))
            .any(|window| window == part),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use testing::small_vocabulary::{WORD, tokenizer};

    #[test]
    fn values_out_of_bounds_are_rejected_with_their_bound() {
        use SamplingParameter as P;
        let mut defaults = SamplingDefaults::default();
        for (parameter, value, want) in [
            (P::Temperature, 2.5, "must be a number from 0 to 2, not 2.5"),
            (P::Temperature, f64::NAN, "must be a number from 0 to 2"),
            (P::TopP, -0.1, "must be a number from 0 to 1"),
            (P::TopK, 1.5, "must be an integer from -1"),
            (P::TopK, 5e9, "must be an integer from -1"),
            (P::RepetitionPenalty, 0.0, "must be a number from 0.000001"),
        ] {
            let why = defaults.set(parameter, value).expect_err(want);
            assert!(why.starts_with(want), "{why}");
        }
        assert_eq!(defaults, SamplingDefaults::default());
    }

    #[test]
    fn unset_values_are_those_below() {
        use SamplingParameter as P;
        let mut own = SamplingDefaults::default();
        for (parameter, value) in [
            (P::Temperature, 0.6),
            (P::TopK, -1.0),
            (P::PenaltyWindow, -1.0),
            (P::PresencePenalty, 1.5),
        ] {
            own.set(parameter, value).expect("a value within bounds");
        }
        let named: Vec<_> = own.or(SamplingDefaults::LLAMA_CPP).named_values().collect();
        let want = [
            ("temperature", "0.6"),
            ("top_k", "0"),
            ("top_p", "0.95"),
            ("min_p", "0.05"),
            ("repeat_last_n", "-1"),
            ("presence_penalty", "1.5"),
        ];
        assert_eq!(named, want.map(|(name, value)| (name, value.to_owned())));
    }

    #[test]
    fn tokens_that_contain_or_begin_a_breaker_are_found() {
        let tokenizer = tokenizer();
        let texts = |texts: &[&str]| -> Vec<String> {
            texts.iter().map(|text| (*text).to_owned()).collect()
        };
        let newline = breaker_tokens(&texts(&["\n"]), &tokenizer).expect("tokens");
        assert_eq!(newline, DryBreakers::new([vec![10]]));
        // "hello" is a token of the vocabulary, and its letters are.
        let part = breaker_tokens(&texts(&["ell"]), &tokenizer).expect("tokens");
        let ell = b"ell".iter().map(|&byte| u32::from(byte)).collect();
        assert_eq!(part.longer_count(), 1);
        assert_eq!(part, DryBreakers::new([vec![WORD], ell]));
        assert_eq!(
            breaker_tokens(&[], &tokenizer).expect("tokens"),
            DryBreakers::default()
        );
    }
}
