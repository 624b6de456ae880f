//! Counts and times of a run, as Markdown.

use crate::verdict::{Checked, Verdict};

/// What one mode of compilation gives.
pub(crate) struct Report {
    pub(crate) mode: &'static str,
    passes: usize,
    refused: usize,
    wrongly_rejected: usize,
    wrongly_accepted: usize,
    compiles_us: Vec<f64>,
    masks_us: Vec<f64>,
}

/// Figures of MaskBench's README of 2025-03-27: engine, passing, refused, crashed or stopped, wrongly rejected,
/// wrongly accepted, compile time p50 and p99, mask p50 and p99 in microseconds.
const PUBLISHED: [(&str, [&str; 9]); 5] = [
    (
        "llguidance 0.7.10",
        [
            "8,909", "2,377", "0", "20", "0", "1,037", "17,988", "46", "533",
        ],
    ),
    (
        "XGrammar 0.1.17",
        [
            "8,122",
            "90",
            "278",
            "1,408",
            "1,368",
            "919,459",
            "900,000,000",
            "9",
            "5,687",
        ],
    ),
    (
        "llama.cpp (llama-cpp-python 0.3.8)",
        [
            "6,505", "1,301", "1", "2,850", "649", "312", "28,558", "17,021", "60,371",
        ],
    ),
    (
        "XGrammar 0.1.17 with llama.cpp's converter",
        [
            "6,387",
            "1,718",
            "39",
            "2,837",
            "325",
            "856,231",
            "65,476,826",
            "1,677",
            "381,153",
        ],
    ),
    (
        "outlines-core 0.2.3",
        [
            "7,050",
            "1,773",
            "248",
            "1,415",
            "822",
            "587,900",
            "413,111,222",
            "34",
            "7,184",
        ],
    ),
];

impl Report {
    pub(crate) fn new(mode: &'static str) -> Self {
        Self {
            mode,
            passes: 0,
            refused: 0,
            wrongly_rejected: 0,
            wrongly_accepted: 0,
            compiles_us: Vec::new(),
            masks_us: Vec::new(),
        }
    }

    pub(crate) fn add(&mut self, checked: Checked) {
        let count = match checked.verdict {
            Verdict::Passes => &mut self.passes,
            Verdict::Refused(_) => &mut self.refused,
            Verdict::WronglyRejected(_) => &mut self.wrongly_rejected,
            Verdict::WronglyAccepted(_) => &mut self.wrongly_accepted,
        };
        *count += 1;
        self.compiles_us.extend(checked.compile_us);
        self.masks_us.extend(checked.masks_us);
    }

    fn row(&self) -> String {
        let [compile_p50, compile_p99] = percentiles(&self.compiles_us);
        let [mask_p50, mask_p99] = percentiles(&self.masks_us);
        let [passes, refused, rejected, accepted] = [
            self.passes,
            self.refused,
            self.wrongly_rejected,
            self.wrongly_accepted,
        ]
        .map(grouped);
        format!(
            "| Millrace, {} | {passes} | {refused} | 0 | {rejected} | {accepted} | {compile_p50} | {compile_p99} | \
             {mask_p50} | {mask_p99} |",
            self.mode
        )
    }
}

/// Prints the page.
pub(crate) fn print(reports: &[Report], schemas: usize) {
    println!("{}", include_str!("opening.txt").trim_end());
    println!();
    println!(
        "This run: {} schemas; {} masks as written, {} with closed objects.",
        grouped(schemas),
        grouped(reports[0].masks_us.len()),
        grouped(reports[1].masks_us.len())
    );
    println!("Machine: {}; one thread.", processor());
    println!();
    println!(
        "| engine | pass | refused | crashed, out of memory or time | wrongly rejected | wrongly accepted | \
         compile p50 | p99 | mask p50 | p99 |"
    );
    println!("|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|");
    for report in reports {
        println!("{}", report.row());
    }
    for (engine, figures) in PUBLISHED {
        println!("| {engine} | {} |", figures.join(" | "));
    }
    println!();
    print!("{}", include_str!("closing.txt"));
}

/// The processor's name, where the system tells it.
fn processor() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = text.lines().find_map(|line| {
        let (field, value) = line.split_once(':')?;
        (field.trim() == "model name").then(|| value.trim().to_owned())
    });
    name.unwrap_or_else(|| "unknown processor".to_owned())
}

/// The median and the 99th percentile of times in microseconds.
fn percentiles(us: &[f64]) -> [String; 2] {
    let mut us = us.to_vec();
    us.sort_unstable_by(f64::total_cmp);
    let at = |part: f64| {
        let index = (us.len().saturating_sub(1) as f64 * part) as usize;
        us.get(index).copied().unwrap_or_default()
    };
    [0.5, 0.99].map(|part| grouped(at(part).round() as usize))
}

/// A number with commas between thousands.
fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}
