//! Times of kernels on shapes of real models.

use crate::operation::{At, CacheShape, MatrixId, MatrixShape, Operation, Program, RowSet, UNIT};
use crate::record::{Record, Row};
use crate::webgpu::loaded::Loaded;
use crate::{Device, PrepareError};
use kernels::{Format, KvKind};
use std::sync::Arc;
use std::time::Duration;

/// Times that a kernel is run in a submit. A submit with one run is the point of comparison.
const RUNS: usize = 17;

/// Submits of each kind; the fastest counts.
const SUBMITS: usize = 5;

/// Positions of a page.
const PAGE_TOKENS: u32 = 32;

/// Formats and numbers of rows of the products.
const FORMATS: [Format; 4] = [Format::F16, Format::Q8_0, Format::Q4_0, Format::Q4_K];
const ROWS: [u32; 4] = [1, 8, 32, 512];

/// Time of a kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct KernelTime {
    /// The kernel and its shape.
    pub name: String,
    /// Seconds of one run: the fastest by the clock of the device ([`DeviceFacts::has_timestamps`](crate::DeviceFacts)), else by
    /// the host's around submits with many runs and with one, so without submit and wait.
    pub seconds: f64,
    /// Bytes of weights, or of keys and values, that a run reads.
    pub bytes: u64,
    /// Multiply-adds of a run.
    pub products: u64,
}

/// Times of products and of attention: of 4096 inputs and outputs and 4096 positions, on a processor 256 and few rows. `now` is the
/// clock, from any moment on.
///
/// # Errors
/// The device fails, or has no memory for a matrix.
pub fn kernel_times(
    device: &Arc<Device>,
    now: impl Fn() -> Duration,
) -> Result<Vec<KernelTime>, PrepareError> {
    let (size, rows_max) = if device.facts().is_processor {
        (256, 8)
    } else {
        (4096, u32::MAX)
    };
    let mut times = Vec::new();
    for format in FORMATS {
        for rows in ROWS.into_iter().filter(|rows| *rows <= rows_max) {
            times.push(product(device, &now, (format, size, rows))?);
        }
    }
    times.push(attention(device, &now, size)?);
    Ok(times)
}

/// A product of a square matrix with so many rows.
fn product(
    device: &Arc<Device>,
    now: &impl Fn() -> Duration,
    (format, size, rows): (Format, u32, u32),
) -> Result<KernelTime, PrepareError> {
    let mut program = Program {
        rows_max: rows,
        ..Program::default()
    };
    let [input, out] = [(); 2].map(|()| At::start(program.buffer(rows, size)));
    let shape = MatrixShape {
        format,
        rows: size,
        cols: size.next_multiple_of(UNIT),
        unit_rows: 1,
    };
    let matrix = program.matrix(shape);
    let operation = Operation::Matmul {
        matrix,
        input,
        bias: None,
        add: false,
        out,
    };
    let record = record(&vec![Row::default(); rows as usize], &[]);
    let row_bytes = size as usize / format.block_weights() * format.block_bytes();
    let raw = vec![0; row_bytes];
    let upload = |loaded: &mut Loaded| {
        // Zeros are as fast as other numbers.
        loaded.upload(MatrixId(0), 0, &raw)
    };
    Ok(KernelTime {
        name: format!("product {format:?}, {size} x {size}, {rows} rows"),
        seconds: time(device, now, (&program, operation), &record, upload)?,
        bytes: u64::from(size) * row_bytes as u64,
        products: u64::from(size) * u64::from(size) * u64::from(rows),
    })
}

/// Attention of one row to so many positions: 32 heads of 128 that share 8 heads of keys.
fn attention(
    device: &Arc<Device>,
    now: &impl Fn() -> Duration,
    positions: u32,
) -> Result<KernelTime, PrepareError> {
    const HEADS: u32 = 32;
    let mut program = Program {
        rows_max: 1,
        context_max: positions,
        ..Program::default()
    };
    let shape = CacheShape {
        layers: 1,
        pages: positions.div_ceil(PAGE_TOKENS),
        page_tokens: PAGE_TOKENS,
        kv_heads: 8,
        head_dim: 128,
        kind: KvKind::F16,
    };
    let cache = program.cache(shape);
    let [query, out] = [(); 2].map(|()| At::start(program.buffer(1, HEADS * shape.head_dim)));
    let operation = Operation::Attend {
        query,
        heads: HEADS,
        cache,
        layer: 0,
        scale: 1.0,
        cap: None,
        window: None,
        blocks: false,
        sinks: None,
        out,
    };
    let row = Row {
        position: positions - 1,
        ..Row::default()
    };
    let tables: Vec<u32> = (0..shape.pages).collect();
    let record = record(&[row], &tables);
    Ok(KernelTime {
        name: format!("attention, {HEADS} heads of 128 to {positions} positions, 1 row"),
        seconds: time(device, now, (&program, operation), &record, |_| Ok(()))?,
        bytes: shape.bytes(),
        products: 2 * u64::from(HEADS * shape.head_dim) * u64::from(positions),
    })
}

