//! Parsers of the fields of the DRY penalty and of XTC, under llama.cpp's names.

use crate::fields::Fields;
use crate::fields::bounds::short_strings;
use engine::{DRY_BASE_MAX, DRY_MULTIPLIER_MAX, DRY_WINDOW_MAX};
use generate::generation_options::{GenerationOptions, PenaltyWindow};
use generate::request::{DRY_BREAKER_BYTES_MAX, DRY_BREAKERS_MAX};
use serde_json::json;

/// Parses the fields; the other options are not set.
pub(super) fn dry_xtc_options(fields: &mut Fields<'_>) -> GenerationOptions {
    let tokens_max = DRY_WINDOW_MAX as i128;
    let window = fields.integer("dry_penalty_last_n", -1..=tokens_max);
    GenerationOptions {
        dry_multiplier: fields.number("dry_multiplier", 0.0..=f64::from(DRY_MULTIPLIER_MAX)),
        dry_base: fields.number("dry_base", 1.0..=f64::from(DRY_BASE_MAX)),
        dry_allowed_length: fields.integer_as("dry_allowed_length", 0..=tokens_max),
        dry_window: window.map(|window| match u32::try_from(window) {
            Err(_) => PenaltyWindow::All,
            Ok(0) => PenaltyWindow::Off,
            Ok(window) => PenaltyWindow::Last(window),
        }),
        dry_sequence_breakers: breakers(fields),
        xtc_probability: fields.number("xtc_probability", 0.0..=1.0),
        xtc_threshold: fields.number("xtc_threshold", 0.0..=1.0),
        ..GenerationOptions::default()
    }
}

fn breakers(fields: &mut Fields<'_>) -> Option<Vec<String>> {
    const NAME: &str = "dry_sequence_breakers";
    fields.record(
        NAME,
        || json!({"items": {"type": "string", "minLength": 1, "maxLength": DRY_BREAKER_BYTES_MAX}}),
    );
    let items = fields.array(NAME, DRY_BREAKERS_MAX)?;
    Some(short_strings(fields, NAME, items, DRY_BREAKER_BYTES_MAX))
}

#[cfg(test)]
mod tests {
    use crate::openai::chat_request;
    use crate::request_parser::tests::parsed_request;
    use generate::error::ApiError;
    use generate::request::GenerateRequest;
    use serde_json::{Value, json};

    fn parsed(over: &Value) -> Result<GenerateRequest, ApiError> {
        let mut body = json!({"messages": [{"role": "user", "content": "a"}]});
        for (name, value) in over.as_object().expect("fields") {
            body[name] = value.clone();
        }
        parsed_request(chat_request::parse, body.to_string().as_bytes())
    }

    #[test]
    fn fields_are_parsed() {
        let request = parsed(&json!({
            "dry_multiplier": 0.8, "dry_base": 2, "dry_allowed_length": 3, "dry_penalty_last_n": 64,
            "dry_sequence_breakers": ["\n", "###"], "xtc_probability": 0.5, "xtc_threshold": 0.2,
        }));
        let params = request.expect("a request").params;
        let s = &params.sampling;
        assert_eq!((s.dry_multiplier, s.dry_base), (0.8, 2.0));
        assert_eq!((s.dry_allowed_length, s.dry_window), (3, 64));
        assert_eq!((s.xtc_probability, s.xtc_threshold), (0.5, 0.2));
        assert_eq!(params.dry_sequence_breakers, ["\n", "###"]);
        let off = json!({"dry_multiplier": 0.8, "dry_penalty_last_n": 0});
        let off = parsed(&off).expect("a request").params;
        assert_eq!(off.sampling.dry_multiplier, 0.0);
    }

    #[test]
    fn invalid_field_is_named_with_its_bound() {
        for (over, want) in [
            (
                json!({"dry_multiplier": -1}),
                "dry_multiplier: must be a number from 0 to 100",
            ),
            (
                json!({"dry_multiplier": "x"}),
                "dry_multiplier: must be a number",
            ),
            (
                json!({"dry_base": 0.5}),
                "dry_base: must be a number from 1 to 16",
            ),
            (
                json!({"dry_base": 1e300}),
                "dry_base: must be a number from 1 to 16",
            ),
            (
                json!({"dry_allowed_length": -1}),
                "dry_allowed_length: must be an integer from 0 to 65536",
            ),
            (
                json!({"dry_penalty_last_n": 65_537}),
                "dry_penalty_last_n: must be an integer from -1 to 65536",
            ),
            (
                json!({"dry_sequence_breakers": "\n"}),
                "dry_sequence_breakers: ",
            ),
            (
                json!({"dry_sequence_breakers": vec!["a"; 33]}),
                "dry_sequence_breakers: ",
            ),
            (
                json!({"dry_sequence_breakers": ["a", ""]}),
                "dry_sequence_breakers[1]: must be a string of 1 to 40 bytes",
            ),
            (
                json!({"dry_sequence_breakers": ["a".repeat(41)]}),
                "dry_sequence_breakers[0]: must be a string of 1 to 40 bytes",
            ),
            (
                json!({"xtc_probability": 1.5}),
                "xtc_probability: must be a number from 0 to 1",
            ),
            (
                json!({"xtc_threshold": -0.5}),
                "xtc_threshold: must be a number from 0 to 1",
            ),
        ] {
            let error = parsed(&over).expect_err(want);
            assert!(error.message.starts_with(want), "{over}: {}", error.message);
        }
    }
}
