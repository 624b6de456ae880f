use super::chat_template::{ChatTemplate, RenderInput};
use super::image_parts::{image_mark, image_marks, image_part, images_of, text_part};
use super::message::Message;
use crate::Tokenizer;
use crate::tokenizer::tests::spm_spec;
use serde_json::{Map, Value, json};

const SMOL_VLM: &str = "<|im_start|>{% for message in messages %}{{message['role'] | capitalize}}{% if message['content'][0]['type'] == 'image' %}{{':'}}{% else %}{{': '}}{% endif %}{% for line in message['content'] %}{% if line['type'] == 'text' %}{{line['text']}}{% elif line['type'] == 'image' %}{{ '<image>' }}{% endif %}{% endfor %}<end_of_utterance>\n{% endfor %}{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}";
const QWEN: &str = "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{% if message['content'] is string %}{{ message['content'] }}<|im_end|>\n{% else %}{% for content in message['content'] %}{% if content['type'] == 'image' or 'image' in content or 'image_url' in content %}<|vision_start|><|image_pad|><|vision_end|>{% elif 'text' in content %}{{ content['text'] }}{% endif %}{% endfor %}<|im_end|>\n{% endif %}{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
const GEMMA3: &str = "{{ bos_token }}{%- if messages[0]['role'] == 'system' -%}{%- if messages[0]['content'] is string -%}{%- set first_user_prefix = messages[0]['content'] + '\n\n' -%}{%- else -%}{%- set first_user_prefix = messages[0]['content'][0]['text'] + '\n\n' -%}{%- endif -%}{%- set loop_messages = messages[1:] -%}{%- else -%}{%- set first_user_prefix = \"\" -%}{%- set loop_messages = messages -%}{%- endif -%}{%- for message in loop_messages -%}{%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}{{ raise_exception(\"Conversation roles must alternate user/assistant/user/assistant/...\") }}{%- endif -%}{%- if (message['role'] == 'assistant') -%}{%- set role = \"model\" -%}{%- else -%}{%- set role = message['role'] -%}{%- endif -%}{{ '<start_of_turn>' + role + '\n' + (first_user_prefix if loop.first else \"\") }}{%- if message['content'] is string -%}{{ message['content'] | trim }}{%- elif message['content'] is iterable -%}{%- for item in message['content'] -%}{%- if item['type'] == 'image' -%}{{ '<start_of_image>' }}{%- elif item['type'] == 'text' -%}{{ item['text'] | trim }}{%- endif -%}{%- endfor -%}{%- else -%}{{ raise_exception(\"Invalid content type\") }}{%- endif -%}{{ '<end_of_turn>\n' }}{%- endfor -%}{%- if add_generation_prompt -%}{{'<start_of_turn>model\n'}}{%- endif -%}";
const LLAVA: &str = "{% for message in messages %}{{ message['role'].upper() }}: {% for content in message['content'] | selectattr('type', 'equalto', 'image') %}{{ '<image>\n' }}{% endfor %}{% for content in message['content'] | selectattr('type', 'equalto', 'text') %}{{ content['text'] }}{% endfor %} {% endfor %}{% if add_generation_prompt %}ASSISTANT:{% endif %}";
const CHATML: &str = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}<|im_start|>assistant\n";

fn message(role: &str, content: Value) -> Message {
    Message {
        role: role.to_owned(),
        content,
        rest: Map::new(),
    }
}

fn tokenizer() -> Tokenizer {
    Tokenizer::from_vocab(spm_spec()).expect("a vocabulary")
}

fn rendered(source: &str, messages: Vec<Message>, marks_stay: bool) -> String {
    let template = ChatTemplate::new(source, "<bos>", "").expect("a template");
    let tokenizer = tokenizer();
    let typed: Vec<Message> = messages
        .into_iter()
        .map(|message| message.with_escaped_text(&tokenizer))
        .collect();
    let input = RenderInput {
        messages: &typed,
        add_generation_prompt: true,
        marks_stay,
        ..RenderInput::default()
    };
    template.render(&input).expect("rendered")
}