fn record(rows: &[Row], tables: &[u32]) -> Record {
    let mut record = Record::default();
    record.clear();
    record.set(RowSet::All, rows, [&[]; 2]);
    record.tables(tables);
    record
}

/// Seconds of one run of an operation.
fn time(
    device: &Arc<Device>,
    now: &impl Fn() -> Duration,
    (program, operation): (&Program, Operation),
    record: &Record,
    prepare: impl Fn(&mut Loaded) -> Result<(), crate::DeviceError>,
) -> Result<f64, PrepareError> {
    let load = |runs: usize| {
        let mut program = program.clone();
        program.record_words_max = record.words().len() as u32;
        for _ in 0..runs {
            program.push(RowSet::All, operation);
        }
        let mut loaded = Loaded::new(Arc::clone(device), program)?;
        prepare(&mut loaded)?;
        // The first run compiles what the driver compiles late.
        loaded.run(record, &mut [])?;
        Ok::<_, PrepareError>(loaded)
    };
    let mut many = load(RUNS)?;
    if let Some(dispatches) = many.run_timed(record)? {
        // A run may be several dispatches, as many as each other run.
        let runs = dispatches.chunks(dispatches.len().div_ceil(RUNS).max(1));
        let runs = runs.map(|run| run.iter().map(|(_, seconds)| seconds).sum());
        return Ok(runs.fold(f64::INFINITY, f64::min));
    }
    let fastest = |loaded: &mut Loaded| {
        let mut fastest = f64::INFINITY;
        for _ in 0..SUBMITS {
            let begun = now();
            loaded.run(record, &mut [])?;
            fastest = fastest.min((now() - begun).as_secs_f64());
        }
        Ok::<_, PrepareError>(fastest)
    };
    let one = fastest(&mut load(1)?)?;
    Ok((fastest(&mut many)? - one).max(0.0) / (RUNS - 1) as f64)
}

/// Time of a kernel in a step of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct StepKernel {
    /// The kernel.
    pub name: String,
    /// Dispatches in the step.
    pub dispatches: usize,
    /// Seconds of all of them, by the clock of the device.
    pub seconds: f64,
}

/// Adds the times of dispatches up by kernel, the longest first.
pub(crate) fn by_kernel(dispatches: Vec<(String, f64)>) -> Vec<StepKernel> {
    let mut kernels: Vec<StepKernel> = Vec::new();
    for (name, seconds) in dispatches {
        match kernels.iter_mut().find(|kernel| kernel.name == name) {
            Some(kernel) => {
                kernel.dispatches += 1;
                kernel.seconds += seconds;
            }
            None => kernels.push(StepKernel {
                name,
                dispatches: 1,
                seconds,
            }),
        }
    }
    kernels.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    kernels
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_device::device;
    use std::cell::Cell;

    #[test]
    fn time_of_a_run_is_without_submit_and_wait() {
        let Some(device) = device() else { return };
        let device = Arc::new(
            device
                .reopen()
                .expect("the device of before")
                .without_clock(),
        );
        // Each call takes a second more: a submit of one run takes 1 s, then all later ones longer.
        let (clock, step) = (Cell::new(0), Cell::new(0));
        let now = || {
            step.set(step.get() + 1);
            clock.set(clock.get() + step.get());
            Duration::from_secs(clock.get())
        };
        let found = product(&device, &now, (Format::Q8_0, 64, 3)).expect("a device that works");
        // The fastest submits of both kinds are the first: the second and the twelfth call.
        let wanted = f64::from(2 + 2 * SUBMITS as u32 - 2) / (RUNS - 1) as f64;
        assert_eq!(found.seconds, wanted);
        assert_eq!(found.bytes, 64 * 2 * 34);
        assert_eq!(found.products, 64 * 64 * 3);
        let constant = || Duration::ZERO;
        let found = attention(&device, &constant, 100).expect("a device that works");
        assert_eq!(
            (found.seconds, found.bytes),
            (0.0, 2 * 4 * 8 * 32 * 128 * 2)
        );
    }

    #[test]
    fn device_with_a_clock_times_each_dispatch() {
        let Some(device) = device() else { return };
        if !device.facts().has_timestamps {
            return;
        }
        // The clock of the host is not asked.
        let now = || -> Duration { panic!("the device has a clock") };
        for found in [
            product(&device, &now, (Format::Q8_0, 64, 3)),
            attention(&device, &now, 100),
        ] {
            let seconds = found.expect("a device that works").seconds;
            assert!(seconds.is_finite() && seconds >= 0.0, "{seconds}");
        }
    }

    #[test]
    fn times_are_added_up_by_kernel() {
        let times = [("a", 1.0), ("b", 4.0), ("a", 2.0)];
        let found = by_kernel(times.map(|(name, time)| (name.to_owned(), time)).to_vec());
        let found: Vec<_> = found
            .iter()
            .map(|kernel| (kernel.name.as_str(), kernel.dispatches, kernel.seconds))
            .collect();
        assert_eq!(found, [("b", 1, 4.0), ("a", 2, 3.0)]);
    }
}
