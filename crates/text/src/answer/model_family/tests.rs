//! Signs of each family, in a few lines of published templates and in vocabularies.
//!
//! Promise (Text): a family is detected by its template, or else by its vocabulary; every sign in the tables is
//! needed.
//! Also held by `millrace/src/config/answers.rs`.

use super::*;

/// Label, lines of a template, expected tool family, expected reasoning family.
type Row = (&'static str, &'static str, ToolFamily, ReasoningFamily);

use ReasoningFamily::{self as ReasoningDelimiters};
use ToolFamily as Tools;

#[rustfmt::skip]
const TEMPLATES: &[Row] = &[
    ("gpt-oss", "{{- \"<|start|>assistant to=functions.\" ~ call.name ~ \"<|channel|>commentary json<|message|>\" }}{# <think> #}", Tools::Harmony, ReasoningDelimiters::None),
    ("gemma 4", "{%- for call in message['tool_calls'] -%}{{ '<|tool_call>call:' + call['function']['name'] }}", Tools::Gemma, ReasoningDelimiters::None),
    ("gemma 4, thinking", "{%- if tools or enable_thinking -%}{{ '<|turn>system\\n' }}<|tool_call>{{ '<|channel>thought' }}", Tools::Gemma, ReasoningDelimiters::Gemma),
    ("functiongemma", "{{ '<start_function_call>call:' + function['name'] + '{' }}{% if tools %}", Tools::Gemma, ReasoningDelimiters::None),
    ("mistral", "{%- for call in message['tool_calls'] %}{{- '[TOOL_CALLS]' + call['function']['name'] + '[ARGS]' }}", Tools::Mistral, ReasoningDelimiters::None),
    ("magistral", "[SYSTEM_PROMPT]First draft your thinking: [THINK]so[/THINK][/SYSTEM_PROMPT]{% if tools %}[TOOL_CALLS]", Tools::Mistral, ReasoningDelimiters::Mistral),
    ("deepseek v3", "{{'<｜Assistant｜><｜tool▁calls▁begin｜><｜tool▁call▁begin｜>' + tool['type'] + '<｜tool▁sep｜>'}}", Tools::DeepSeek, ReasoningDelimiters::None),
    ("deepseek r1", "{% if '</think>' in content %}{{ content.split('</think>')[-1] }}<｜tool▁calls▁begin｜>{% endif %}", Tools::DeepSeek, ReasoningDelimiters::Think),
    ("kimi k2", "{%- macro render_toolcalls(message) -%}<|tool_calls_section_begin|>{% if tools %}", Tools::KimiK2, ReasoningDelimiters::None),
    ("kimi-vl thinking", "{{'<|im_assistant|>assistant<|im_middle|>◁think▷'}}", Tools::None, ReasoningDelimiters::Kimi),
    ("minimax m2", "{%- set toolcall_begin_token = '<minimax:tool_call>' -%}{{- '<think>' ~ '\\n' }}", Tools::MiniMax, ReasoningDelimiters::Think),
    ("glm 4.5", "{{ '\\n<tool_call>' + tc.name }}{% for k, v in args %}<arg_key>{{ k }}</arg_key>{% endfor %}</think>", Tools::Glm, ReasoningDelimiters::Think),
    ("qwen3-coder", "{{- '<tool_call>\\n<function=' + tool_call.name + '>\\n' }}{{- '<parameter=' + name + '>\\n' }}", Tools::Qwen3Coder, ReasoningDelimiters::None),
    ("granite 3.1", "<|start_of_role|>tools<|end_of_role|>{{ tools | tojson }}", Tools::Granite, ReasoningDelimiters::None),
    ("granite 3.2", "<|start_of_role|>system<|end_of_role|>{%- if thinking %}Reason first.{% endif %}", Tools::Granite, ReasoningDelimiters::Granite),
    ("granite, in words", "<|start_of_role|>Write 'Here is my thought process:' and then 'Here is my response:'.", Tools::Granite, ReasoningDelimiters::Granite),
    ("granite 4", "<|start_of_role|>assistant<|end_of_role|><tool_call>\\n{\"name\":", Tools::Granite, ReasoningDelimiters::None),
    ("qwen 2.5", "{{- '\\n<tool_call>\\n{\"name\": \"' }}{{- tool_call.arguments | tojson }}{% if tools %}", Tools::Hermes, ReasoningDelimiters::None),
    ("qwen 3", "{{- '<think>\\n' }}{%- if tools %}<tool_call>", Tools::Hermes, ReasoningDelimiters::Think),
    ("llama 4", "{{- '<|header_start|>assistant<|header_end|>\\n\\n' }}{% if tools is not none %}", Tools::Llama4, ReasoningDelimiters::None),
    ("llama 3.1", "{{- '<|start_header_id|>ipython<|end_header_id|>' }}{% if custom_tools %}{% set tools = custom_tools %}", Tools::Llama3, ReasoningDelimiters::None),
    ("llama 3", "{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>' }}", Tools::None, ReasoningDelimiters::None),
    ("phi-4-mini", "{{ '<|system|>' + message['content'] + '<|tool|>' + message['tools'] + '<|/tool|>' }}", Tools::Phi4, ReasoningDelimiters::None),
    ("phi-4-mini, closing", "{% if tools %}{{ calls }}<|/tool_call|>{% endif %}", Tools::Phi4, ReasoningDelimiters::None),
    ("phi-4-mini, in words", "{% if tools %}Write functools[{\"name\": ..}] to call.{% endif %}", Tools::Phi4, ReasoningDelimiters::None),
    ("gemma 3", "{{ '<start_of_turn>' + role + '\\n' }}", Tools::Gemma, ReasoningDelimiters::None),
    ("no format of its own", "{% if tools %}You may call: {{ tools | tojson }}{% endif %}", Tools::Json, ReasoningDelimiters::None),
    ("only what opens a thought", "{% if add_generation_prompt %}<think>{% endif %}", Tools::None, ReasoningDelimiters::Think),
    ("no sign at all", "{% for m in messages %}{{ m.content }}{% endfor %}", Tools::None, ReasoningDelimiters::None),
];

