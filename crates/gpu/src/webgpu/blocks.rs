//! Blocks of a kernel's text that stand for several.

/// Form of the lines of a block, by the kind of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Blocks {
    /// The lines for each value, so that a card's compiler has nothing to unroll.
    Repeated,
    /// The lines once, in a loop: less text, which a processor's compiler takes long for.
    Loops,
}

/// The first line of a block: its name, and how many values it has.
struct Head<'a> {
    name: &'a str,
    count: &'a str,
    /// Whether the lines are repeated for every device.
    always: bool,
}

impl<'a> Head<'a> {
    fn of(line: &'a str) -> Option<Self> {
        let words = line.trim_start().strip_prefix("// ")?;
        let (kind, rest) = words.split_once(' ')?;
        let (name, count) = rest.split_once(" below ")?;
        let always = match kind {
            "each" => false,
            "every" => true,
            _ => return None,
        };
        let is_name = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric());
        (is_name(name) && is_name(count)).then_some(Self {
            name,
            count,
            always,
        })
    }
}

/// The text without blocks; `counts` are the constants that a block may name.
///
/// # Panics
/// If a block names another one, or has no end.
pub(super) fn expand(source: &str, counts: &[(&str, u32)], blocks: Blocks) -> String {
    let mut out = String::with_capacity(2 * source.len());
    let mut lines = source.lines();
    expand_lines(&mut lines, &mut out, &Values { counts, blocks }, false);
    out
}

/// Constants and form with which blocks are expanded.
struct Values<'a> {
    counts: &'a [(&'a str, u32)],
    blocks: Blocks,
}

impl Values<'_> {
    fn count(&self, name: &str) -> u32 {
        let named = self.counts.iter().find(|(known, _)| *known == name);
        let count = named.map_or_else(|| name.parse().ok(), |(_, count)| Some(*count));
        assert!(count.is_some(), "`{name}` is a constant of the kernel");
        count.unwrap_or_default()
    }
}

/// Expands lines up to the end of a block, or of the text.
fn expand_lines(
    lines: &mut std::str::Lines<'_>,
    out: &mut String,
    values: &Values<'_>,
    in_block: bool,
) {
    while let Some(line) = lines.next() {
        if line.trim() == "// end" {
            assert!(in_block, "an end has a beginning");
            return;
        }
        let Some(head) = Head::of(line) else {
            out.push_str(line);
            out.push('\n');
            continue;
        };
        let mut body = String::new();
        expand_lines(lines, &mut body, values, true);
        let (name, count) = (head.name, values.count(head.count));
        if head.always || values.blocks == Blocks::Repeated {
            for value in 0..count {
                let of_value = with_value(&body, name, value);
                out.push_str(&format!("{{\n{of_value}}}\n"));
            }
        } else {
            let head = format!("for (var {name} = 0u; {name} < rolled({count}u); {name}++) {{");
            out.push_str(&format!("{head}\n{body}}}\n"));
        }
    }
    assert!(!in_block, "a block has an end");
}

/// Repeats each line with `$` and the small letter of a constant for each of its values: also where a name is made of it.
pub(super) fn repeat_lines(source: &str, counts: &[(&str, u32)]) -> String {
    let mut lines: Vec<String> = source.lines().map(str::to_owned).collect();
    for (constant, count) in counts {
        let name = format!("${}", constant.to_ascii_lowercase());
        let repeat = |line: String| {
            if line.trim_start().starts_with("//") || !line.contains(&name) {
                return vec![line];
            }
            let values = (0..*count).map(|value| value.to_string());
            values.map(|value| line.replace(&name, &value)).collect()
        };
        lines = lines.into_iter().flat_map(repeat).collect();
    }
    lines.join("\n")
}

/// The text with a number in place of a name.
fn with_value(text: &str, name: &str, value: u32) -> String {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
    let mut out = String::with_capacity(text.len());
    let (mut rest, mut before) = (text, ' ');
    while let Some(at) = rest.find(name) {
        let (head, tail) = rest.split_at(at);
        let after = &tail[name.len()..];
        before = head.chars().next_back().unwrap_or(before);
        let is_whole = !is_part(before) && !after.starts_with(|c| is_part(c) && c != '.');
        out.push_str(head);
        if is_whole {
            out.push_str(&format!("{value}u"));
        } else {
            out.push_str(name);
        }
        before = name.chars().next_back().unwrap_or(before);
        rest = after;
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_repeated_or_loops() {
        let text = "a\n// each r below R\n  x[r] = rr + p.r;\n  // every q below 2\n  y[r][q]\n  // end\n// end\nb";
        let counts = [("R", 2)];
        let repeated = "a\n{\n  x[0u] = rr + p.r;\n{\n  y[0u][0u]\n}\n{\n  y[0u][1u]\n}\n}\n\
                        {\n  x[1u] = rr + p.r;\n{\n  y[1u][0u]\n}\n{\n  y[1u][1u]\n}\n}\nb\n";
        let looped = "a\nfor (var r = 0u; r < rolled(2u); r++) {\n  x[r] = rr + p.r;\n{\n  y[r][0u]\n}\n\
                      {\n  y[r][1u]\n}\n}\nb\n";
        assert_eq!(expand(text, &counts, Blocks::Repeated), repeated);
        assert_eq!(expand(text, &counts, Blocks::Loops), looped);
    }

    #[test]
    fn other_comments_are_no_blocks() {
        let text = "// each row has a sum\n// every two rows below it\n// the end\n";
        assert_eq!(expand(text, &[], Blocks::Loops), text);
    }
}
