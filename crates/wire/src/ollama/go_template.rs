//! The `template` of a generate request: the part of Go's template language that a prompt of one turn needs.
//!
//! Supported are text, `{{ .System }}`, `{{ .Prompt }}`, `{{ .Response }}`, and `{{ if .. }} {{ else }} {{ end }}`
//! over those three, with `{{-` and `-}}`. There are no loops and no variables, so that rendering is one pass over the
//! bytes: templates come from untrusted clients.

use super::store_request;
use crate::derived_model::DerivedModel;
use generate::request::PromptPiece;
use generate::sampling::SamplingDefaults;
use serde_json::Value;
use std::fmt::Write;
use std::sync::Arc;

/// Limit of a template in bytes.
pub const TEMPLATE_BYTES_MAX: usize = 64 << 10;
/// Limit of the rendered bytes: four times the default limit of a body.
const WRITTEN_BYTES_MAX: usize = 16 << 20;
/// Limit of nested conditions.
const DEPTH_MAX: usize = 32;

/// Error message for an unsupported action.
const ACTION_MESSAGE: &str =
    "may use .System, .Prompt, .Response, and if, else, end over those, and nothing else";

/// Values of the template's variables.
#[derive(Clone, Copy)]
pub struct TemplateValues<'a> {
    /// The system message.
    pub system: &'a str,
    /// The prompt.
    pub prompt: &'a str,
}

/// An open `if`.
struct Condition {
    /// Whether the text around the condition is written.
    is_outer_written: bool,
    holds: bool,
    had_else: bool,
}

/// Renders a template up to `.Response`, where the answer begins.
///
/// # Errors
/// The message for an invalid template.
pub fn render(template: &str, values: TemplateValues<'_>) -> Result<Vec<PromptPiece>, String> {
    if template.len() > TEMPLATE_BYTES_MAX {
        return Err(format!("must have at most {TEMPLATE_BYTES_MAX} bytes"));
    }
    let mut writer = Writer {
        system: values.system.into(),
        prompt: values.prompt.into(),
        bytes: 0,
        pieces: Vec::new(),
        open: Vec::new(),
        reached_response: false,
    };
    let (mut rest, mut trim) = (template, false);
    while let Some((text, after)) = rest.split_once("{{") {
        let (action, after) = after
            .split_once("}}")
            .ok_or("has an action that is not closed")?;
        let before = action.strip_prefix('-');
        writer.add_text(text, trim, before.is_some())?;
        let action = before.unwrap_or(action);
        let behind = action.strip_suffix('-');
        writer.add_action(behind.unwrap_or(action).trim())?;
        (rest, trim) = (after, behind.is_some());
    }
    writer.add_text(rest, trim, false)?;
    if writer.open.is_empty() {
        Ok(writer.pieces)
    } else {
        Err("has an if without an end".to_owned())
    }
}

struct Writer {
    system: Arc<str>,
    prompt: Arc<str>,
    /// Bytes of all pieces together.
    bytes: usize,
    pieces: Vec<PromptPiece>,
    open: Vec<Condition>,
    /// Whether `.Response` was reached: later text follows the answer.
    reached_response: bool,
}

impl Writer {
    fn is_written(&self) -> bool {
        !self.reached_response
            && self
                .open
                .last()
                .is_none_or(|c| c.is_outer_written && c.holds)
    }

