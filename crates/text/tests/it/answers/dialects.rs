//! Rendering of scenarios in each family's syntax, after the models' published templates.

use super::scenarios::Said;
use serde_json::{Map, Value, json};
use text::{AnswerFormat, ReasoningFamily, ToolFamily};

/// A family's syntax.
pub(crate) struct Dialect {
    pub(crate) label: &'static str,
    pub(crate) format: AnswerFormat,
    pub(crate) render: fn(&[Said]) -> String,
}

const fn format(tools: ToolFamily) -> AnswerFormat {
    AnswerFormat {
        tools,
        reasoning: ReasoningFamily::Think,
    }
}

pub(crate) const DIALECTS: &[Dialect] = &[
    dialect("hermes", ToolFamily::Hermes, |said| think(said, hermes)),
    dialect("qwen3-coder", ToolFamily::Qwen3Coder, |said| {
        think(said, qwen3_coder)
    }),
    dialect("llama3", ToolFamily::Llama3, |said| think(said, llama3)),
    dialect("llama3 function", ToolFamily::Llama3, |said| {
        think(said, llama3_function)
    }),
    dialect("llama4", ToolFamily::Llama4, |said| think(said, llama4)),
    dialect("mistral", ToolFamily::Mistral, |said| think(said, mistral)),
    dialect("mistral before v11", ToolFamily::Mistral, |said| {
        think(said, mistral_old)
    }),
    Dialect {
        label: "magistral",
        format: AnswerFormat {
            tools: ToolFamily::Mistral,
            reasoning: ReasoningFamily::Mistral,
        },
        render: |said| written(said, ["[THINK]", "[/THINK]"], mistral),
    },
    dialect("deepseek v3", ToolFamily::DeepSeek, |said| {
        think(said, deepseek_v3)
    }),
    dialect("deepseek v3.1", ToolFamily::DeepSeek, |said| {
        think(said, deepseek_v31)
    }),
    dialect("phi4", ToolFamily::Phi4, |said| think(said, phi4)),
    Dialect {
        label: "granite",
        format: AnswerFormat {
            tools: ToolFamily::Granite,
            reasoning: ReasoningFamily::Granite,
        },
        render: |said| {
            let opening = ["Here is my thought process: ", "\n\nHere is my response: "];
            written(said, opening, granite)
        },
    },
    dialect("kimi-k2", ToolFamily::KimiK2, |said| think(said, kimi)),
    // The call syntax of older models is not published; their reasoning is tested with the calls of K2.
    Dialect {
        label: "kimi-vl",
        format: AnswerFormat {
            tools: ToolFamily::KimiK2,
            reasoning: ReasoningFamily::Kimi,
        },
        render: |said| written(said, ["◁think▷", "◁/think▷"], kimi),
    },
    dialect("glm", ToolFamily::Glm, |said| think(said, glm)),
    dialect("minimax", ToolFamily::MiniMax, |said| think(said, minimax)),
    Dialect {
        label: "gemma 4",
        format: AnswerFormat {
            tools: ToolFamily::Gemma,
            reasoning: ReasoningFamily::Gemma,
        },
        render: |said| written(said, ["<|channel>thought\n", "\n<channel|>"], gemma4),
    },
    dialect("functiongemma", ToolFamily::Gemma, |said| {
        think(said, function_gemma)
    }),
    Dialect {
        label: "harmony",
        format: AnswerFormat {
            tools: ToolFamily::Harmony,
            reasoning: ReasoningFamily::None,
        },
        render: harmony,
    },
    dialect("json", ToolFamily::Json, |said| think(said, fenced)),
];

const fn dialect(label: &'static str, tools: ToolFamily, render: fn(&[Said]) -> String) -> Dialect {
    Dialect {
        label,
        format: format(tools),
        render,
    }
}

type Calls<'a> = [(&'a str, &'a Value)];