/// Label, tokens, expected families.
type Vocabulary = (
    &'static str,
    &'static [&'static str],
    Tools,
    ReasoningDelimiters,
);

#[rustfmt::skip]
const VOCABULARIES: &[Vocabulary] = &[
    ("gpt-oss", &["<|start|>", "<|channel|>", "<|message|>", "<|call|>"], Tools::Harmony, ReasoningDelimiters::None),
    ("gemma 4", &["<|tool_call>", "<tool_call|>", "<|channel>", "<channel|>"], Tools::Gemma, ReasoningDelimiters::Gemma),
    ("functiongemma", &["<start_function_call>", "<end_function_call>", "<escape>"], Tools::Gemma, ReasoningDelimiters::None),
    ("mistral", &["[TOOL_CALLS]", "[ARGS]"], Tools::Mistral, ReasoningDelimiters::None),
    ("magistral", &["[TOOL_CALLS]", "[ARGS]", "[THINK]", "[/THINK]"], Tools::Mistral, ReasoningDelimiters::Mistral),
    ("deepseek", &["<｜tool▁calls▁begin｜>", "<｜tool▁sep｜>", "<think>", "</think>"], Tools::DeepSeek, ReasoningDelimiters::Think),
    ("kimi k2", &["<|tool_calls_section_begin|>", "<|tool_call_begin|>"], Tools::KimiK2, ReasoningDelimiters::None),
    ("kimi-vl", &["◁think▷", "◁/think▷"], Tools::None, ReasoningDelimiters::Kimi),
    ("minimax", &["<minimax:tool_call>", "<think>", "</think>"], Tools::MiniMax, ReasoningDelimiters::Think),
    ("glm", &["<tool_call>", "<arg_key>", "<think>", "</think>"], Tools::Glm, ReasoningDelimiters::Think),
    ("granite", &["<|start_of_role|>", "<|tool_call|>"], Tools::Granite, ReasoningDelimiters::None),
    ("granite, thinking", &["<|start_of_role|>", "<|tool_call|>", "<think>", "</think>"], Tools::Granite, ReasoningDelimiters::Granite),
    ("qwen", &["<tool_call>", "</tool_call>"], Tools::Hermes, ReasoningDelimiters::None),
    ("llama 4", &["<|header_start|>", "<|python_start|>", "<|python_end|>"], Tools::Llama4, ReasoningDelimiters::None),
    ("llama 3", &["<|start_header_id|>", "<|python_tag|>"], Tools::Llama3, ReasoningDelimiters::None),
    ("phi-4-mini", &["<|tool|>", "<|tool_call|>", "<|/tool_call|>"], Tools::Phi4, ReasoningDelimiters::None),
    ("nothing that closes", &["<think>", "[THINK]", "◁think▷", "<|channel>"], Tools::None, ReasoningDelimiters::None),
    ("words", &["tools", "functools", "think", "<|message|>"], Tools::None, ReasoningDelimiters::None),
];

