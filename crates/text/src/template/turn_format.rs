//! Chat templates for models that bring none: the turns that the control tokens of a vocabulary are made for.

use super::chat_template::{ChatTemplate, TemplateError};

/// Name of the format of a model whose vocabulary has no tokens for turns.
pub const BASE_MODEL: &str = "base model";
/// Name of the format of a model with a template of its own.
pub const OWN_TEMPLATE: &str = "template";

/// Texts around the content of a turn.
type TurnMarks = (&'static str, &'static str);

/// The turns of a family of models.
#[derive(Debug)]
struct TurnFormat {
    name: &'static str,
    /// Tokens that the vocabulary must have.
    tokens: &'static [&'static str],
    /// Whether a prompt begins with the vocabulary's beginning of a text.
    begins: bool,
    /// `None`: a system message is a part of the next user's turn.
    system: Option<TurnMarks>,
    user: TurnMarks,
    assistant: TurnMarks,
    /// Beginning of the answer.
    answer: &'static str,
}

const CHATML: &str = "chatml";
/// Marks of ChatML, which are plain text for a base model.
const CHATML_MARKS: &[&str] = &["<|im_end|>", "<|im_start|>"];

/// Formats other than ChatML, the more particular first.
const FORMATS: [TurnFormat; 9] = [
    TurnFormat {
        name: "harmony",
        tokens: &["<|start|>", "<|message|>", "<|channel|>", "<|end|>"],
        begins: false,
        system: Some(("<|start|>system<|message|>", "<|end|>")),
        user: ("<|start|>user<|message|>", "<|end|>"),
        assistant: ("<|start|>assistant<|channel|>final<|message|>", "<|end|>"),
        answer: "<|start|>assistant",
    },
    TurnFormat {
        name: "gemma 4",
        tokens: &["<|turn>", "<turn|>"],
        begins: true,
        system: Some(("<|turn>system\n", "<turn|>\n")),
        user: ("<|turn>user\n", "<turn|>\n"),
        assistant: ("<|turn>model\n", "<turn|>\n"),
        answer: "<|turn>model\n",
    },
    TurnFormat {
        name: "gemma",
        tokens: &["<start_of_turn>", "<end_of_turn>"],
        begins: true,
        system: None,
        user: ("<start_of_turn>user\n", "<end_of_turn>\n"),
        assistant: ("<start_of_turn>model\n", "<end_of_turn>\n"),
        answer: "<start_of_turn>model\n",
    },
    TurnFormat {
        name: "llama 3",
        tokens: &["<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"],
        begins: true,
        system: Some((
            "<|start_header_id|>system<|end_header_id|>\n\n",
            "<|eot_id|>",
        )),
        user: ("<|start_header_id|>user<|end_header_id|>\n\n", "<|eot_id|>"),
        assistant: (
            "<|start_header_id|>assistant<|end_header_id|>\n\n",
            "<|eot_id|>",
        ),
        answer: "<|start_header_id|>assistant<|end_header_id|>\n\n",
    },
    TurnFormat {
        name: "granite",
        tokens: &["<|start_of_role|>", "<|end_of_role|>", "<|end_of_text|>"],
        begins: false,
        system: Some((
            "<|start_of_role|>system<|end_of_role|>",
            "<|end_of_text|>\n",
        )),
        user: ("<|start_of_role|>user<|end_of_role|>", "<|end_of_text|>\n"),
        assistant: (
            "<|start_of_role|>assistant<|end_of_role|>",
            "<|end_of_text|>\n",
        ),
        answer: "<|start_of_role|>assistant<|end_of_role|>",
    },
    TurnFormat {
        name: "command-r",
        tokens: &[
            "<|START_OF_TURN_TOKEN|>",
            "<|END_OF_TURN_TOKEN|>",
            "<|USER_TOKEN|>",
            "<|CHATBOT_TOKEN|>",
        ],
        begins: true,
        system: Some((
            "<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>",
            "<|END_OF_TURN_TOKEN|>",
        )),
        user: (
            "<|START_OF_TURN_TOKEN|><|USER_TOKEN|>",
            "<|END_OF_TURN_TOKEN|>",
        ),
        assistant: (
            "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>",
            "<|END_OF_TURN_TOKEN|>",
        ),
        answer: "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>",
    },
    TurnFormat {
        name: "deepseek",
        tokens: &["<｜User｜>", "<｜Assistant｜>", "<｜end▁of▁sentence｜>"],
        begins: true,
        system: None,
        user: ("<｜User｜>", ""),
        assistant: ("<｜Assistant｜>", "<｜end▁of▁sentence｜>"),
        answer: "<｜Assistant｜>",
    },
    TurnFormat {
        name: "phi 3",
        tokens: &["<|user|>", "<|assistant|>", "<|end|>"],
        begins: false,
        system: Some(("<|system|>\n", "<|end|>\n")),
        user: ("<|user|>\n", "<|end|>\n"),
        assistant: ("<|assistant|>\n", "<|end|>\n"),
        answer: "<|assistant|>\n",
    },
    TurnFormat {
        name: "mistral",
        tokens: &["[INST]", "[/INST]", "</s>"],
        begins: true,
        system: None,
        user: ("[INST] ", " [/INST]"),
        assistant: (" ", "</s>"),
        answer: "",
    },
];