fn think(said: &[Said], calls: fn(&Calls<'_>) -> String) -> String {
    written(said, ["<think>\n", "\n</think>\n\n"], calls)
}

/// Reasoning between these delimiters, content unchanged, and adjacent calls together.
fn written(said: &[Said], around: [&str; 2], calls: fn(&Calls<'_>) -> String) -> String {
    let mut out = String::new();
    let mut waiting: Vec<(&str, &Value)> = Vec::new();
    let flush = |waiting: &mut Vec<(&str, &Value)>, out: &mut String| {
        if !waiting.is_empty() {
            if !out.is_empty() {
                out.push('\n');
            }
            out.push_str(&calls(waiting));
            waiting.clear();
        }
    };
    for piece in said {
        match piece {
            Said::Call(name, args) => waiting.push((name, args)),
            Said::Text(text) => {
                flush(&mut waiting, &mut out);
                out.push_str(text);
            }
            Said::Think(text) => out.push_str(&[around[0], text, around[1]].concat()),
        }
    }
    flush(&mut waiting, &mut out);
    out
}

fn joined(calls: &Calls<'_>, between: &str, one: impl Fn(&str, &Value) -> String) -> String {
    let all: Vec<String> = calls.iter().map(|(name, args)| one(name, args)).collect();
    all.join(between)
}

fn object(name: &str, key: &str, args: &Value) -> String {
    format!("{{\"name\": \"{name}\", \"{key}\": {args}}}")
}

fn fields(args: &Value) -> &Map<String, Value> {
    args.as_object().unwrap()
}

/// A value as templates write values: strings unquoted, other values as JSON.
fn plain(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

fn hermes(calls: &Calls<'_>) -> String {
    joined(calls, "\n", |name, args| {
        format!(
            "<tool_call>\n{}\n</tool_call>",
            object(name, "arguments", args)
        )
    })
}

fn function(name: &str, args: &Value) -> String {
    let parameter = |(key, value): (&String, &Value)| {
        format!("<parameter={key}>\n{}\n</parameter>\n", plain(value))
    };
    let parameters: String = fields(args).iter().map(parameter).collect();
    format!("<function={name}>\n{parameters}</function>")
}

fn qwen3_coder(calls: &Calls<'_>) -> String {
    joined(calls, "\n", |name, args| {
        format!("<tool_call>\n{}\n</tool_call>", function(name, args))
    })
}

fn llama3(calls: &Calls<'_>) -> String {
    let calls = joined(calls, "; ", |name, args| object(name, "parameters", args));
    format!("<|python_tag|>{calls}")
}

fn llama3_function(calls: &Calls<'_>) -> String {
    joined(calls, "", |name, args| {
        format!("<function={name}>{args}</function>")
    })
}

fn python(value: &Value) -> String {
    match value {
        Value::Null => "None".to_owned(),
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        Value::Number(number) => number.to_string(),
        Value::String(text) => {
            let text = text.replace('\\', "\\\\").replace('\'', "\\'");
            format!("'{}'", text.replace('\n', "\\n").replace('\t', "\\t"))
        }
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(python).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Object(fields) => {
            let item = |(key, value): (&String, &Value)| format!("'{key}': {}", python(value));
            let items: Vec<String> = fields.iter().map(item).collect();
            format!("{{{}}}", items.join(", "))
        }
    }
}

fn llama4(calls: &Calls<'_>) -> String {
    let calls = joined(calls, ", ", |name, args| {
        let one = |(key, value): (&String, &Value)| format!("{key}={}", python(value));
        let args: Vec<String> = fields(args).iter().map(one).collect();
        format!("{name}({})", args.join(", "))
    });
    format!("<|python_start|>[{calls}]<|python_end|>")
}

fn mistral(calls: &Calls<'_>) -> String {
    joined(calls, "", |name, args| {
        format!("[TOOL_CALLS]{name}[ARGS]{args}")
    })
}

fn mistral_old(calls: &Calls<'_>) -> String {
    let calls = joined(calls, ", ", |name, args| object(name, "arguments", args));
    format!("[TOOL_CALLS] [{calls}]")
}

fn deepseek_v3(calls: &Calls<'_>) -> String {
    let calls = joined(calls, "\n", |name, args| {
        format!(
            "<｜tool▁call▁begin｜>function<｜tool▁sep｜>{name}\n```json\n{args}\n```<｜tool▁call▁end｜>"
        )
    });
    format!("<｜tool▁calls▁begin｜>{calls}<｜tool▁calls▁end｜>")
}

fn deepseek_v31(calls: &Calls<'_>) -> String {
    let calls = joined(calls, "", |name, args| {
        format!("<｜tool▁call▁begin｜>{name}<｜tool▁sep｜>{args}<｜tool▁call▁end｜>")
    });
    format!("<｜tool▁calls▁begin｜>{calls}<｜tool▁calls▁end｜>")
}

fn phi4(calls: &Calls<'_>) -> String {
    let calls = joined(calls, ", ", |name, args| object(name, "arguments", args));
    format!("<|tool_call|>[{calls}]<|/tool_call|>")
}

fn granite(calls: &Calls<'_>) -> String {
    let calls = joined(calls, ", ", |name, args| object(name, "arguments", args));
    format!("<|tool_call|>[{calls}]")
}

fn kimi(calls: &Calls<'_>) -> String {
    let calls = joined(calls, "", |name, args| {
        format!(
            "<|tool_call_begin|>functions.{name}:0<|tool_call_argument_begin|>{args}<|tool_call_end|>"
        )
    });
    format!("<|tool_calls_section_begin|>{calls}<|tool_calls_section_end|>")
}

fn glm(calls: &Calls<'_>) -> String {
    joined(calls, "\n", |name, args| {
        let one = |(key, value): (&String, &Value)| {
            let value = plain(value);
            format!("<arg_key>{key}</arg_key>\n<arg_value>{value}</arg_value>\n")
        };
        let args: String = fields(args).iter().map(one).collect();
        format!("<tool_call>{name}\n{args}</tool_call>")
    })
}

fn minimax(calls: &Calls<'_>) -> String {
    let calls = joined(calls, "\n", |name, args| {
        let one = |(key, value): (&String, &Value)| {
            format!("<parameter name=\"{key}\">{}</parameter>\n", plain(value))
        };
        let args: String = fields(args).iter().map(one).collect();
        format!("<invoke name=\"{name}\">\n{args}</invoke>")
    });
    format!("<minimax:tool_call>\n{calls}\n</minimax:tool_call>")
}

fn braced(value: &Value, delimiter: &str) -> String {
    match value {
        Value::String(text) => [delimiter, text, delimiter].concat(),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(|item| braced(item, delimiter)).collect();
            format!("[{}]", items.join(","))
        }
        Value::Object(fields) => {
            let one =
                |(key, value): (&String, &Value)| format!("{key}:{}", braced(value, delimiter));
            let items: Vec<String> = fields.iter().map(one).collect();
            format!("{{{}}}", items.join(","))
        }
        value => value.to_string(),
    }
}

fn gemma4(calls: &Calls<'_>) -> String {
    joined(calls, "", |name, args| {
        let args = braced(args, "<|\"|>");
        format!("<|tool_call>call:{name}{args}<tool_call|>")
    })
}

fn function_gemma(calls: &Calls<'_>) -> String {
    joined(calls, "", |name, args| {
        let args = braced(args, "<escape>");
        format!("<start_function_call>call:{name}{args}<end_function_call>")
    })
}

fn fenced(calls: &Calls<'_>) -> String {
    let list: Vec<Value> = calls
        .iter()
        .map(|(name, args)| json!({"name": name, "arguments": args}))
        .collect();
    format!("```json\n{}\n```", Value::Array(list))
}

fn harmony(said: &[Said]) -> String {
    let one = |piece: &Said| match piece {
        Said::Think(text) => format!("<|channel|>analysis<|message|>{text}<|end|>"),
        Said::Text(text) => format!("<|channel|>final<|message|>{text}<|end|>"),
        Said::Call(name, args) => format!(
            "<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>{args}<|call|>"
        ),
    };
    let all: Vec<String> = said.iter().map(one).collect();
    all.join("<|start|>assistant")
}