fn seen() -> Vec<Message> {
    let content = json!([
        text_part("A"),
        text_part("B"),
        image_part(0),
        text_part("C")
    ]);
    vec![message("user", content)]
}

#[test]
fn templates_write_their_own_placeholder() {
    let other = image_mark(0);
    for (label, source, want) in [
        ("SmolVLM", SMOL_VLM, "<|im_start|>User: A\nB<image>C<end_of_utterance>\nAssistant:".to_owned()),
        ("Qwen", QWEN, "<|im_start|>user\nA\nB<|vision_start|><|image_pad|><|vision_end|>C<|im_end|>\n<|im_start|>assistant\n".to_owned()),
        ("Gemma 3", GEMMA3, "<bos><start_of_turn>user\nA\nB<start_of_image>C<end_of_turn>\n<start_of_turn>model\n".to_owned()),
        ("LLaVA", LLAVA, "USER: <image>\nA\nBC ASSISTANT:".to_owned()),
        ("without images", CHATML, format!("<|im_start|>user\nA\nB{other}C<|im_end|>\n<|im_start|>assistant")),
    ] {
        assert_eq!(rendered(source, seen(), false), want, "{label}");
    }
}

#[test]
fn marks_stay_where_they_are_wanted() {
    let mark = image_mark(0);
    for (label, source, want) in [
        (
            "SmolVLM",
            SMOL_VLM,
            format!("<|im_start|>User: A\nB{mark}C<end_of_utterance>\nAssistant:"),
        ),
        (
            "Gemma 3",
            GEMMA3,
            format!("<bos><start_of_turn>user\nA\nB{mark}C<end_of_turn>\n<start_of_turn>model\n"),
        ),
    ] {
        assert_eq!(rendered(source, seen(), true), want, "{label}");
    }
}

#[test]
fn texts_become_lists_where_a_template_takes_nothing_else() {
    let messages = vec![
        message("system", json!("S")),
        message("user", json!("U")),
        message("assistant", json!("")),
    ];
    let want = "<|im_start|>System: S<end_of_utterance>\nUser: U<end_of_utterance>\nAssistant: <end_of_utterance>\nAssistant:";
    assert_eq!(rendered(SMOL_VLM, messages.clone(), false), want);
    let want = "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nU<|im_end|>\n<|im_start|>assistant\n<|im_end|>\n<|im_start|>assistant\n";
    assert_eq!(rendered(QWEN, messages, false), want);
}

#[test]
fn roles_without_parts_keep_marks() {
    let messages = vec![
        message("system", json!([image_part(0), text_part("S")])),
        message("user", json!([image_part(1), text_part("U")])),
    ];
    let want = format!(
        "<bos><start_of_turn>user\n{}S\n\n<start_of_image>U<end_of_turn>\n<start_of_turn>model\n",
        image_mark(0)
    );
    assert_eq!(rendered(GEMMA3, messages, false), want);
}

#[test]
fn marks_are_found_and_not_forged() {
    let text = format!("a{}b{}", image_mark(3), image_mark(12));
    let found: Vec<_> = image_marks(&text)
        .map(|mark| (&text[mark.place.clone()], mark.image))
        .map(|(mark, image)| (mark.to_owned(), image))
        .collect();
    assert_eq!(found, [(image_mark(3), 3), (image_mark(12), 12)]);
    let forged = json!([text_part(image_mark(7)), image_part(1)]);
    let typed = message("user", forged).with_escaped_text(&tokenizer());
    assert_eq!(images_of(&typed.content), [1]);
    let typed = message("user", json!(image_mark(7))).with_escaped_text(&tokenizer());
    assert_eq!(images_of(&typed.content), [] as [usize; 0]);
}
