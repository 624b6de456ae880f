//! A synthetic model as a folder of Hugging Face's libraries, tokenizer and all.

#[path = "../../../../cpu/tests/it/support/case.rs"]
#[allow(dead_code, reason = "a part is used")]
mod case;
#[path = "../../../../cpu/tests/it/support/saved.rs"]
#[allow(dead_code, reason = "a part is used")]
mod saved;

#[path = "../../../../cpu/tests/it/support/saved_encoder.rs"]
#[allow(dead_code, reason = "a part is used")]
mod saved_encoder;

use case::Case;
pub(crate) use saved::Saved;
use serde_json::{Map, Value, json};
use synth::EncoderSpec;
use weights::gguf::Gguf;

const LINE: &str = "x preset=tiny-llama mix=BF16";

/// The model of [`LINE`] as a folder, tokenizer and all, and the GGUF of the same weights.
pub(crate) fn both() -> (Saved, Vec<u8>) {
    let bytes = Case::parse(LINE).unwrap().spec.to_bytes().unwrap();
    let saved = Saved::of(LINE, 2);
    let gguf = Gguf::from_bytes(bytes.clone()).unwrap();
    let template = gguf.need::<&str>("tokenizer.chat_template").unwrap();
    let config = json!({"bos_token": "<|bos|>", "eos_token": {"content": "<|eos|>"}, "chat_template": template});
    saved.put("tokenizer.json", tokenizer(&gguf).to_string().as_bytes());
    saved.put("tokenizer_config.json", config.to_string().as_bytes());
    saved.put("generation_config.json", br#"{"eos_token_id": [257, 259]}"#);
    (saved, bytes)
}

/// An encoder with this preset's shape as a folder, tokenizer and all, and the GGUF of the same weights.
pub(crate) fn both_of_encoder(preset: &str) -> (Saved, Vec<u8>) {
    let spec = EncoderSpec::preset(preset).unwrap();
    let bytes = spec.to_bytes().unwrap();
    let saved = saved_encoder::save(&spec);
    let gguf = Gguf::from_bytes(bytes.clone()).unwrap();
    saved.put("tokenizer.json", word_piece(&gguf).to_string().as_bytes());
    (saved, bytes)
}

/// BERT's vocabulary as the tokenizers library writes it.
fn word_piece(gguf: &Gguf) -> Value {
    let meta = gguf.tokenizer().unwrap();
    let kinds: Vec<i32> = meta.kinds.unwrap().collect();
    let (mut vocab, mut added) = (Map::new(), Vec::new());
    for (id, (token, kind)) in meta.tokens.zip(kinds).enumerate() {
        let token = token.to_lossy().into_owned();
        let token = match (kind, token.strip_prefix('▁')) {
            (1, Some(word)) => word.to_owned(),
            (1, None) => format!("##{token}"),
            _ => {
                added.push(json!({"id": id, "content": token, "special": true, "single_word": false, "lstrip": false,
                    "rstrip": false, "normalized": false}));
                token
            }
        };
        vocab.insert(token, json!(id));
    }
    let (first, last) = ("[CLS]", "[SEP]");
    let special = |id: &str| json!({"SpecialToken": {"id": id, "type_id": 0}});
    let text = |id: &str| json!({"Sequence": {"id": id, "type_id": 0}});
    json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": added,
        "normalizer": {"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true, "strip_accents": null, "lowercase": true},
        "pre_tokenizer": {"type": "BertPreTokenizer"}, "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": true},
        "post_processor": {"type": "TemplateProcessing",
            "single": [special(first), text("A"), special(last)],
            "pair": [special(first), text("A"), special(last), text("B"), special(last)],
            "special_tokens": {
                first: {"id": first, "ids": [2], "tokens": [first]},
                last: {"id": last, "ids": [3], "tokens": [last]}}},
        "model": {"type": "WordPiece", "vocab": vocab, "unk_token": "[UNK]", "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100},
    })
}

/// A byte-level vocabulary as the tokenizers library writes it.
fn tokenizer(gguf: &Gguf) -> Value {
    let meta = gguf.tokenizer().unwrap();
    let kinds: Vec<i32> = meta.kinds.unwrap().collect();
    let (mut vocab, mut added) = (Map::new(), Vec::new());
    for (id, (token, kind)) in meta.tokens.zip(kinds).enumerate() {
        let token = token.to_lossy().into_owned();
        if kind == 3 {
            added.push(json!({"id": id, "content": token, "special": true, "single_word": false, "lstrip": false,
                "rstrip": false, "normalized": false}));
        }
        vocab.insert(token, json!(id));
    }
    let merges: Vec<Value> = meta
        .merges
        .unwrap()
        .map(|merge| json!(merge.to_lossy().split(' ').collect::<Vec<_>>()))
        .collect();
    let byte_level = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": true});
    json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": added, "normalizer": null,
        "pre_tokenizer": byte_level, "decoder": byte_level,
        "post_processor": {"type": "TemplateProcessing", "pair": [],
            "single": [{"SpecialToken": {"id": "<|bos|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "special_tokens": {"<|bos|>": {"id": "<|bos|>", "ids": [256], "tokens": ["<|bos|>"]}}},
        "model": {"type": "BPE", "vocab": vocab, "merges": merges},
    })
}
