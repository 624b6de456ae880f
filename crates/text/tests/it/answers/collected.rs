//! Parts joined to an answer.

use super::scenarios::Said;
use serde_json::{Value, json};
use std::sync::Arc;
use text::{AnswerFormat, AnswerParser, AnswerParts, Part, ToolSchemas};

/// Parts of an answer in order; adjacent parts of one kind are joined.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Collected(Vec<Piece>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    Reasoning(String),
    Call {
        name: String,
        id: Option<String>,
        args: String,
        ended: bool,
    },
}

impl Collected {
    pub(crate) fn add(&mut self, part: Part<&str>) {
        let calls = self
            .0
            .iter()
            .filter(|piece| matches!(piece, Piece::Call { .. }))
            .count();
        match (part, self.0.last_mut()) {
            (Part::Content(more), Some(Piece::Text(text)))
            | (Part::Reasoning(more), Some(Piece::Reasoning(text))) => text.push_str(more),
            (Part::Content(text), _) => self.0.push(Piece::Text(text.to_owned())),
            (Part::Reasoning(text), _) => self.0.push(Piece::Reasoning(text.to_owned())),
            (Part::CallStart { index, id, name }, _) => {
                assert_eq!(index as usize, calls, "calls are counted");
                self.0.push(Piece::Call {
                    name: name.to_owned(),
                    id: id.map(str::to_owned),
                    args: String::new(),
                    ended: false,
                });
            }
            (Part::CallArguments { index, fragment }, Some(Piece::Call { args, ended, .. })) => {
                assert!(!*ended && index as usize + 1 == calls && !fragment.is_empty());
                args.push_str(fragment);
            }
            (Part::CallEnd { index }, Some(Piece::Call { ended, .. })) => {
                assert!(!*ended && index as usize + 1 == calls);
                *ended = true;
            }
            (part, last) => panic!("{part:?} after {last:?}"),
        }
    }

    /// The content.
    pub(crate) fn text(&self) -> String {
        let text = |piece: &Piece| match piece {
            Piece::Text(text) => Some(text.clone()),
            _ => None,
        };
        self.0.iter().filter_map(text).collect()
    }

    /// The answer up to the first stop string in its content.
    pub(crate) fn cut_at(&self, stops: &[String]) -> Self {
        let mut cut = Self::default();
        for piece in &self.0 {
            if let Piece::Text(text) = piece {
                let hits = stops
                    .iter()
                    .filter_map(|stop| Some((text.find(stop)?, stop.len())));
                let hit = hits.min_by_key(|(at, len)| (at + len, std::cmp::Reverse(*len)));
                if let Some((at, _)) = hit {
                    cut.0
                        .extend((at > 0).then(|| Piece::Text(text[..at].to_owned())));
                    return cut;
                }
            }
            cut.0.push(piece.clone());
        }
        cut
    }

    pub(crate) fn has_calls(&self) -> bool {
        self.0
            .iter()
            .any(|piece| matches!(piece, Piece::Call { .. }))
    }

    /// Whether this answer is a prefix of `whole`.
    pub(crate) fn begins(&self, whole: &Self) -> bool {
        let Some((last, sure)) = self.0.split_last() else {
            return true;
        };
        let Some(next) = whole.0.get(sure.len()) else {
            return false;
        };
        whole.0.starts_with(sure)
            && match (last, next) {
                (Piece::Text(a), Piece::Text(b)) | (Piece::Reasoning(a), Piece::Reasoning(b)) => {
                    b.starts_with(a.as_str())
                }
                (
                    Piece::Call {
                        name,
                        id,
                        args,
                        ended,
                    },
                    Piece::Call {
                        name: n,
                        id: i,
                        args: whole_args,
                        ..
                    },
                ) => {
                    let same = name == n && id == i;
                    same && whole_args.starts_with(args.as_str()) && (!ended || args == whole_args)
                }
                _ => false,
            }
    }

