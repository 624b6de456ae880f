//! The goldens, and what we make of them.

use crate::collected::tools;
use crate::dialects::DIALECTS;
use crate::labelled::Case;
use crate::meaning::{Call, Meaning};
use crate::{Text, labelled, labelled_ends, labelled_more, labelled_thoughts, scenarios};
use text::{AnswerParser, Part};

/// All of them.
pub(crate) fn texts() -> Vec<Text> {
    let mut texts = Vec::new();
    for dialect in DIALECTS {
        let rendered = scenarios::all().into_iter().map(|(label, said)| Case {
            label: format!("{}: {label}", dialect.label),
            format: dialect.format,
            in_reasoning: false,
            text: (dialect.render)(&said),
            want: String::new(),
        });
        let labelled = labelled::cases()
            .into_iter()
            .chain(labelled_more::cases())
            .chain(labelled_ends::cases())
            .chain(labelled_thoughts::cases());
        let prefix = format!("{}: ", dialect.label);
        texts.extend(rendered.chain(labelled).filter_map(|case| {
            let label = case.label.strip_prefix(&prefix)?.to_owned();
            Some(Text {
                dialect: dialect.label,
                label,
                in_reasoning: case.in_reasoning,
                ours: meaning(&case),
                text: case.text,
            })
        }));
    }
    texts
}

fn meaning(case: &Case) -> Meaning {
    let mut all = Meaning::default();
    let mut add = |part: Part<'_>| match part {
        Part::Text(text) => all.text.push_str(text),
        Part::Reasoning(text) => all.reasoning.push_str(text),
        Part::ToolStart { name, .. } => all.calls.push(Call {
            name: name.to_owned(),
            arguments: String::new(),
        }),
        Part::ToolArgs { fragment, .. } => {
            if let Some(call) = all.calls.last_mut() {
                call.arguments.push_str(fragment);
            }
        }
        // What comes after a call is apart from what came before.
        Part::ToolEnd { .. } => all.text.push(' '),
    };
    let mut parser = AnswerParser::new(case.format, Some(&tools()), case.in_reasoning);
    parser.push(&case.text, &mut add);
    parser.finish(&mut add);
    all
}
