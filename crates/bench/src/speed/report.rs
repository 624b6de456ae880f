//! Results of a speed measurement, as a table or as JSON.

use super::test_plan::SpeedTest;
use crate::limits::Limits;
use crate::summary::{aligned, cells};
use serde::{Serialize, Serializer};
use std::fmt;

/// Kernels of a step that are shown; JSON has all.
const KERNELS_SHOWN: usize = 10;

const MIB: f64 = 1024.0 * 1024.0;

/// Results of one run.
#[derive(Clone, Debug, Serialize)]
pub struct SpeedReport {
    /// Architecture of the model.
    pub architecture: &'static str,
    /// Instruction set, or the device.
    pub isa: String,
    /// Kernel threads; 0 on a device.
    pub threads: usize,
    /// Storage format of the KV cache.
    pub kv: &'static str,
    /// Repetitions of all tests.
    pub rounds: usize,
    /// Whether operations are compared with the int8 peak, or else with the f32 peak.
    pub quantized: bool,
    /// Bytes of weights that a step reads, as stored in the file.
    pub weight_bytes: u64,
    /// Limits of the machine, measured before the model was loaded.
    pub limits: Limits,
    /// Load time of the model, from the opened file, milliseconds.
    pub load_ms: f64,
    /// Memory use.
    pub memory: MemoryUse,
    /// The tests in order.
    pub rows: Vec<SpeedRow>,
    /// Skipped tests and the reason.
    #[serde(serialize_with = "serialize_skipped")]
    pub left_out: Vec<(SpeedTest, String)>,
}

/// Memory use in bytes.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct MemoryUse {
    /// Packed weights.
    pub weights: u64,
    /// KV cache, all pages.
    pub kv: u64,
    /// Scratch memory of a forward pass at the largest batch.
    pub scratch: u64,
    /// Resident memory before the load, if known.
    pub resident_before_load: Option<u64>,
    /// Resident memory after the load, if known.
    pub resident_after_load: Option<u64>,
    /// Resident memory after all tests, if known.
    pub resident: Option<u64>,
}

/// Result of one test: medians over the rounds.
#[derive(Clone, Debug, Serialize)]
pub struct SpeedRow {
    /// Name of the test.
    pub test: String,
    /// Tokens computed per round.
    pub tokens: usize,
    /// Tokens per second.
    pub tokens_per_s: f64,
    /// Tokens per second in the slowest round.
    pub tokens_per_s_least: f64,
    /// Tokens per second in the fastest round.
    pub tokens_per_s_most: f64,
    /// Bytes per second: the file's weights once per step, plus keys and values.
    pub bytes_per_s: f64,
    /// Share of the measured read bandwidth, 0 to 1.
    pub bandwidth_share: f64,
    /// Operations per second (multiply and add count as two).
    pub ops_per_s: f64,
    /// Share of the measured arithmetic peak, 0 to 1; `None` where that was not measured.
    pub peak_share: Option<f64>,
    /// Kernels of the first step, the longest first; `None` without a clock of the device.
    pub kernels: Option<Vec<KernelUse>>,
}

/// Time of a kernel in a step, by the clock of the device.
#[derive(Clone, Debug, Serialize)]
pub struct KernelUse {
    /// The kernel.
    pub kernel: String,
    /// Dispatches in the step.
    pub dispatches: usize,
    /// Microseconds of all of them.
    pub us: f64,
}

fn serialize_skipped<S: Serializer>(
    left_out: &[(SpeedTest, String)],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_map(left_out.iter().map(|(test, why)| (test.to_string(), why)))
}

impl fmt::Display for SpeedReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (limits, memory) = (&self.limits, &self.memory);
        let threads = match self.threads {
            0 => String::new(),
            threads => format!(", {threads} threads"),
        };
        writeln!(
            f,
            "{}, {} MiB of weights; {}{threads}, keys and values {}, medians of {} rounds",
            self.architecture,
            mib(self.weight_bytes),
            self.isa,
            self.kv,
            self.rounds
        )?;
        if limits.f32_ops > 0.0 {
            writeln!(
                f,
                "limits: read {:.1} GB/s (pages of 4 KiB), {:.1} GB/s (2 MiB), f32 {:.3} TFLOP/s, int8 {:.3} TOP/s",
                limits.read_small_pages / 1e9,
                limits.read_large_pages / 1e9,
                limits.f32_ops / 1e12,
                limits.int8_ops / 1e12
            )?;
        } else {
            writeln!(f, "limits: read {:.1} GB/s", limits.read() / 1e9)?;
        }
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
            .chain(self.rows.iter().map(SpeedRow::cells))
            .collect();
        f.write_str(&aligned(&lines))?;
        self.rows.iter().try_for_each(|row| row.write_kernels(f))?;
        if self.threads == 0 {
            self.write_notes(f)?;
        }
        for (test, why) in &self.left_out {
            writeln!(f, "left out: {test}: {why}")?;
        }
        Ok(())
    }
}

impl SpeedReport {
    /// Says how a device was measured.
    fn write_notes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.rows.iter().any(|row| row.test.starts_with("decode")) {
            f.write_str(
                "decode: the logits of each step are read back; ahead: the device draws, and a step begins before the tokens are here\n",
            )?;
        }
        if self.rows.iter().all(|row| row.kernels.is_none()) {
            writeln!(
                f,
                "times are those of the host: the device has no clock for kernels"
            )?;
        }
        Ok(())
    }
}

impl SpeedRow {
    /// Writes the kernels of a step, where they are known.
    fn write_kernels(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(kernels) = &self.kernels else {
            return Ok(());
        };
        let all: f64 = kernels.iter().map(|kernel| kernel.us).sum();
        let test = &self.test;
        writeln!(
            f,
            "first step of {test}, kernels by the clock of the device: {all:.1} us"
        )?;
        for kernel in kernels.iter().take(KERNELS_SHOWN) {
            let KernelUse {
                kernel,
                dispatches,
                us,
            } = kernel;
            writeln!(f, "{us:>10.1} us, {dispatches:>4} x {kernel}")?;
        }
        Ok(())
    }

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
            self.peak_share.map_or_else(|| "-".to_owned(), percent),
        ]
    }
}

fn mib(bytes: u64) -> String {
    format!("{:.0}", bytes as f64 / MIB)
}
