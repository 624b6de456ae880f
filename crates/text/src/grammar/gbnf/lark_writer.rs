//! A grammar with its terminals as Lark.

use super::expression::GbnfGrammar;
use super::terminal_choice::ChosenTerminals;
use super::terminal_flow::GrammarNode;
use std::fmt::Write;

/// The text of the grammar: rules `r0`, `r1` ..., terminals `T0`, `T1` ...
pub(super) fn write(grammar: &GbnfGrammar, chosen: &ChosenTerminals) -> String {
    let mut out = String::new();
    // A string takes everything.
    let _ = writeln!(out, "start: r{}", grammar.root);
    for (number, rule) in chosen.rules.iter().enumerate() {
        let _ = write!(out, "r{number}: ");
        write_node(rule, &mut out);
        out.push('\n');
    }
    for (number, regex) in chosen.terminals.iter().enumerate() {
        let _ = writeln!(out, "T{number}: /{regex}/");
    }
    out
}

fn write_node(node: &GrammarNode, out: &mut String) {
    match node {
        GrammarNode::Terminal(terminal) => {
            let _ = write!(out, "T{terminal}");
        }
        GrammarNode::Rule(rule) => {
            let _ = write!(out, "r{rule}");
        }
        GrammarNode::Sequence(parts) if parts.is_empty() => out.push_str("\"\""),
        GrammarNode::Sequence(parts) => write_parts(parts, " ", out),
        GrammarNode::Choice(parts) => write_parts(parts, " | ", out),
        GrammarNode::Repeat(body, min, max) => {
            out.push('(');
            write_node(body, out);
            out.push(')');
            let _ = match (min, max) {
                (0, None) => out.write_char('*'),
                (1, None) => out.write_char('+'),
                (0, Some(1)) => out.write_char('?'),
                (min, None) => write!(out, "{{{min},}}"),
                (min, Some(max)) => write!(out, "{{{min},{max}}}"),
            };
        }
    }
}

fn write_parts(parts: &[GrammarNode], between: &str, out: &mut String) {
    out.push('(');
    for (i, part) in parts.iter().enumerate() {
        out.push_str(if i == 0 { "" } else { between });
        write_node(part, out);
    }
    out.push(')');
}
