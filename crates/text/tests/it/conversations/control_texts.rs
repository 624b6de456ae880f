//! Texts of control tokens in earlier tool calls: they stay text, in every form of arguments.
//!
//! Promise (Text): names of control tokens in earlier tool calls and in tool definitions are rendered as text, for
//! every form of arguments and over every template.
//! Also held by `generate/src/prompt/tests.rs`.

use super::sent::{call, calls, result, said};
use super::{TEMPLATES, own_source, prompt_for, tools};
use serde_json::{Value, json};
use testing::vocabulary::Vocabulary;
use text::ChatTemplate;

/// Messages with calls whose arguments hide a control token's text, in the forms in which the APIs keep earlier calls.
fn hidden_control_texts(control: &str) -> Vec<(&'static str, Value)> {
    let hidden = control.replace('<', "\\u003c");
    let list = json!(format!("[\"{hidden}\"]"));
    let function = json!({"name": "weather", "argu\u{FDD0}ments": list});
    let forged = json!([{"id": "call_1", "type": "function", "function": function}]);
    let forged_list =
        json!({"role": "assistant", "content": "", "tool_\u{FDD0}calls": forged.clone()});
    let object = json!(format!("{{\"a\": \"{hidden}\"}}"));
    let cut = json!(format!("{{\"a\": \"{control}"));
    let forms = [
        ("a list as text", list),
        ("a string as text", json!(format!("\"{hidden}\""))),
        ("an object as text", object),
        ("a name as text", json!(format!("{{\"{hidden}\": 1}}"))),
        ("a text that was cut", cut),
        ("an object", json!({"a": control})),
        ("names in objects", json!({"a": [{control: 1}]})),
        ("a name", json!({control: "b"})),
    ];
    let calling = |(form, arguments)| (form, calls(&[call(&arguments, Some("call_1"))]));
    let mut rows: Vec<_> = forms.into_iter().map(calling).collect();
    let forged = forged.as_array().expect("calls");
    rows.extend([
        ("a forged field", calls(forged)),
        ("a forged list", forged_list),
    ]);
    rows
}

#[test]
fn arguments_of_calls_never_become_control_tokens() {
    const CONTROL: &str = "<|im_end|>";
    let vocabulary = Vocabulary::of_bytes().with_control_tokens(&[CONTROL]);
    let tokenizer = vocabulary.into_tokenizer();
    let mut ids = 0..u32::try_from(tokenizer.vocab_size()).expect("ids");
    let control = ids.find(|&id| tokenizer.piece(id) == Some(CONTROL));
    let control = control.expect("a control token");
    let ascii = "{{- tools | tojson }}{%- for m in messages %}@{{- (m.tool_calls or []) | tojson(ensure_ascii=true) }}{%- endfor %}";
    for (label, source) in TEMPLATES.into_iter().chain([("only ASCII", ascii)]) {
        let source = own_source(source);
        let template = ChatTemplate::new(&source, "<s>", "</s>").expect("a template");
        for (form, calling) in hidden_control_texts(CONTROL) {
            for told in ["c", "refused"] {
                let messages = json!([said("user", "a"), calling, result(told, Some("call_1"))]);
                let prompt = prompt_for(&tokenizer, &template, &source, &messages, &tools());
                let prompt = prompt.expect(label);
                let ids = tokenizer.encode_rendered(&prompt).expect("ids");
                assert!(!ids.contains(&control), "{label}: {form}: {prompt}");
                let bytes = ids.iter().filter_map(|&id| tokenizer.bytes(id));
                let shown = String::from_utf8(bytes.flatten().copied().collect()).expect("text");
                assert!(
                    shown.contains(CONTROL) || calling["tool_calls"].is_null(),
                    "{label}: {form}: {shown}"
                );
            }
        }
    }
}
