//! Bytes of a stream's description, and the time to encode and decode one.
//!
//! `cargo bench -p gateway --bench descriptions` prints one line for each kind of request.
#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a measurement reads the clock and prints"
)]

use gateway::records::{DescriptionError, RecordedPrompts, StreamDescription};
use generate::request::Prompt;
use generate::request_record::PromptRecord;
use serde_json::{Map, Value};
use std::hint::black_box;
use std::time::{Duration, Instant};
use text::Message;

/// Tokens of the long prompt.
const TOKENS: usize = 8192;
/// Bytes of text for each token.
const BYTES_PER_TOKEN: usize = 4;
const VOCABULARY: usize = 151_936;
const ROUNDS: u32 = 200;

const BARE: &str = include_str!("../src/records/description/tests/old.json");

fn main() -> Result<(), DescriptionError> {
    let bare = StreamDescription::decode(BARE.as_bytes())?;
    for (label, messages) in [
        ("1 message of 16 B", vec![16]),
        ("100 messages of 300 B", vec![300; 100]),
        ("1 message of 32 KiB", vec![TOKENS * BYTES_PER_TOKEN]),
    ] {
        let prompts = vec![conversation(&messages)];
        let description = StreamDescription {
            prompts: RecordedPrompts::Requested(prompts),
            ..bare.clone()
        };
        report(label, &description)?;
    }
    let records = vec![prepared()];
    let (body, encoding) = measure(|| StreamDescription::encode_prepared(&records));
    let bytes = body?.len();
    println!(
        "prepared prompt of {TOKENS} tokens: {bytes} B, {:.1} B per token, of which {BYTES_PER_TOKEN} are text; \
         encoded in {encoding:?}",
        bytes as f64 / TOKENS as f64
    );
    let description = StreamDescription {
        context_max: 2 * TOKENS,
        prompts: RecordedPrompts::Prepared(records),
        ..bare
    };
    report("description with the prepared prompt", &description)
}

fn report(label: &str, description: &StreamDescription) -> Result<(), DescriptionError> {
    let (body, encoding) = measure(|| description.encode());
    let body = body?;
    let (decoded, decoding) = measure(|| StreamDescription::decode(&body));
    assert_eq!(decoded?, *description);
    println!(
        "{label}: {} B; encoded in {encoding:?}, decoded in {decoding:?}",
        body.len()
    );
    Ok(())
}

/// The last result of an operation, and the shortest time.
fn measure<T>(operation: impl Fn() -> T) -> (T, Duration) {
    let mut shortest = Duration::MAX;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        black_box(operation());
        shortest = shortest.min(start.elapsed());
    }
    (operation(), shortest)
}

/// Text with a character in 50 that JSON escapes.
fn text(bytes: usize) -> String {
    let line = "The quick brown fox jumps over the lazy dog again\n";
    line.chars().cycle().take(bytes).collect()
}

fn conversation(messages: &[usize]) -> Prompt {
    let message = |&bytes: &usize| Message {
        role: "user".to_owned(),
        content: Value::String(text(bytes)),
        rest: Map::new(),
    };
    Prompt::Conversation {
        field: "messages",
        messages: messages.iter().map(message).collect(),
        tools: Vec::new(),
        continues: false,
        kwargs: Map::new(),
    }
}

fn prepared() -> PromptRecord {
    let id = |i: usize| u32::try_from(i * 7919 % VOCABULARY).unwrap_or(0);
    PromptRecord {
        ids: (0..TOKENS).map(id).collect(),
        text: Some(text(TOKENS * BYTES_PER_TOKEN)),
        ..PromptRecord::default()
    }
}
