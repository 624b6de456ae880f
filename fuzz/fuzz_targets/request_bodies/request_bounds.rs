//! The bounds of a `GenerateRequest`.

use generate::request::{
    CACHE_SALT_BYTES_MAX, CHOICES_MAX, CONVERSATION_ID_BYTES_MAX, GenerateRequest,
    GenerationParams, LOGIT_BIAS_MAX, MESSAGES_MAX, MIXED_PARTS_MAX, MixedPart, PARTS_MAX, Prompt,
    PromptPiece, STOP_BYTES_MAX, STOP_IDS_MAX, STOPS_MAX, StreamOptions,
};
use generate::tools::TOOLS_MAX;
use serde_json::{Map, Value};
use std::time::Duration;
use text::Message;

/// Longest time that a client may set for a request.
const DEADLINE_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// Messages of one item: a message of the UI message stream has a message for each part.
const MESSAGES_PER_ITEM_MAX: usize = 2 * PARTS_MAX;

/// Every value of an accepted request is within its bounds.
pub fn check_request(request: &GenerateRequest, vocab: usize, body_bytes: usize) {
    let choices = request.prompts.len() * request.n;
    assert!((1..=CHOICES_MAX).contains(&choices), "{choices} choices");
    let mut tools = 0;
    for prompt in &request.prompts {
        check_prompt(prompt, request.images.len(), vocab);
        if let Prompt::Conversation { tools: given, .. } = prompt {
            tools = given.len();
        }
    }
    check_params(&request.params, vocab, tools);
    check_sampling(&request.params, vocab);
    check_options(&request.stream_options, request.n, body_bytes);
}

/// Token ids are of the vocabulary, images are those of the request, and lists are bounded.
pub fn check_prompt(prompt: &Prompt, images: usize, vocab: usize) {
    match prompt {
        Prompt::Conversation {
            messages, tools, ..
        } => {
            assert!(messages.len() <= MESSAGES_MAX * MESSAGES_PER_ITEM_MAX + 1);
            messages
                .iter()
                .for_each(|message| check_message(message, images));
            check_tools(tools);
        }
        Prompt::Continued { context, then } => {
            assert!(context.iter().all(|&id| (id as usize) < vocab));
            check_prompt(then, images, vocab);
        }
        Prompt::Ids(ids) => {
            assert!(!ids.is_empty() && ids.iter().all(|&id| (id as usize) < vocab));
        }
        Prompt::Mixed(parts) => {
            assert!(parts.len() <= MIXED_PARTS_MAX);
            for part in parts {
                if let MixedPart::Ids(ids) = part {
                    assert!(ids.iter().all(|&id| (id as usize) < vocab));
                }
            }
        }
        Prompt::Pieces(pieces) => {
            for piece in pieces {
                assert!(!matches!(piece, PromptPiece::Image(image) if *image >= images));
            }
        }
        Prompt::Infill(_) | Prompt::Text(_) => {}
    }
}

/// Chat templates are given known roles, and content that is text, or a list of texts and images of the request.
fn check_message(message: &Message, images: usize) {
    const ROLES: [&str; 5] = ["system", "developer", "user", "assistant", "tool"];
    assert!(ROLES.contains(&&*message.role), "{message:?}");
    let is_text = |part: &Value| part["type"] == "text" && part["text"].is_string();
    match &message.content {
        Value::String(_) | Value::Null => {}
        Value::Array(parts) => {
            let numbers = text::images_of(&message.content);
            let texts = parts.iter().filter(|part| is_text(part)).count();
            assert!(!numbers.is_empty(), "{message:?}");
            assert_eq!(texts + numbers.len(), parts.len(), "{message:?}");
            assert!(numbers.iter().all(|image| *image < images), "{message:?}");
        }
        _ => panic!("{message:?}"),
    }
    let calls = message.rest.get("tool_calls");
    for call in calls
        .into_iter()
        .flat_map(|calls| calls.as_array())
        .flatten()
    {
        assert!(call.is_object(), "{message:?}");
    }
}

fn check_tools(tools: &[Value]) {
    assert!(tools.len() <= TOOLS_MAX);
    let mut names: Vec<&str> = tools.iter().map(name).collect();
    names.sort_unstable();
    assert!(names.iter().all(|name| !name.is_empty()), "{tools:?}");
    assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{tools:?}");
}