    /// Appends a piece. A value that occurs many times is stored once, and every occurrence counts towards the limit.
    fn add_piece(&mut self, bytes: usize, piece: PromptPiece) -> Result<(), String> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > WRITTEN_BYTES_MAX {
            return Err(format!(
                "writes more than {WRITTEN_BYTES_MAX} bytes with this system and prompt"
            ));
        }
        self.pieces.push(piece);
        Ok(())
    }

    fn add_text(&mut self, text: &str, trim_start: bool, trim_end: bool) -> Result<(), String> {
        let text = if trim_start { text.trim_start() } else { text };
        let text = if trim_end { text.trim_end() } else { text };
        if self.is_written() && !text.is_empty() {
            self.add_piece(text.len(), PromptPiece::Template(text.to_owned()))
        } else {
            Ok(())
        }
    }

    fn add_action(&mut self, action: &str) -> Result<(), String> {
        let mut error_message = action.split_whitespace();
        match (
            error_message.next(),
            error_message.next(),
            error_message.next(),
        ) {
            _ if action.starts_with("/*") && action.ends_with("*/") => Ok(()),
            (Some(".Response"), None, _) => {
                self.reached_response |= self.is_written();
                Ok(())
            }
            (Some(name), None, _) if name.starts_with('.') => {
                let value = self.value_of(name)?;
                if self.is_written() && !value.is_empty() {
                    self.add_piece(value.len(), PromptPiece::User(value))
                } else {
                    Ok(())
                }
            }
            (Some("if"), Some(name), None) => self.open_condition(name),
            (Some("else"), None, _) => {
                let condition = self.open.last_mut().filter(|c| !c.had_else);
                let condition = condition.ok_or("has an else without an if")?;
                (condition.holds, condition.had_else) = (!condition.holds, true);
                Ok(())
            }
            (Some("end"), None, _) => {
                let closed = self.open.pop().map(|_| ());
                closed.ok_or_else(|| "has an end without an if".to_owned())
            }
            _ => Err(ACTION_MESSAGE.to_owned()),
        }
    }

    fn open_condition(&mut self, name: &str) -> Result<(), String> {
        if self.open.len() == DEPTH_MAX {
            return Err(format!("may nest at most {DEPTH_MAX} conditions"));
        }
        let holds = !self.value_of(name)?.is_empty();
        self.open.push(Condition {
            is_outer_written: self.is_written(),
            holds,
            had_else: false,
        });
        Ok(())
    }

    fn value_of(&self, name: &str) -> Result<Arc<str>, String> {
        match name {
            ".System" => Ok(Arc::clone(&self.system)),
            ".Prompt" => Ok(Arc::clone(&self.prompt)),
            ".Response" => Ok(Arc::default()),
            _ => Err(ACTION_MESSAGE.to_owned()),
        }
    }
}

/// Text of the Modelfile that creates the model.
pub fn modelfile_text(name: &str, derived: Option<&DerivedModel>) -> String {
    let mut file = "# generated by Millrace from the model's metadata\n".to_owned();
    let Some(derived) = derived else {
        file += &format!("FROM {}\n", store_request::with_tag(name));
        return file;
    };
    file += &format!("FROM {}\n", store_request::with_tag(&derived.parent));
    for (word, text) in [("TEMPLATE", &derived.template), ("SYSTEM", &derived.system)] {
        if let Some(text) = text {
            // Writing into a string does not fail.
            let _ = writeln!(file, "{word} \"\"\"{text}\"\"\"");
        }
    }
    for line in option_lines(derived) {
        let _ = writeln!(file, "PARAMETER {line}");
    }
    file
}

/// Parameters of a request that sets none, a line each: the context, the options of a derived model, and the sampling
/// defaults for what those leave open.
pub fn parameter_lines(
    derived: Option<&DerivedModel>,
    sampling: SamplingDefaults,
    context_max: Option<usize>,
) -> String {
    let context = context_max.map(|context| format!("num_ctx {context}"));
    let mut lines: Vec<String> = context.into_iter().collect();
    lines.extend(derived.into_iter().flat_map(option_lines));
    let is_open = |name: &str| derived.is_none_or(|derived| !derived.options.contains_key(name));
    let defaults = sampling.named_values().filter(|(name, _)| is_open(name));
    lines.extend(defaults.map(|(name, value)| format!("{name} {value}")));
    lines.join("\n")
}