impl TurnFormat {
    /// The source of a template.
    fn source(&self) -> String {
        let marked = |(open, close): TurnMarks, content: &str| {
            format!("{{{{- {open:?} + {content} + {close:?} -}}}}")
        };
        let system = match self.system {
            Some(marks) => marked(marks, "content"),
            None => r#"{%- set held.system = held.system + content + "\n\n" -%}"#.to_owned(),
        };
        let (user, assistant) = (
            marked(self.user, "held.system + content"),
            marked(self.assistant, "content"),
        );
        let rest = marked(self.user, "held.system | trim");
        let begin = if self.begins { "{{- bos_token -}}" } else { "" };
        let template = include_str!("turns.jinja");
        [
            ("BEGIN", begin),
            ("SYSTEM", &*system),
            ("USER", &*user),
            ("ASSISTANT", &*assistant),
            ("REST", &*rest),
            ("ANSWER", &*format!("{{{{- {:?} -}}}}", self.answer)),
        ]
        .into_iter()
        .fold(template.to_owned(), |text, (place, with)| {
            text.replace(&format!("@{place}@"), with)
        })
    }
}

fn find(is_token: &impl Fn(&str) -> bool) -> Option<&'static TurnFormat> {
    let has_all = |format: &&TurnFormat| format.tokens.iter().all(|token| is_token(token));
    FORMATS.iter().find(has_all)
}

/// Name of the turns that a vocabulary is made for. `is_token` tells whether a text is a token that is no ordinary text.
pub fn turn_format_name(is_token: impl Fn(&str) -> bool) -> &'static str {
    match find(&is_token) {
        Some(format) => format.name,
        None if CHATML_MARKS.iter().all(|mark| is_token(mark)) => CHATML,
        None => BASE_MODEL,
    }
}

impl ChatTemplate {
    /// A template for a model without one, in the turns that the vocabulary is made for; ChatML where it is made for none, and
    /// then the marks are stop strings. `is_token` tells whether a text is a token that is no ordinary text.
    ///
    /// # Errors
    /// The system has no thread for compiling.
    pub fn of_vocabulary(
        is_token: impl Fn(&str) -> bool,
        bos: &str,
        eos: &str,
    ) -> Result<Self, TemplateError> {
        let name = turn_format_name(&is_token);
        let template = match find(&is_token) {
            Some(format) => Self::new(&format.source(), bos, eos)?,
            None => Self::fallback(bos, eos),
        };
        let stops = match name {
            BASE_MODEL => CHATML_MARKS,
            _ => &[],
        };
        Ok(template.in_format(name, stops))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Message, RenderInput};
    use super::*;
    use serde_json::json;

    fn rendered(tokens: &[&str]) -> (String, ChatTemplate) {
        let messages: Vec<Message> = serde_json::from_value(json!([
            {"role": "system", "content": "S"},
            {"role": "user", "content": [{"type": "text", "text": "U"}]},
            {"role": "assistant", "content": "A"},
            {"role": "tool", "content": "T"},
        ]))
        .expect("messages");
        let is_token = |text: &str| tokens.contains(&text);
        let template = ChatTemplate::of_vocabulary(is_token, "<bos>", "<eos>").expect("a template");
        let text = template.render(&RenderInput {
            messages: &messages,
            add_generation_prompt: true,
            ..RenderInput::default()
        });
        (text.expect("a prompt"), template)
    }

    #[test]
    fn template_follows_the_tokens_for_turns() {
        for (tokens, name, want) in [
            (
                &["<start_of_turn>", "<end_of_turn>"][..],
                "gemma",
                "<bos><start_of_turn>user\nS\n\nU<end_of_turn>\n<start_of_turn>model\nA<end_of_turn>\n\
                 <start_of_turn>user\nT<end_of_turn>\n<start_of_turn>model\n",
            ),
            (
                &["[INST]", "[/INST]", "</s>"],
                "mistral",
                "<bos>[INST] S\n\nU [/INST] A</s>[INST] T [/INST]",
            ),
            (
                &["<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"],
                "llama 3",
                "<bos><|start_header_id|>system<|end_header_id|>\n\nS<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nU\
                 <|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\nA<|eot_id|><|start_header_id|>user\
                 <|end_header_id|>\n\nT<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
            ),
            (
                &["<|user|>", "<|assistant|>", "<|end|>"],
                "phi 3",
                "<|system|>\nS<|end|>\n<|user|>\nU<|end|>\n<|assistant|>\nA<|end|>\n<|user|>\nT<|end|>\n<|assistant|>\n",
            ),
            (
                &["<｜User｜>", "<｜Assistant｜>", "<｜end▁of▁sentence｜>"],
                "deepseek",
                "<bos><｜User｜>S\n\nU<｜Assistant｜>A<｜end▁of▁sentence｜><｜User｜>T<｜Assistant｜>",
            ),
            (
                &["<|im_start|>", "<|im_end|>"],
                "chatml",
                "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nU<|im_end|>\n<|im_start|>assistant\nA<|im_end|>\n\
                 <|im_start|>tool\nT<|im_end|>\n<|im_start|>assistant\n",
            ),
        ] {
            let (text, template) = rendered(tokens);
            assert_eq!(text, want, "{name}");
            assert_eq!((template.format_name(), template.stops()), (name, &[][..]));
        }
    }

    #[test]
    fn marks_that_are_text_are_stop_strings() {
        let (text, template) = rendered(&["<s>"]);
        assert!(text.starts_with("<|im_start|>system\nS"), "{text}");
        assert_eq!(template.format_name(), BASE_MODEL);
        assert_eq!(template.stops(), ["<|im_end|>", "<|im_start|>"]);
        let own = ChatTemplate::new("x", "", "").expect("a template");
        assert_eq!((own.format_name(), own.stops()), (OWN_TEMPLATE, &[][..]));
    }

    #[test]
    fn every_format_renders_all_turns() {
        for format in &FORMATS {
            let (text, template) = rendered(format.tokens);
            assert_eq!(template.format_name(), format.name);
            for part in ["S", "U", "A", "T"] {
                assert!(text.contains(part), "{}: {text}", format.name);
            }
            assert!(text.ends_with(format.answer), "{}: {text}", format.name);
        }
    }
}
