//! A generation as one answer: the same events, collected.

use crate::gateway::generation::Generation;
use crate::wire::dialect::Dialect;
use bytes::{Bytes, BytesMut};
use generate::error::ApiError;
use generate::output::collected::Answer;
use generate::output::event::Event;
use generate::output::generation_reader::Turn;
use std::future::poll_fn;
use text::Tokenizer;

/// Waits for all choices. Dropping the future (the client is gone) stops the work.
pub(crate) async fn collect(
    mut generation: Generation,
    dialect: Box<dyn Dialect>,
    tokenizer: &Tokenizer,
) -> Result<Bytes, ApiError> {
    let mut answers = Vec::new();
    answers.resize_with(generation.choices(), Answer::default);
    loop {
        let turn = poll_fn(|cx| {
            generation.poll_turn(cx, &mut |event: Event<'_>| add(&mut answers, &event))
        })
        .await;
        generation.accept();
        match turn {
            Turn::Open => {}
            Turn::Ended => break,
            Turn::Broken(end) => return Err(dialect.refusal(end)),
        }
    }
    let mut out = BytesMut::new();
    dialect.whole(&answers, tokenizer, generation.usage(), &mut out);
    Ok(out.freeze())
}

/// Takes an event; there is never enough.
fn add(answers: &mut [Answer], event: &Event<'_>) -> bool {
    answers[event.choice()].take(event);
    true
}