fn by_tokens(tokens: &[&str], template: &str) -> AnswerFormat {
    AnswerFormat::detect(template).or_from_vocabulary(|text| tokens.contains(&text))
}

#[test]
fn family_is_detected_from_template() {
    for &(label, template, tools, reasoning) in TEMPLATES {
        assert_eq!(
            AnswerFormat::detect(template),
            AnswerFormat { tools, reasoning },
            "{label}"
        );
    }
}

#[test]
fn family_is_detected_from_tokens_without_template() {
    for &(label, tokens, tools, reasoning) in VOCABULARIES {
        let want = AnswerFormat { tools, reasoning };
        let without = AnswerFormat::default().or_from_vocabulary(|text| tokens.contains(&text));
        let silent = by_tokens(tokens, "{% for m in messages %}{{ m.content }}{% endfor %}");
        assert_eq!((without, silent), (want, want), "{label}");
    }
}

#[test]
fn template_takes_precedence_over_tokens() {
    // Except gpt-oss, whose reasoning is in channels too.
    let others = &VOCABULARIES[1..];
    let all: Vec<&str> = others.iter().flat_map(|row| row.1).copied().collect();
    let all: Vec<&str> = all
        .into_iter()
        .filter(|&text| text != "<|message|>")
        .collect();
    for &(label, template, tools, reasoning) in TEMPLATES {
        let told = by_tokens(&all, template);
        assert!(
            tools == Tools::None || told.tools == tools,
            "{label}: {told:?}"
        );
        assert!(
            reasoning == ReasoningDelimiters::None || told.reasoning == reasoning,
            "{label}: {told:?}"
        );
    }
    // Each missing family is filled in separately.
    let qwen = by_tokens(&["<tool_call>", "<think>", "</think>"], "<tool_call>");
    assert_eq!(
        (qwen.tools, qwen.reasoning),
        (Tools::Hermes, ReasoningDelimiters::Think)
    );
    let thinks = by_tokens(&["<tool_call>"], "</think>");
    assert_eq!(
        (thinks.tools, thinks.reasoning),
        (Tools::Hermes, ReasoningDelimiters::Think)
    );
}

/// Label of a row, and the test whether a text occurs in the row.
type Held<'a> = (&'static str, &'a dyn Fn(&str) -> bool);

/// Signs whose removal changes no row: a sign that decides nothing, or rows that pass with any signs.
fn each_decides<F: Copy + PartialEq>(signs: &[Sign<F>], texts: &[Held<'_>]) -> Vec<String> {
    let idle = (0..signs.len()).filter(|&at| {
        let mut others = signs.to_vec();
        others.remove(at);
        !texts
            .iter()
            .any(|(_, has)| first(signs, has) != first(&others, has))
    });
    idle.map(|at| format!("{:?}", signs[at].0)).collect()
}

#[test]
fn each_detection_sign_is_needed() {
    let holds: Vec<_> = TEMPLATES
        .iter()
        .map(|row| (row.0, |text: &str| row.1.contains(text)))
        .collect();
    let templates: Vec<Held<'_>> = holds
        .iter()
        .map(|(label, has)| (*label, has as &dyn Fn(&str) -> bool))
        .collect();
    let granite: Vec<_> = templates
        .iter()
        .filter(|(label, _)| label.starts_with("granite"))
        .copied()
        .collect();
    let knows: Vec<_> = VOCABULARIES
        .iter()
        .map(|row| (row.0, |text: &str| row.1.contains(&text)))
        .collect();
    let tokens: Vec<Held<'_>> = knows
        .iter()
        .map(|(label, has)| (*label, has as &dyn Fn(&str) -> bool))
        .collect();
    assert_eq!(each_decides(&OF_TEMPLATES, &templates), [""; 0]);
    assert_eq!(each_decides(&THOUGHTS_OF_TEMPLATES, &templates), [""; 0]);
    assert_eq!(each_decides(&THOUGHTS_OF_GRANITE, &granite), [""; 0]);
    assert_eq!(each_decides(&OF_TOKENS, &tokens), [""; 0]);
    assert_eq!(each_decides(&THOUGHTS_OF_TOKENS, &tokens), [""; 0]);
    for (_, family) in ToolFamily::all() {
        assert!(
            TEMPLATES.iter().any(|row| row.2 == family),
            "{}",
            family.name()
        );
    }
    for (_, family) in ReasoningFamily::all() {
        assert!(
            TEMPLATES.iter().any(|row| row.3 == family),
            "{}",
            family.name()
        );
    }
}