    /// The answer in one line, with valid arguments as JSON.
    pub(crate) fn spelt(&self) -> String {
        let spell = |piece: &Piece| match piece {
            Piece::Text(text) => format!("text {text:?}"),
            Piece::Reasoning(text) => format!("think {text:?}"),
            Piece::Call {
                name,
                args,
                id,
                ended,
            } => {
                assert!(*ended, "every call ends");
                let args = match serde_json::from_str::<Value>(args) {
                    Ok(args) => spell_value(&args),
                    Err(_) => format!("BROKEN {args:?}"),
                };
                let id = id.as_ref().map(|id| format!("#{id}")).unwrap_or_default();
                format!("{name}{id}({args})")
            }
        };
        let all: Vec<String> = self.0.iter().map(spell).collect();
        all.join(" ")
    }
}

fn spell_value(value: &Value) -> String {
    value.to_string()
}

/// A scenario in the same notation.
pub(crate) fn spell(said: &[Said]) -> String {
    let spell = |said: &Said| match said {
        Said::Text(text) => format!("text {text:?}"),
        Said::Think(text) => format!("think {text:?}"),
        Said::Call(name, args) => format!("{name}({})", spell_value(args)),
    };
    said.iter().map(spell).collect::<Vec<_>>().join(" ")
}

/// The tools of every case.
pub(crate) fn tools() -> Arc<ToolSchemas> {
    Arc::new(ToolSchemas::new(&definitions()))
}

/// Tool definitions of a request.
pub(crate) fn definitions() -> [Value; 3] {
    let object = |properties: Value| json!({"type": "object", "properties": properties});
    let put = object(json!({
        "s": {"type": "string"}, "t": {"type": "string"}, "n": {"type": "number"},
        "i": {"type": "integer"}, "b": {"type": "boolean"}, "o": {"type": "object"},
        "l": {"type": "array"}, "u": {"type": ["string", "null"]}, "any": {},
    }));
    let tool = |name: &str, parameters: &Value| json!({"type": "function", "function": {"name": name, "parameters": parameters}});
    let weather = object(json!({"city": {"type": "string"}}));
    [
        tool("put", &put),
        tool("get_weather", &weather),
        tool("now", &object(json!({}))),
    ]
}

/// Parses pieces to the end; ids that only repeat the name are removed.
pub(crate) fn parse<'a>(
    format: AnswerFormat,
    in_reasoning: bool,
    pieces: impl IntoIterator<Item = &'a str>,
) -> Collected {
    let mut parser = AnswerParser::new(format, Some(&tools()), in_reasoning);
    parse_with(&mut parser, pieces)
}

/// Parses pieces to the end with a parser at the beginning.
pub(crate) fn parse_with<'a>(
    parser: &mut AnswerParser,
    pieces: impl IntoIterator<Item = &'a str>,
) -> Collected {
    let (mut all, mut parts) = (Collected::default(), AnswerParts::default());
    for piece in pieces {
        parser.push(piece, &mut parts);
        parts.drain_into(|part| all.add(part));
    }
    parser.finish(&mut parts);
    parts.drain_into(|part| all.add(part));
    for piece in &mut all.0 {
        if let Piece::Call { id, .. } = piece
            && id.as_ref().is_some_and(|id| id.starts_with("functions."))
        {
            *id = None;
        }
    }
    all
}

/// Parses text that is not finished.
pub(crate) fn push_only(
    format: AnswerFormat,
    in_reasoning: bool,
    text: &str,
    said: &mut Collected,
) {
    let mut parser = AnswerParser::new(format, Some(&tools()), in_reasoning);
    let mut parts = AnswerParts::default();
    parser.push(text, &mut parts);
    parts.drain_into(|part| said.add(part));
    for piece in &mut said.0 {
        if let Piece::Call { id, .. } = piece
            && id.as_ref().is_some_and(|id| id.starts_with("functions."))
        {
            *id = None;
        }
    }
}
