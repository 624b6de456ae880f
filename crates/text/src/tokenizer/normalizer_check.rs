//! Normalizers of a `tokenizer.json` that would take memory without a bound. An allocation that fails ends the process, and nothing
//! can catch that, so they are refused before the library reads them.

use super::error::TokenizerError;
use super::json_pipeline::not_usable;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

/// Bytes that the normalizer may make of one byte of text, all steps together. Public files have 4.
const GROWTH_MAX: usize = 64;
/// Bytes that a step may put before a text.
const PREPENDED_BYTES_MAX: usize = 1 << 10;
/// Nesting of sequences.
const DEPTH_MAX: usize = 8;
/// Base64 of the size at the beginning of a `precompiled_charsmap`.
const SIZE_CHARACTERS: usize = 8;

/// Refuses normalizers whose memory has no bound.
///
/// # Errors
/// A step makes a text too long, or its table is damaged; the message names the step and the bound.
pub(super) fn check_normalizer(normalizer: &Value) -> Result<(), TokenizerError> {
    let growth = growth(normalizer, DEPTH_MAX).map_err(|why| not_usable("tokenizer.json", why))?;
    if growth > GROWTH_MAX {
        let why = format!("its normalizer makes up to {growth} bytes of one; at most {GROWTH_MAX}");
        return Err(not_usable("tokenizer.json", why));
    }
    Ok(())
}

/// Bytes that a step makes of one byte at most.
fn growth(step: &Value, depth: usize) -> Result<usize, String> {
    let text = |name: &str| step[name].as_str().unwrap_or_default();
    match text("type") {
        "Sequence" => {
            if depth == 0 {
                return Err(format!(
                    "normalizer: sequences are nested more than {DEPTH_MAX} deep"
                ));
            }
            let steps = step["normalizers"].as_array().into_iter().flatten();
            steps.into_iter().try_fold(1_usize, |all, step| {
                Ok(all.saturating_mul(growth(step, depth - 1)?))
            })
        }
        "Replace" => {
            let content = text("content").len();
            match step["pattern"]["String"].as_str() {
                Some("") => Err("normalizer: Replace has an empty pattern".to_owned()),
                Some(pattern) => Ok(content.div_ceil(pattern.len()).max(1)),
                None => Ok(content.saturating_add(1)),
            }
        }
        "Prepend" if text("prepend").len() > PREPENDED_BYTES_MAX => Err(format!(
            "normalizer: Prepend has {} bytes; at most {PREPENDED_BYTES_MAX}",
            text("prepend").len()
        )),
        "Precompiled" => check_charsmap(text("precompiled_charsmap")).map(|()| 1),
        _ => Ok(1),
    }
}

/// Compares the size of the table, a number of 32 bits at the beginning, with the data.
fn check_charsmap(charsmap: &str) -> Result<(), String> {
    let begin = charsmap.get(..SIZE_CHARACTERS);
    let begin = begin.and_then(|begin| STANDARD.decode(begin).ok());
    let size = begin.and_then(|begin| begin.first_chunk().copied().map(u32::from_le_bytes));
    let size = size.map_or(usize::MAX, |size| size as usize);
    let data = charsmap.len() / 4 * 3;
    if size > data {
        return Err("normalizer: precompiled_charsmap is shorter than its table".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn problem(normalizer: &Value) -> Option<String> {
        check_normalizer(normalizer)
            .err()
            .map(|why| why.to_string())
    }

    #[test]
    fn normalizers_of_public_files_are_accepted() {
        let metaspace = json!({"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": "\u{2581}"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "\u{2581}"},
            {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "},
            {"type": "NFKC"},
        ]});
        let mut table = 8_u32.to_le_bytes().to_vec();
        table.extend([0; 12]);
        let charsmap =
            json!({"type": "Precompiled", "precompiled_charsmap": STANDARD.encode(table)});
        for normalizer in [Value::Null, metaspace, charsmap] {
            assert_eq!(problem(&normalizer), None, "{normalizer}");
        }
    }

    #[test]
    fn memory_without_a_bound_is_refused() {
        let step = json!({"type": "Replace", "pattern": {"Regex": "."}, "content": "a".repeat(9)});
        let rows = [
            (
                json!({"type": "Sequence", "normalizers": [step, step]}),
                "100 bytes of one",
            ),
            (
                json!({"type": "Prepend", "prepend": "a".repeat(2000)}),
                "2000 bytes",
            ),
            (
                json!({"type": "Precompiled", "precompiled_charsmap": "/////w=="}),
                "shorter",
            ),
            (
                json!({"type": "Precompiled", "precompiled_charsmap": null}),
                "shorter",
            ),
            (
                json!({"type": "Replace", "pattern": {"String": ""}, "content": "a"}),
                "empty",
            ),
        ];
        for (normalizer, words) in rows {
            let why = problem(&normalizer).expect("refused");
            assert!(why.contains(words), "{normalizer}: {why}");
        }
    }
}
