//! `POST /v1/completions`: from events to bytes.

use crate::wire::dialect::Dialect;
use crate::wire::json;
use crate::wire::openai::chunk::{self, Head, Naming, finish_reason};
use crate::wire::openai::{chat_frames, logprobs};
use bytes::BytesMut;
use generate::error::ApiError;
use generate::output::collected::Answer;
use generate::output::event::{Event, Kind, Logprobs, Usage};
use generate::request::{Best, Delivery};
use stream::End;
use text::Tokenizer;

/// The writer of one completion.
pub(crate) struct Completion {
    head: Head,
    logprobs: bool,
    best: Option<Best>,
}

impl Completion {
    /// Renders what is constant.
    pub(crate) fn new(naming: &Naming<'_>, delivery: &Delivery, logprobs: bool) -> Self {
        Self {
            head: Head::new(naming, "text_completion", "text_completion", delivery),
            logprobs: delivery.best.map_or(logprobs, |best| best.logprobs),
            best: delivery.best,
        }
    }

    /// Those that a whole answer has, in their order.
    fn told<'a>(&self, answers: &'a [Answer]) -> Vec<&'a Answer> {
        let Some(best) = self.best else {
            return answers.iter().collect();
        };
        let of_a_prompt = answers.chunks(best.of).map(|answers| {
            let mut ranked: Vec<&Answer> = answers.iter().collect();
            ranked.sort_by(|a, b| likelihood(b).total_cmp(&likelihood(a)));
            ranked.truncate(best.told);
            ranked
        });
        of_a_prompt.flatten().collect()
    }

    /// The part of a choice after its index, which chunks and whole answers share.
    fn inside(
        &self,
        text: &str,
        logprobs: Option<Logprobs<'_>>,
        end: Option<End>,
        out: &mut BytesMut,
    ) {
        json::raw(out, ",\"text\":");
        json::string(out, text);
        json::raw(out, ",\"logprobs\":");
        match logprobs {
            Some(list) if self.logprobs => logprobs::write_legacy(list, out),
            _ => json::raw(out, "null"),
        }
        finish_reason(end, out);
    }
}

impl Dialect for Completion {
    /// This format has no opening: headers are all that is said at once.
    fn open(&mut self, _choices: usize, _usage: Usage, _out: &mut BytesMut) {}

    fn event(&mut self, event: &Event<'_>, out: &mut BytesMut) {
        let usage = match event {
            // A chat that is read in this format, which has no place for these.
            Event::Call(_) => return,
            Event::Delta(delta) if delta.kind == Kind::Reasoning => return,
            Event::Delta(delta) => {
                self.head.choice(delta.at.choice, out);
                self.inside(delta.text, Some(delta.at.logprobs), None, out);
                delta.at.usage
            }
            Event::End {
                choice, end, usage, ..
            } => {
                self.head.choice(*choice, out);
                self.inside("", None, Some(*end), out);
                *usage
            }
        };
        self.head.end_choice(usage, out);
    }

    fn usage(&mut self, usage: Usage, out: &mut BytesMut) {
        self.head.usage_chunk(usage, out);
    }

    fn close(&mut self, _usage: Usage, out: &mut BytesMut) {
        chunk::done(out);
    }

    fn fail(&mut self, end: End, _usage: Usage, out: &mut BytesMut) {
        chunk::fail(end, out);
    }

    fn refuse(&mut self, error: &ApiError, out: &mut BytesMut) {
        chunk::refuse(error, out);
    }

    fn queued(&self, position: usize, out: &mut BytesMut) {
        chunk::queued(position, out);
    }

    fn ping(&self, out: &mut BytesMut) {
        json::raw(out, ": ping\n\n");
    }

    fn whole(&self, answers: &[Answer], tokenizer: &Tokenizer, usage: Usage, out: &mut BytesMut) {
        self.head.open_whole(out);
        for (index, answer) in self.told(answers).into_iter().enumerate() {
            chunk::open_choice(index, out);
            self.inside(
                &answer.text(),
                Some(answer.logprobs(tokenizer)),
                answer.end,
                out,
            );
            json::raw(out, "}");
        }
        self.head.close_whole(usage, out);
    }

    fn refusal(&self, end: End) -> ApiError {
        chat_frames::refusal(end)
    }
}

/// The mean of its tokens' log-probabilities. One that says nothing is behind all others.
fn likelihood(answer: &Answer) -> f64 {
    let sum: f64 = answer
        .entries
        .iter()
        .map(|e| f64::from(e.token.logprob))
        .sum();
    match answer.entries.len() {
        0 => f64::NEG_INFINITY,
        n => sum / n as f64,
    }
}
