//! Non-streaming responses: the events of a stream, collected.

use bytes::{Bytes, BytesMut};
use gateway::generation::Generation;
use gateway::streams::moved_error;
use generate::error::ApiError;
use generate::output::collected::CollectedAnswer;
use generate::output::event::Event;
use generate::output::generation_reader::Turn;
use std::future::poll_fn;
use text::Tokenizer;
use wire::encoder::Encoder;

/// Waits for the end of all choices. Dropping the future (the client has disconnected) cancels the generation.
pub(crate) async fn collect_response(
    mut generation: Generation,
    encoder: Box<dyn Encoder>,
    tokenizer: &Tokenizer,
) -> Result<Bytes, ApiError> {
    let mut answers = Vec::new();
    answers.resize_with(generation.choices(), CollectedAnswer::default);
    loop {
        let turn = poll_fn(|cx| {
            generation.poll_turn(cx, &mut |event: Event<'_>| add_event(&mut answers, &event))
        })
        .await;
        generation.return_credit();
        if let Some(receipt) = generation.take_end_receipt() {
            receipt.confirm();
        }
        if generation.record().has_left() {
            return Err(moved_error());
        }
        match turn {
            Turn::Open => {}
            Turn::Ended => break,
            Turn::Broken(end) => return Err(encoder.end_error(end)),
        }
    }
    let mut out = BytesMut::new();
    encoder.encode_collected(&answers, tokenizer, generation.usage(), &mut out);
    Ok(out.freeze())
}

/// Adds an event to the answer of its choice.
fn add_event(answers: &mut [CollectedAnswer], event: &Event<'_>) -> bool {
    if let Some(choice) = event.choice() {
        answers[choice].take(event);
    }
    true
}