fn name(tool: &Value) -> &str {
    tool["function"]["name"].as_str().unwrap_or_default()
}

fn check_params(params: &GenerationParams, vocab: usize, tools: usize) {
    let max_tokens = params.max_tokens;
    assert!(
        params.prompt_logprobs || max_tokens != Some(0),
        "max_tokens is 0"
    );
    assert!(max_tokens.is_none_or(|max| max <= u32::MAX as usize));
    let min_tokens = params.sampling.min_tokens as usize;
    assert!(
        max_tokens.is_none_or(|max| min_tokens <= max),
        "{min_tokens} of {max_tokens:?}"
    );
    assert!(params.stops.len() <= STOPS_MAX);
    let is_bounded = |stop: &String| (1..=STOP_BYTES_MAX).contains(&stop.len());
    assert!(params.stops.iter().all(is_bounded), "{:?}", params.stops);
    assert!(params.stop_token_ids.len() <= STOP_IDS_MAX);
    assert!(
        params
            .stop_token_ids
            .iter()
            .all(|&id| (id as usize) < vocab)
    );
    assert!(
        params
            .reasoning_budget
            .is_none_or(|max| max <= u64::from(u32::MAX))
    );
    if let Some(format) = &params.response_format {
        assert!(
            !format.field.is_empty(),
            "an error of the grammar names a field"
        );
    }
    for tool in &params.constrained_tools {
        assert!(tool.place < tools, "{tool:?} of {tools}");
        assert!(
            tool.arguments.as_ref().is_none_or(Value::is_object),
            "{tool:?}"
        );
    }
}

fn check_sampling(params: &GenerationParams, vocab: usize) {
    let sampling = &params.sampling;
    assert!((0.0..=2.0).contains(&sampling.temperature), "{sampling:?}");
    assert!(
        sampling.top_p > 0.0 && sampling.top_p <= 1.0,
        "{sampling:?}"
    );
    assert!((0.0..=1.0).contains(&sampling.min_p), "{sampling:?}");
    assert!(
        sampling.typical_p > 0.0 && sampling.typical_p <= 1.0,
        "{sampling:?}"
    );
    assert!(sampling.repetition_penalty > 0.0, "{sampling:?}");
    assert!(sampling.repetition_penalty <= 10.0, "{sampling:?}");
    assert!(
        (-2.0..=2.0).contains(&sampling.presence_penalty),
        "{sampling:?}"
    );
    assert!(
        (-2.0..=2.0).contains(&sampling.frequency_penalty),
        "{sampling:?}"
    );
    assert!(sampling.logit_bias.len() <= LOGIT_BIAS_MAX);
    for &(id, bias) in &sampling.logit_bias {
        assert!(
            (id as usize) < vocab && (-100.0..=100.0).contains(&bias),
            "{id}: {bias}"
        );
    }
    let top = sampling.top_logprobs as usize;
    assert!(
        top <= engine::TOP_LOGPROBS_MAX as usize && (top == 0 || sampling.logprobs),
        "{sampling:?}"
    );
}

fn check_options(options: &StreamOptions, n: usize, body_bytes: usize) {
    assert!(
        options
            .deadline
            .is_none_or(|time| !time.is_zero() && time <= DEADLINE_MAX)
    );
    assert!(options.include_usage || !options.continuous_usage);
    let id = options.conversation_id.as_deref().unwrap_or_default();
    assert!(id.len() <= CONVERSATION_ID_BYTES_MAX);
    let salt = options.cache_salt.as_deref().unwrap_or("-");
    assert!((1..=CACHE_SALT_BYTES_MAX).contains(&salt.len()));
    if let Some(best) = options.best_of {
        assert!(
            (1..n).contains(&best.returned) && best.generated == n && !options.stream,
            "{best:?}"
        );
    }
    if let Some(repeats) = options.repeated_fields.as_deref() {
        let object: Map<String, Value> = serde_json::from_str(&format!("{{{repeats}}}"))
            .expect("the repeated fields are the inside of a JSON object");
        assert!(object.contains_key("tools") && !repeats.contains('\n'));
        assert!(repeats.len() <= 1024 + 6 * body_bytes);
    }
    let ignored = options.ignored_fields.names().unwrap_or_default();
    assert!(
        ignored.bytes().all(|byte| (0x20..0x7f).contains(&byte)),
        "{ignored:?}"
    );
}
