//! What was measured, as a table or as JSON.

use super::test::Test;
use crate::limits::Limits;
use crate::table::{aligned, cells};
use serde::{Serialize, Serializer};
use std::fmt;

const MIB: f64 = 1024.0 * 1024.0;

/// What was measured in one run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The model's family.
    pub architecture: &'static str,
    /// Instructions used.
    pub isa: &'static str,
    /// Threads that computed.
    pub threads: usize,
    /// How keys and values were kept.
    pub kv: &'static str,
    /// Times everything was measured.
    pub rounds: usize,
    /// Whether operations are held against the peak of bytes, or of f32.
    pub quantized: bool,
    /// Bytes of weights that a step reads, as they are in the file.
    pub weight_bytes: u64,
    /// The machine's, measured first.
    pub limits: Limits,
    /// From an opened file to a model that runs, milliseconds.
    pub load_ms: f64,
    /// Bytes.
    pub memory: Memory,
    /// The tests, in order.
    pub rows: Vec<Row>,
    /// Tests without room, and why.
    #[serde(serialize_with = "named")]
    pub left_out: Vec<(Test, String)>,
}

/// Bytes of memory.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Memory {
    /// Packed weights.
    pub weights: u64,
    /// Keys and values, all pages.
    pub kv: u64,
    /// What a forward pass works in, when it was as large as it may be.
    pub scratch: u64,
    /// Resident before the model was loaded, where the system says.
    pub resident_before_load: Option<u64>,
    /// Resident after it.
    pub resident_after_load: Option<u64>,
    /// Resident after all tests.
    pub resident: Option<u64>,
}

/// One test: medians over the rounds.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Its name.
    pub test: String,
    /// Tokens computed in one round.
    pub tokens: usize,
    /// Tokens per second.
    pub tokens_per_s: f64,
    /// In the slowest round.
    pub tokens_per_s_least: f64,
    /// In the fastest round.
    pub tokens_per_s_most: f64,
    /// Useful bytes per second: the file's weights once per step, keys and values.
    pub bytes_per_s: f64,
    /// Of the read bandwidth measured, 0 to 1.
    pub bandwidth_share: f64,
    /// Useful operations per second: a product and its sum are two.
    pub ops_per_s: f64,
    /// Of the arithmetic peak measured, 0 to 1.
    pub peak_share: f64,
}

fn named<S: Serializer>(left_out: &[(Test, String)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(left_out.iter().map(|(test, why)| (test.to_string(), why)))
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (limits, memory) = (&self.limits, &self.memory);
        writeln!(
            f,
            "{}, {} MiB of weights; {}, {} threads, keys and values {}, medians of {} rounds",
            self.architecture,
            mib(self.weight_bytes),
            self.isa,
            self.threads,
            self.kv,
            self.rounds
        )?;
        writeln!(
            f,
            "limits: read {:.1} GB/s (pages of 4 KiB), {:.1} GB/s (2 MiB), f32 {:.3} TFLOP/s, int8 {:.3} TOP/s",
            limits.read_small_pages / 1e9,
            limits.read_large_pages / 1e9,
            limits.f32_ops / 1e12,
            limits.int8_ops / 1e12
        )?;
        writeln!(
            f,
            "loaded in {:.0} ms: packed weights {} MiB, keys and values {} MiB, scratch {} MiB; resident {} MiB",
            self.load_ms,
            mib(memory.weights),
            mib(memory.kv),
            mib(memory.scratch),
            memory.resident.map_or_else(|| "?".to_owned(), mib)
        )?;
        let unit = if self.quantized { "TOP/s" } else { "TFLOP/s" };
        let head = cells([
            "test", "tokens/s", "least", "most", "GB/s", "of read", unit, "of peak",
        ]);
        let lines: Vec<_> = std::iter::once(head)
            .chain(self.rows.iter().map(Row::cells))
            .collect();
        f.write_str(&aligned(&lines))?;
        for (test, why) in &self.left_out {
            writeln!(f, "left out: {test}: {why}")?;
        }
        Ok(())
    }
}

impl Row {
    fn cells(&self) -> Vec<String> {
        let percent = |share: f64| format!("{:.0}%", 100.0 * share);
        vec![
            self.test.clone(),
            format!("{:.1}", self.tokens_per_s),
            format!("{:.1}", self.tokens_per_s_least),
            format!("{:.1}", self.tokens_per_s_most),
            format!("{:.1}", self.bytes_per_s / 1e9),
            percent(self.bandwidth_share),
            format!("{:.3}", self.ops_per_s / 1e12),
            percent(self.peak_share),
        ]
    }
}

fn mib(bytes: u64) -> String {
    format!("{:.0}", bytes as f64 / MIB)
}
