//! Estimate of a request's needs: pages and prefill.

use super::rejection::Rejection;
use super::settings::Reservation;

/// Bytes of a request body per token of ordinary text, with the JSON syntax.
pub const BYTES_PER_TOKEN: usize = 4;

/// Slots, pages and prefill tokens of a permit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResourceEstimate {
    /// Choices, or texts, that may run at one time.
    pub streams: usize,
    /// Pages reserved with the first slot, at most the limit of pages.
    pub pages: usize,
    /// Pages reserved with each further slot.
    pub pages_more: usize,
    /// Prompt tokens to be computed before the first token.
    pub prompt_tokens: usize,
}

impl ResourceEstimate {
    /// Pages reserved with so many slots.
    pub(crate) fn pages_for(&self, slots: usize) -> usize {
        match slots {
            0 => 0,
            more => self.pages + (more - 1) * self.pages_more,
        }
    }

    /// No more than may be promised at all.
    pub(crate) fn clamped_to(self, pages_limit: usize) -> Self {
        Self {
            pages: self.pages.min(pages_limit),
            pages_more: self.pages_more.min(pages_limit),
            ..self
        }
    }
}

/// The choices that a request generates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestedChoices {
    /// Per prompt.
    pub n: usize,
    /// `None`: as long as the context has room for.
    pub max_tokens: Option<usize>,
}

/// Turns lengths into needs.
#[derive(Clone, Copy, Debug)]
pub struct ResourceEstimator {
    /// Positions in one page.
    pub page_tokens: usize,
    /// Pages there are.
    pub pages: usize,
    /// Tokens that prompt and answer may have together.
    pub context_max: usize,
    /// How many pages a permit reserves.
    pub reservation: Reservation,
}

impl ResourceEstimator {
    /// Pages that may be promised.
    pub fn pages_limit(&self) -> usize {
        let percent = self.reservation.overcommit_percent;
        (self.pages.saturating_mul(percent) / 100).max(1)
    }

    /// Estimate from the body's length, before the prompt is tokenized. Never rejects.
    pub fn estimate_bytes(
        &self,
        body_bytes: usize,
        prompts: usize,
        answers: RequestedChoices,
    ) -> ResourceEstimate {
        let each = body_bytes
            .div_ceil(BYTES_PER_TOKEN)
            .div_ceil(prompts.max(1));
        let each = each.clamp(1, self.context_max.saturating_sub(1).max(1));
        let (pages, pages_more) = self.prompt_pages(each, answers);
        let need = ResourceEstimate {
            streams: answers.n * prompts,
            pages,
            pages_more: if prompts > 1 { pages } else { pages_more },
            prompt_tokens: each * prompts,
        };
        need.clamped_to(self.pages_limit())
    }

    /// Estimate after tokenization.
    ///
    /// # Errors
    /// [`Rejection::NeverFits`] if one choice alone needs more pages than the KV cache has.
    pub fn exact_estimate(
        &self,
        prompts: impl IntoIterator<Item = usize>,
        answers: RequestedChoices,
    ) -> Result<ResourceEstimate, Rejection> {
        let mut need = ResourceEstimate::default();
        for prompt_tokens in prompts {
            let own = self.answer_tokens(prompt_tokens, answers.max_tokens.unwrap_or(usize::MAX));
            let alone = self.pages_of(prompt_tokens, own);
            if alone > self.pages {
                return Err(Rejection::NeverFits {
                    prompt_tokens,
                    answer_tokens: own,
                    pages_needed: alone,
                    pages: self.pages,
                });
            }
            // A slot may serve any of the prompts: reserve for the longest.
            let (pages, more) = self.prompt_pages(prompt_tokens, answers);
            need.pages = need.pages.max(pages);
            need.pages_more = match need.streams {
                0 => more,
                _ => need.pages,
            };
            need.prompt_tokens += prompt_tokens;
            need.streams += answers.n;
        }
        Ok(need.clamped_to(self.pages_limit()))
    }

