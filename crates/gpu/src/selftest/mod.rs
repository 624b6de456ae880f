//! Each kernel on small odd shapes next to its scalar twin: whether a driver computes what the kernels say.

mod cases;
mod draws;
#[cfg(test)]
mod replaced_tests;
#[cfg(test)]
mod tests;
mod twin;

use crate::operation::{BufferId, MatrixId, Program, RowSet};
use crate::record::Row;
use crate::webgpu::device::Device;
use crate::webgpu::loaded::{Loaded, Output};
use crate::webgpu::pipelines::in_parallel;
use cases::Case;
pub(crate) use cases::Check;
#[cfg(test)]
pub(crate) use draws::PLAIN;
use kernels::Format;
use std::sync::Arc;
use twin::Twin;
use twin::pages::{bytes_of, values_of};

/// The largest error of a page, relative to the length of the twin's result: elements have 11 bits. Of quants, one in a hundred
/// thousand may be rounded to the other side.
const PAGE_ERROR_MAX: f64 = 1e-3;
const QUANTS_ERROR_MAX: f64 = 1e-2;

/// The result of one kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelResult {
    /// The kernel, and what it was run with.
    pub name: String,
    /// Why it failed; `None` where its results are those of the twin.
    pub error: Option<String>,
}

impl KernelResult {
    fn shown(&self) -> String {
        let why = self.error.as_deref().unwrap_or_default();
        format!("`{}`: {why}", self.name)
    }
}

/// Checks all kernels, in all formats.
pub fn self_test(device: &Arc<Device>) -> Vec<KernelResult> {
    let mut cases = cases::all();
    if device.facts().matrix_units.is_some() {
        cases.extend(
            Format::ALL
                .into_iter()
                .flat_map(|format| Check::OnMatrixUnits(format).cases()),
        );
    }
    // A driver compiles on the thread that asks for a kernel, or on one of its own: several cases keep both busy.
    let results = in_parallel(&cases, |case| result(device, case));
    results.into_iter().chain(of_draws(device)).collect()
}

/// Checks the kernels of a program that were not yet checked on this device. Where one for many rows fails, the device uses none
/// of them: the kernels for few rows compute all batches.
///
/// # Errors
/// The first kernel that fails and has no other in its place.
pub(crate) fn check_program(device: &Arc<Device>, program: &Program) -> Result<(), KernelResult> {
    check_matrix_units(device, program);
    let mut checks = Check::of_program(program, device.matrix_units().is_some());
    if program.draws.is_some() {
        // First, since its kernels take longest to compile.
        checks.insert(0, Check::Draws);
    }
    let is_used = |check: Check| !check.is_of_many_rows() || !device.distrusts_tiles();
    checks.retain(|check| is_used(*check) && !device.has_passed(*check));
    let results = in_parallel(&checks, |check| passes(device, *check));
    let failed = checks.iter().zip(results);
    let failed = failed.filter_map(|(check, result)| Some((check, result.err()?)));
    let (replaceable, others): (Vec<_>, Vec<_>) =
        failed.partition(|(check, _)| check.is_of_many_rows());
    if let Some((_, failed)) = others.into_iter().next() {
        return Err(failed);
    }
    for (_, failed) in replaceable {
        device.distrust_tiles();
        device.note_replaced(failed.shown());
    }
    Ok(())
}

/// Runs a check that was not yet passed.
fn passes(device: &Arc<Device>, check: Check) -> Result<(), KernelResult> {
    let found = match check {
        Check::Draws => of_draws(device).find(|result| result.error.is_some()),
        _ => {
            let cases = check.cases();
            let mut results = cases.iter().map(|case| result(device, case));
            results.find(|result| result.error.is_some())
        }
    };
    if let Some(failed) = found {
        return Err(failed);
    }
    if let Check::Matmul(format) = check {
        let kept = keeps_bits(device, format).map_err(|error| KernelResult {
            name: format!("matmul {format:?}"),
            error: Some(error),
        })?;
        if !kept {
            device.reorder_sums();
        }
    }
    device.pass(check);
    Ok(())
}

