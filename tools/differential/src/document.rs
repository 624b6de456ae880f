//! `docs/parser-differences.md`, written from what was found.

use crate::meaning::Meaning;
use crate::reasons::REASONS;
use std::fmt::{self, Write as _};

/// One parser beside ours.
pub(crate) struct Compared {
    pub(crate) whose: &'static str,
    pub(crate) dialect: &'static str,
    pub(crate) texts: usize,
    /// Texts of which it makes something else when they come character by character.
    pub(crate) cut: usize,
    pub(crate) differences: Vec<Difference>,
}

/// A text that was understood in two ways.
pub(crate) struct Difference {
    pub(crate) label: String,
    pub(crate) text: String,
    pub(crate) ours: Meaning,
    pub(crate) theirs: Result<Meaning, String>,
}

const PATH: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../docs/parser-differences.md"
);

const HEAD: &str = "\
# The output parser compared with others
<a id=\"our-answer-parser-beside-others\"></a>

Written by `cargo xtask differential --write`, which builds the other parsers from crates.io.
Every golden of [parser-cases.md](parser-cases.md) whose family the other project supports is parsed by smg's `reasoning-parser` and `tool-parser`, one after the other as in smg,
and by the parsers of NVIDIA's Dynamo (`dynamo-parsers-v2`).
The reasoning, the content, and the tool calls with their arguments as JSON values are compared.
Blanks at the ends and the order of the parts are not compared, since not all parsers report them. A difference without a reason below fails the comparison.

*Otherwise when cut* is the number of texts that the other parser parses differently character by character, with tags kept whole.
Millrace's parser has none, with tags cut as well ([parser-cases.md](parser-cases.md)).

Not compared: gpt-oss's Harmony, which smg parses elsewhere and for which Dynamo's parser downloads a vocabulary; families
that neither project supports (phi-4, granite, `<function=` of llama 3, FunctionGemma); hermes with Dynamo, whose `qwen3` parses the XML of Qwen3-Coder.
";

/// Writes the document, or compares it.
pub(crate) fn settle(all: &[Compared], write: bool) -> Result<(), String> {
    let text = document(all);
    if write {
        return std::fs::write(PATH, text).map_err(|e| format!("{PATH}: {e}"));
    }
    let written = std::fs::read_to_string(PATH).unwrap_or_default();
    match written == text {
        true => Ok(()),
        false => Err(format!(
            "{PATH} is not as it should be: write it with --write"
        )),
    }
}

fn document(all: &[Compared]) -> String {
    let mut text = HEAD.to_owned();
    text +=
        "\n| parser | family | texts | same result | otherwise when cut |\n|---|---|---|---|---|\n";
    for compared in all {
        let Compared {
            whose,
            dialect,
            texts,
            cut,
            ..
        } = compared;
        let same = texts - compared.differences.len();
        let _ = writeln!(text, "| {whose} | {dialect} | {texts} | {same} | {cut} |");
    }
    text += "\n## Reasons\n<a id=\"why\"></a>\n\n| parser | family | texts | reason |\n|---|---|---|---|\n";
    for (at, reason) in REASONS.iter().enumerate() {
        for compared in all {
            let first = |label: &str| {
                REASONS
                    .iter()
                    .position(|r| r.is_of(compared.whose, compared.dialect, label))
                    == Some(at)
            };
            let labels = compared.differences.iter().map(|d| d.label.as_str());
            let labels: Vec<_> = labels.filter(|label| first(label)).collect();
            if !labels.is_empty() {
                let (labels, why) = (labels.join("; "), reason.why);
                let _ = writeln!(
                    text,
                    "| {} | {} | {labels} | {why} |",
                    compared.whose, compared.dialect
                );
            }
        }
    }
    text
}

impl Compared {
    /// Prints what differs.
    pub(crate) fn show(&self) {
        let Self {
            whose,
            dialect,
            texts,
            cut,
            differences,
        } = self;
        println!(
            "== {whose}, {dialect}: {} of {texts} differ, {cut} when cut",
            differences.len()
        );
        for difference in differences {
            println!("-- {}: {difference}", difference.label);
        }
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { text, ours, .. } = self;
        write!(f, "{text:?}\n   ours   {ours}\n   theirs ")?;
        match &self.theirs {
            Ok(theirs) => write!(f, "{theirs}"),
            Err(why) => write!(f, "fails: {why}"),
        }
    }
}