    /// Pages for one prompt and the first choice, and for each further choice: choices share the prompt's full pages.
    fn prompt_pages(&self, prompt_tokens: usize, answers: RequestedChoices) -> (usize, usize) {
        let assumed = self.reservation.assumed_answer_tokens.max(1);
        let own = self.answer_tokens(prompt_tokens, answers.max_tokens.unwrap_or(assumed));
        let shared = prompt_tokens / self.page_tokens;
        let each = self.pages_of(prompt_tokens, own).saturating_sub(shared);
        (shared.saturating_add(each), each)
    }

    /// Length of an answer with at most `most` tokens.
    fn answer_tokens(&self, prompt_tokens: usize, most: usize) -> usize {
        most.min(self.context_max.saturating_sub(prompt_tokens))
    }

    /// Pages of one sequence. The last token needs no position.
    fn pages_of(&self, prompt_tokens: usize, own: usize) -> usize {
        (prompt_tokens + own)
            .saturating_sub(1)
            .div_ceil(self.page_tokens)
            .max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZING: ResourceEstimator = ResourceEstimator {
        page_tokens: 16,
        pages: 40,
        context_max: 1024,
        reservation: Reservation {
            overcommit_percent: 150,
            assumed_answer_tokens: 32,
        },
    };

    fn answers(n: usize, max_tokens: impl Into<Option<usize>>) -> RequestedChoices {
        RequestedChoices {
            n,
            max_tokens: max_tokens.into(),
        }
    }

    #[test]
    fn pages_of_the_first_and_of_further_slots() {
        type Row<'a> = (&'a str, &'a [usize], RequestedChoices, (usize, usize));
        let rows: &[Row<'_>] = &[
            ("one page exactly", &[9], answers(1, 8), (1, 1)),
            ("one token more", &[9], answers(1, 9), (2, 2)),
            (
                "two answers share what is full",
                &[32],
                answers(2, 17),
                (3, 1),
            ),
            ("and only that", &[33], answers(2, 17), (4, 2)),
            ("two prompts alike", &[9, 9], answers(1, 9), (2, 2)),
            (
                "the larger of two, wherever",
                &[40, 9],
                answers(1, 9),
                (3, 3),
            ),
            ("and in the other order", &[9, 40], answers(2, 9), (3, 3)),
        ];
        for (case, prompts, answers, pages) in rows {
            let need = SIZING
                .exact_estimate(prompts.iter().copied(), *answers)
                .unwrap();
            assert_eq!((need.pages, need.pages_more), *pages, "{case}");
            assert_eq!(need.streams, prompts.len() * answers.n, "{case}");
            assert_eq!(need.prompt_tokens, prompts.iter().sum::<usize>(), "{case}");
        }
        let need = SIZING.exact_estimate([33], answers(2, 17)).unwrap();
        assert_eq!([0, 1, 2].map(|slots| need.pages_for(slots)), [0, 4, 6]);
        assert_eq!(need.clamped_to(3).pages_for(2), 5);
    }

    #[test]
    fn request_larger_than_kv_cache_is_rejected_with_numbers() {
        let rejected = SIZING.exact_estimate([600], answers(1, 100)).unwrap_err();
        assert_eq!(
            rejected,
            Rejection::NeverFits {
                prompt_tokens: 600,
                answer_tokens: 100,
                pages_needed: 44,
                pages: 40
            }
        );
        assert!(
            SIZING.exact_estimate([600], answers(1, 41)).is_ok(),
            "just fits"
        );
        assert!(
            SIZING.exact_estimate([600], answers(1, 42)).is_err(),
            "just not"
        );
    }

    #[test]
    fn estimate_is_clamped_to_the_page_limit() {
        assert_eq!(
            SIZING.estimate_bytes(64, 1, answers(1, 17)),
            ResourceEstimate {
                streams: 1,
                pages: 2,
                pages_more: 1,
                prompt_tokens: 16
            }
        );
        let open_end = SIZING.estimate_bytes(64, 1, answers(1, None));
        assert_eq!(open_end.pages, 3, "no max_tokens: the assumed length");
        let several = SIZING.estimate_bytes(64, 4, answers(2, 13));
        assert_eq!(
            (several.streams, several.pages, several.prompt_tokens),
            (8, 1, 16)
        );
        let huge = SIZING.estimate_bytes(1 << 30, 1, answers(1 << 20, None));
        assert_eq!((huge.pages, huge.prompt_tokens), (60, 1023));
    }
}