/// The options of a derived model; a list has one line per entry.
fn option_lines(derived: &DerivedModel) -> Vec<String> {
    let mut lines = Vec::new();
    for (name, value) in &derived.options {
        match value {
            Value::Array(values) => {
                lines.extend(values.iter().map(|value| format!("{name} {value}")));
            }
            value => lines.push(format!("{name} {value}")),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn written(template: &str, system: &str, prompt: &str) -> Result<String, String> {
        let pieces = render(template, TemplateValues { system, prompt })?;
        let text = pieces.into_iter().map(|piece| match piece {
            PromptPiece::Template(text) => text,
            PromptPiece::User(text) => format!("<{text}>"),
            PromptPiece::Image(image) => format!("[{image}]"),
        });
        Ok(text.collect())
    }

    #[test]
    fn template_renders_up_to_the_response() {
        let chat =
            "{{ if .System }}[S]{{ .System }}\n{{ end }}[U]{{ .Prompt }}[A]{{ .Response }}[E]";
        let rows = [
            (chat, "s", "p", "[S]<s>\n[U]<p>[A]"),
            (chat, "", "p", "[U]<p>[A]"),
            ("plain", "s", "p", "plain"),
            ("", "s", "p", ""),
            ("a {{- .Prompt -}} b", "", "p", "a<p>b"),
            ("{{.Prompt}}", "", "", ""),
            ("{{ if .System }}x{{ else }}y{{ end }}", "", "p", "y"),
            ("{{ if .System }}x{{ else }}y{{ end }}", "s", "p", "x"),
            (
                "{{ if .System }}{{ if .Prompt }}a{{ else }}b{{ end }}{{ end }}c",
                "",
                "p",
                "c",
            ),
            ("{{/* nothing */}}a", "", "", "a"),
            ("{{ if .Response }}a{{ end }}b", "", "", "b"),
            ("{{ if .System }}{{ .Response }}{{ end }}b", "", "", "b"),
        ];
        for (template, system, prompt, want) in rows {
            let got = written(template, system, prompt);
            assert_eq!(got.as_deref(), Ok(want), "{template}");
        }
    }

    #[test]
    fn rendered_bytes_over_the_limit_are_rejected() {
        let prompt = "a".repeat(4 << 20);
        let render = |times: usize| {
            let values = TemplateValues {
                system: "",
                prompt: &prompt,
            };
            super::render(&"{{.Prompt}}".repeat(times), values)
        };
        let pieces = render(4).expect("as much as there may be");
        let shared = pieces.iter().map(|piece| match piece {
            PromptPiece::User(text) => Arc::as_ptr(text),
            PromptPiece::Template(_) | PromptPiece::Image(_) => panic!("nothing was written"),
        });
        let shared: Vec<_> = shared.collect();
        assert!(shared.iter().all(|&text| std::ptr::eq(text, shared[0])));
        for times in [5, 5_900] {
            let why = render(times).expect_err("too much");
            assert!(why.contains("16777216"), "{why}");
        }
    }

    #[test]
    fn invalid_template_is_rejected() {
        let deep = "{{ if .Prompt }}".repeat(DEPTH_MAX + 1);
        let long = "x".repeat(TEMPLATE_BYTES_MAX + 1);
        let rows = [
            ("{{ .Prompt", "not closed"),
            ("{{ range .Messages }}{{ end }}", "nothing else"),
            ("{{ .Messages }}", "nothing else"),
            ("{{ }}", "nothing else"),
            ("{{ if .Prompt }}", "without an end"),
            ("{{ end }}", "end without an if"),
            ("{{ else }}", "else without an if"),
            (
                "{{ if .Prompt }}{{ else }}{{ else }}{{ end }}",
                "else without",
            ),
            ("{{ if and .Prompt .System }}{{ end }}", "nothing else"),
            (&deep, "at most 32"),
            (&long, "at most 65536"),
        ];
        for (template, error_message) in rows {
            let why = written(template, "s", "p").expect_err(error_message);
            assert!(why.contains(error_message), "{why}");
        }
    }

    #[test]
    fn modelfile_of_derived_model_has_its_settings() {
        let derived = DerivedModel {
            parent: "tiny".to_owned(),
            system: Some("Be brief.".to_owned()),
            template: None,
            adapter: None,
            options: [("stop", json!(["a", "b"])), ("temperature", json!(0.5))]
                .map(|(name, value)| (name.to_owned(), value))
                .into_iter()
                .collect(),
        };
        let file = modelfile_text("short", Some(&derived));
        let want = "FROM tiny:latest\nSYSTEM \"\"\"Be brief.\"\"\"\nPARAMETER stop \"a\"\n\
                    PARAMETER stop \"b\"\nPARAMETER temperature 0.5\n";
        assert!(file.ends_with(want), "{file}");
        assert!(modelfile_text("tiny", None).ends_with("FROM tiny:latest\n"));
        let sampling = SamplingDefaults::LLAMA_CPP;
        let lines = parameter_lines(None, sampling, Some(512));
        assert_eq!(
            lines,
            "num_ctx 512\ntemperature 0.8\ntop_k 40\ntop_p 0.95\nmin_p 0.05"
        );
        let lines = parameter_lines(Some(&derived), sampling, None);
        let want = "stop \"a\"\nstop \"b\"\ntemperature 0.5\ntop_k 40\ntop_p 0.95\nmin_p 0.05";
        assert_eq!(lines, want, "a derived model's option replaces the default");
    }
}
