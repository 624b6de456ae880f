//! Prompts that an answer continues.

use super::*;
use text::ChatTemplate;

/// Rendered prompt of a conversation whose last message the answer continues.
fn continued(template: &str, last: &str) -> Result<String, ApiError> {
    let message = |role: &str, text: &str| Message {
        role: role.to_owned(),
        content: Value::String(text.to_owned()),
        rest: Map::new(),
    };
    let mut messages = vec![message("user", "i"), message("assistant", last)];
    append_sentinel(&mut messages);
    let input = RenderInput {
        messages: &messages,
        tools: &[],
        add_generation_prompt: false,
        kwargs: None,
        now_unix_s: 0,
        bytes_max: None,
    };
    let template = ChatTemplate::new(template, "", "").expect("a template");
    let mut text = template.render(&input).expect("a conversation");
    cut_at_sentinel("messages", &mut text).map(|()| text)
}

#[test]
fn continued_answer_begins_at_the_end_of_the_last_message() {
    let plain = "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}<|im_end|>{% endfor %}";
    for last in ["The (", "i", "end", "<|im_"] {
        let want = format!("<user>i<|im_end|><assistant>{last}");
        assert_eq!(continued(plain, last).expect("continued"), want);
    }
    let forgetful = "{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}";
    let error = continued(forgetful, "x").expect_err("it is not shown");
    assert_eq!(error.code, "template_refused");
}