/// Checks the kernels of draws.
fn of_draws(device: &Arc<Device>) -> impl Iterator<Item = KernelResult> + use<> {
    let results = draws::check(device).into_iter();
    results.map(|(name, error)| KernelResult { name, error })
}

/// Checks products on matrix units, which are used no more after a failure: there are kernels without them.
fn check_matrix_units(device: &Arc<Device>, program: &Program) {
    if !program.on_matrix_units || device.distrusts_tiles() {
        return;
    }
    for check in Check::of_program(program, true) {
        let Check::Matmul(format) = check else {
            continue;
        };
        let check = Check::OnMatrixUnits(format);
        if device.matrix_units().is_none() || device.has_passed(check) {
            continue;
        }
        let results = check.cases();
        let mut results = results.iter().map(|case| result(device, case));
        match results.find(|result| result.error.is_some()) {
            Some(failed) => {
                device.distrust_matrix_units();
                device.note_replaced(failed.shown());
            }
            None => device.pass(check),
        }
    }
}

/// Whether rows of a product have the same bits in the kernels for all numbers of rows below those of tiles.
fn keeps_bits(device: &Arc<Device>, format: Format) -> Result<bool, String> {
    let mut case = cases::exact(cases::matmul(format, 11));
    let mut loaded = load(device, &case)?;
    let failed = |error: crate::DeviceError| error.to_string();
    let all = run(&mut loaded, &case).map_err(failed)?;
    for rows in 1..4 {
        case.record.clear();
        case.record
            .set(RowSet::All, &vec![Row::default(); rows], [&[]; 2]);
        let found = run(&mut loaded, &case).map_err(failed)?;
        let buffers = found.iter().zip(&all).zip(&case.program.buffers);
        for ((found, all), shape) in buffers {
            let pairs = found.iter().zip(all).take(rows * shape.cols as usize);
            if pairs
                .into_iter()
                .any(|(found, all)| found.to_bits() != all.to_bits())
            {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

fn result(device: &Arc<Device>, case: &Case) -> KernelResult {
    KernelResult {
        name: case.name.clone(),
        error: compare(device, case).err(),
    }
}

/// Runs a case on the device and by its twin; an error says where they differ.
fn compare(device: &Arc<Device>, case: &Case) -> Result<(), String> {
    let found = on_device(device, case)?;
    let wanted = by_twin(case);
    for (index, (found, wanted)) in found.buffers.iter().zip(&wanted.buffers).enumerate() {
        let error = error(found, wanted)?;
        if error > case.error_max {
            return Err(format!("buffer {index} is off by {error:.1e}"));
        }
    }
    for (found, wanted) in found.pages.iter().zip(&wanted.pages) {
        let error = error(found, wanted)?;
        let caches = &mut case.program.caches.iter();
        let most = if caches.any(|cache| cache.kind.is_quantized()) {
            QUANTS_ERROR_MAX
        } else {
            PAGE_ERROR_MAX
        };
        if error > most {
            return Err(format!("a page is off by {error:.1e}"));
        }
    }
    Ok(())
}

/// What a case leaves behind.
struct Memories {
    /// `(rows, cols)` of each buffer.
    buffers: Vec<Vec<f32>>,
    /// Keys and values of all pages.
    pages: Vec<Vec<f32>>,
}

/// Loads and runs a case.
fn on_device(device: &Arc<Device>, case: &Case) -> Result<Memories, String> {
    let failed = |error: crate::DeviceError| error.to_string();
    let mut loaded = load(device, case)?;
    let buffers = run(&mut loaded, case).map_err(failed)?;
    let count = case.program.caches.first().map_or(0, |cache| cache.pages);
    let mut pages = Vec::new();
    for page in 0..count {
        let mut bytes = vec![0; loaded.page_bytes() as usize];
        loaded.export_page(page, &mut bytes).map_err(failed)?;
        pages.push(values_of_page(&case.program, &bytes));
    }
    Ok(Memories { buffers, pages })
}

/// Loads a case's program with its matrices and pages.
fn load(device: &Arc<Device>, case: &Case) -> Result<Loaded, String> {
    let mut program = case.program.clone();
    program.outputs = (0..program.buffers.len() as u32).map(BufferId).collect();
    let records = case.earlier.iter().chain([&case.record]);
    let words = records.map(|record| record.words().len()).max();
    program.record_words_max = words.unwrap_or(0) as u32;
    let loaded = Loaded::new(Arc::clone(device), program);
    let mut loaded = loaded.map_err(|error| error.to_string())?;
    let failed = |error: crate::DeviceError| error.to_string();
    for (index, raw) in (0..).zip(&case.matrices) {
        let uploaded = loaded.upload(MatrixId(index), 0, raw);
        uploaded.map_err(failed)?;
    }
    for (page, bytes) in (0..).zip(pages_of(&case.program, &case.caches)) {
        loaded.import_page(page, &bytes).map_err(failed)?;
    }
    Ok(loaded)
}

/// Runs a case that is loaded; returns all buffers.
fn run(loaded: &mut Loaded, case: &Case) -> Result<Vec<Vec<f32>>, crate::DeviceError> {
    for (index, rows) in (0..).zip(&case.buffers) {
        loaded.write_buffer(BufferId(index), rows);
    }
    let mut buffers: Vec<Vec<f32>> = case.buffers.clone();
    let mut outputs: Vec<Output<'_>> = (0..)
        .zip(&mut buffers)
        .map(|(index, rows)| Output {
            buffer: BufferId(index),
            rows,
        })
        .collect();
    if let Some(earlier) = &case.earlier {
        loaded.run(earlier, &mut [])?;
    }
    loaded.run(&case.record, &mut outputs)?;
    Ok(buffers)
}

fn by_twin(case: &Case) -> Memories {
    let mut twin = Twin::new(&case.program, &case.record, case.weights());
    twin.buffers.clone_from(&case.buffers);
    twin.caches.clone_from(&case.caches);
    if let Some(earlier) = &case.earlier {
        twin.run(earlier);
    }
    twin.run(&case.record);
    let pages = pages_of(&case.program, &twin.caches);
    let pages = pages
        .iter()
        .map(|bytes| values_of_page(&case.program, bytes));
    Memories {
        pages: pages.collect(),
        buffers: twin.buffers,
    }
}

/// The bytes of each page, as they are imported.
fn pages_of(program: &Program, caches: &[Vec<[Vec<f32>; 2]>]) -> Vec<Vec<u8>> {
    let count = program
        .caches
        .first()
        .map_or(0, |cache| cache.pages as usize);
    let page = |page: usize| {
        let mut bytes = Vec::new();
        for (shape, layers) in program.caches.iter().zip(caches) {
            let len = (shape.kv_heads * shape.page_tokens * shape.stride()) as usize;
            for values in layers.iter().flatten() {
                bytes.extend(bytes_of(shape, &values[page * len..][..len]));
            }
        }
        bytes
    };
    (0..count).map(page).collect()
}

/// The elements of a page, as it was exported.
fn values_of_page(program: &Program, mut bytes: &[u8]) -> Vec<f32> {
    let mut values = Vec::new();
    for shape in &program.caches {
        for _ in 0..2 * shape.layers {
            let (part, rest) = bytes.split_at(shape.page_bytes() as usize);
            values.extend(values_of(shape, part));
            bytes = rest;
        }
    }
    values
}

/// The distance of two vectors, relative to the length of the second.
fn error(found: &[f32], wanted: &[f32]) -> Result<f64, String> {
    let (mut distance, mut length) = (0.0, 0.0);
    for (index, (found, wanted)) in found.iter().zip(wanted).enumerate() {
        if found.is_nan() != wanted.is_nan() {
            return Err(format!("element {index} is {found}, not {wanted}"));
        }
        if !found.is_nan() {
            distance += (f64::from(*found) - f64::from(*wanted)).powi(2);
            length += f64::from(*wanted).powi(2);
        }
    }
    if distance.is_nan() {
        return Err("an element is infinite".into());
    }
    Ok((distance / length.max(1e-30)).sqrt())
}
