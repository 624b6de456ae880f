//! The kernels on the driver of the machine: results, bits, numbers of calls, faults.

use super::cases::ERROR_MAX;
use super::cases::{
    SCANS, attend, attend_tiles, embed, matmul, on_matrix_units, scan, wide_matmul,
};
use super::*;
use crate::MatrixUnits;
use crate::operation::RowSet;
use crate::record::{Record, Row, Span};
use crate::test_device::device;
use crate::webgpu::memory::scratch_bytes;
use crate::webgpu::sources::Kernel;
use crate::{DeviceError, PrepareError};
use kernels::{Format, KvKind};
use std::cell::Cell;
use std::time::Duration;

#[test]
fn kernels_equal_their_twins() {
    let Some(device) = device() else { return };
    let failed: Vec<_> = self_test(&device)
        .into_iter()
        .filter(|result| result.error.is_some())
        .collect();
    assert!(failed.is_empty(), "{failed:#?}");
    // None is left out: `tidy` sees to it that each belongs to an operation that has a twin.
    let compiled = device.compiled_kernels();
    let has_units = device.matrix_units().is_some();
    for kernel in kernels_of(include_str!("../webgpu/sources.rs")) {
        // `Read` measures bandwidth, and its results are not used.
        let is_apart = kernel == "Read" || kernel == "MatrixTile" && !has_units;
        let found = compiled.iter().any(|name| name == kernel);
        assert!(found || is_apart, "{kernel} is not among {compiled:?}");
    }
}

/// The variants of [`Kernel`], by the text.
fn kernels_of(text: &str) -> impl Iterator<Item = &str> {
    let body = text.split_once("enum Kernel {\n").expect("the enum").1;
    let body = body.split("\n}").next().expect("a part");
    let lines = body.lines().filter_map(|line| line.strip_prefix("    "));
    let variants = lines.filter(|line| line.starts_with(|c: char| c.is_ascii_uppercase()));
    variants.map(|line| line.trim_end_matches([' ', '{', ',']))
}

#[test]
fn draws_equal_their_definition() {
    let Some(device) = device() else { return };
    for seed in 2..12 {
        for vocab in [1, 3, 40, 1024, 4097, 33_000] {
            let case = draws::usual(vocab, seed);
            assert_eq!(draws::compare(&device, &case), Ok(()), "{vocab} {seed}");
        }
    }
}

/// Mesa's lavapipe has matrix units from version 26 on.
#[test]
fn products_on_matrix_units_equal_their_twins() {
    let Some(device) = device() else { return };
    let Some(units) = device.matrix_units() else {
        return;
    };
    for (format, rows) in [(Format::BF16, 20), (Format::Q4_K, 61)] {
        let case = on_matrix_units(format, rows);
        assert_eq!(compare(&device, &case), Ok(()), "{}", case.name);
    }
    // The squares of cards are accepted, if not run.
    for (size, rows) in [(8, 32), (16, 32), (16, 64), (16, 128)] {
        let kernel = Kernel::MatrixTile {
            format: Format::Q4_K,
            units: MatrixUnits { size, ..units },
            rows,
        };
        let made = device.checked(|_| device.shader(kernel.source(device.blocks())));
        assert_eq!(made.err(), None, "{size} {rows}");
    }
    device.distrust_matrix_units();
    assert_eq!(compare(&device, &on_matrix_units(Format::Q8_0, 61)), Ok(()));
}

#[test]
fn attention_by_tiles_equals_its_twin() {
    let Some(device) = device() else { return };
    for shape in [
        (64, 2, 4, 32, KvKind::F16),
        (80, 1, 3, 16, KvKind::Q8_0),
        (5, 3, 3, 7, KvKind::Q4_0),
        (256, 1, 2, 32, KvKind::F16),
    ] {
        let case = attend_tiles(shape);
        assert_eq!(compare(&device, &case), Ok(()), "{shape:?}");
        let mut loaded = load(&device, &case).expect("a device that works");
        let before = device.counts().dispatches;
        run(&mut loaded, &case).expect("a device that works");
        let dispatches = device.counts().dispatches - before;
        // One for the single row, one for the tiles.
        let steps = case.program.steps.len() as u64;
        assert_eq!(dispatches, 2 * steps, "{shape:?}");
    }
}

#[test]
fn altered_weight_is_found() {
    let Some(device) = device() else { return };
    let mut case = matmul(Format::Q8_0, 1);
    let found = on_device(&device, &case).expect("a device that works");
    case.matrices[0][40] ^= 0x40;
    let wanted = by_twin(&case);
    let error = error(&found.buffers[1], &wanted.buffers[1]);
    assert!(error.is_ok_and(|error| error > ERROR_MAX));
}

/// A case with some of its rows.
fn with_rows(case: &Case, rows: &[usize]) -> Case {
    let mut fewer = case.clone();
    fewer.record = Record::default();
    fewer.record.clear();
    let kept: Vec<_> = rows
        .iter()
        .map(|row| case.record.row(RowSet::All, *row))
        .collect();
    fewer.record.set(RowSet::All, &kept, [&[]; 2]);
    let tables_at = case.record.tables_at() as usize;
    if tables_at > 0 {
        fewer.record.tables(&case.record.words()[tables_at..]);
    }
    for (buffer, (shape, of_case)) in fewer
        .buffers
        .iter_mut()
        .zip(case.program.buffers.iter().zip(&case.buffers))
    {
        let cols = shape.cols as usize;
        for (to, from) in rows.iter().enumerate() {
            buffer[to * cols..][..cols].copy_from_slice(&of_case[from * cols..][..cols]);
        }
    }
    fewer
}

/// Checks that rows have the same bits alone, in pairs, and among all.
fn check_bits_of_rows(device: &Arc<Device>, case: &Case, rows: &[&[usize]]) {
    let mut loaded = load(device, case).expect("a device that works");
    let all = run(&mut loaded, case).expect("a device that works");
    for rows in rows {
        let found = run(&mut loaded, &with_rows(case, rows)).expect("a device that works");
        for (index, (found, all)) in found.iter().zip(&all).enumerate() {
            let cols = case.program.buffers[index].cols as usize;
            for (at, row) in rows.iter().enumerate() {
                let bits = |buffer: &[f32], row: usize| -> Vec<u32> {
                    let row = &buffer[row * cols..][..cols];
                    row.iter().map(|x| x.to_bits()).collect()
                };
                let equal = bits(found, at) == bits(all, *row);
                assert!(
                    equal,
                    "{}: row {row} of {rows:?}, buffer {index}",
                    case.name
                );
            }
        }
    }
}

#[test]
fn bits_of_a_product_do_not_depend_on_the_other_rows() {
    let Some(device) = device() else { return };
    for format in [Format::F32, Format::F16, Format::Q8_0, Format::Q4_K] {
        let rows: [&[usize]; 4] = [&[0], &[10], &[3, 7], &[9, 8, 2]];
        check_bits_of_rows(&device, &matmul(format, 11), &rows);
    }
    let mut exact = matmul(Format::Q8_0, 37);
    exact.program.exact = true;
    check_bits_of_rows(&device, &exact, &[&[0], &[36, 35, 1]]);
}

#[test]
fn kernels_of_cards_have_the_bits_of_those_of_processors() {
    let Some(device) = device() else { return };
    let card = device.reopen().expect("the device of before");
    let card = Arc::new(card.with_kernels_of_cards());
    let shape = (64, 2, 4, 32, KvKind::F16);
    let products = [1, 2, 3, 11, 20, 70].map(|rows| matmul(Format::Q4_K, rows));
    let attention = [attend(shape, true), attend_tiles(shape)];
    let experts = Check::Experts(Format::Q8_0).cases();
    for case in products.iter().chain(&attention).chain(&experts) {
        let bits = [&device, &card].map(|device| {
            let found = on_device(device, case).expect("a device that works");
            let bits = found.buffers.into_iter().flatten().map(f32::to_bits);
            bits.collect::<Vec<_>>()
        });
        assert!(bits[0] == bits[1], "{}", case.name);
        assert_eq!(compare(&card, case), Ok(()), "{}", case.name);
    }
}

#[test]
fn bits_of_attention_depend_neither_on_other_rows_nor_on_parts() {
    let Some(device) = device() else { return };
    for shape in [
        (64, 2, 4, 32, KvKind::F16),
        (5, 3, 3, 7, KvKind::F16),
        (64, 2, 4, 32, KvKind::Q4_0),
    ] {
        let apart = attend(shape, true);
        check_bits_of_rows(&device, &apart, &[&[0], &[2], &[2, 1]]);
        let mut whole = apart.clone();
        (whole.program.rows_max, whole.program.context_max) = (1, 1);
        let [apart, whole] = [apart, whole].map(|case| {
            let found = on_device(&device, &case).expect("a device that works");
            let bits = found.buffers.into_iter().flatten().map(f32::to_bits);
            bits.collect::<Vec<_>>()
        });
        assert!(apart == whole, "{shape:?}");
    }
}

#[test]
fn matrices_larger_than_a_binding_are_in_parts() {
    let Some(device) = device() else { return };
    let small = device.reopen().expect("the device of before");
    let small = Arc::new(small.with_binding_bytes_max(80 << 10));
    for format in [Format::F32, Format::Q6_K, Format::Q4_0] {
        for case in [matmul(format, 3), embed(format)] {
            assert_eq!(compare(&small, &case), Ok(()), "{}", case.name);
        }
    }
    let tiny = small.reopen().expect("the device of before");
    let tiny = Arc::new(tiny.with_binding_bytes_max(256));
    let refused = Loaded::new(tiny, matmul(Format::F32, 3).program);
    assert!(matches!(refused, Err(PrepareError::TooLarge { .. })));
}

#[test]
fn products_have_more_outputs_than_one_dimension_has_workgroups() {
    let Some(device) = device() else { return };
    let outputs = 4 * 32768 + 77;
    let case = wide_matmul(outputs, 5);
    assert_eq!(compare(&device, &case), Ok(()));
}

#[test]
fn batch_is_one_submit_one_wait_one_map_and_no_buffer() {
    let Some(device) = device() else { return };
    let case = attend((64, 2, 4, 32, KvKind::F16), true);
    let mut loaded = load(&device, &case).expect("a device that works");
    run(&mut loaded, &case).expect("a device that works");
    let before = device.counts();
    run(&mut loaded, &case).expect("a device that works");
    let after = device.counts();
    assert_eq!(after.submits - before.submits, 1);
    assert_eq!(after.waits - before.waits, 1);
    assert_eq!(after.maps - before.maps, 1);
    assert_eq!(after.buffers, before.buffers);
    // Each attention is cut in parts and merged.
    let operations = case.program.steps.len() as u64;
    assert_eq!(after.dispatches - before.dispatches, 2 * operations);
}

#[test]
fn place_counts_the_bytes_of_a_program() {
    let Some(device) = device() else { return };
    for case in [
        attend((80, 1, 3, 16, KvKind::Q8_0), true),
        matmul(Format::Q6_K, 3),
    ] {
        let loaded = load(&device, &case).expect("a device that works");
        let program = loaded.program();
        let matrices = program.matrices.iter().map(crate::layout::matrix_bytes);
        let caches = program.caches.iter().map(|cache| cache.bytes());
        let counted = scratch_bytes(program) + matrices.chain(caches).sum::<u64>();
        assert_eq!(loaded.device_bytes(), counted);
    }
}

#[test]
fn copied_page_has_the_bytes_of_the_other() {
    let Some(device) = device() else { return };
    let case = attend((80, 1, 3, 16, KvKind::F16), true);
    let mut loaded = load(&device, &case).expect("a device that works");
    let read = |loaded: &mut Loaded, page| {
        let mut bytes = vec![0; loaded.page_bytes() as usize];
        loaded.export_page(page, &mut bytes).map(|()| bytes)
    };
    let [first, second] = [3, 5].map(|page| read(&mut loaded, page));
    assert_ne!(first, second);
    loaded.copy_page(3, 5).expect("a device that works");
    assert_eq!(read(&mut loaded, 5), first);
    assert_eq!(read(&mut loaded, 3), first);
}

#[test]
fn lost_device_is_an_error_until_it_is_opened_again() {
    let Some(device) = device() else { return };
    let device = Arc::new(device.reopen().expect("the device of before"));
    let case = matmul(Format::Q8_0, 2);
    let mut loaded = load(&device, &case).expect("a device that works");
    device.lose();
    for _ in 0..2 {
        assert_eq!(run(&mut loaded, &case), Err(DeviceError::Lost));
    }
    assert_eq!(loaded.copy_page(0, 0), Ok(()), "waits for the next batch");
    assert!(load(&device, &case).is_err());
    let again = Arc::new(device.reopen().expect("a device that works"));
    assert_eq!(compare(&again, &case), Ok(()));
}

#[test]
fn bits_of_a_scan_do_not_depend_on_the_cut_of_its_span() {
    let Some(device) = device() else { return };
    let mut whole = scan(SCANS[0]);
    whole.earlier = None;
    whole.record = one_span(5, None, 2);
    let mut first = whole.clone();
    first.record = one_span(3, None, 0);
    let mut second = whole.clone();
    second.record = one_span(2, Some(0), 1);
    let cols: Vec<usize> = whole
        .program
        .buffers
        .iter()
        .map(|shape| shape.cols as usize)
        .collect();
    for (rows, cols) in second.buffers.iter_mut().zip(&cols) {
        rows.copy_within(3 * cols..5 * cols, 0);
    }
    let mut loaded = load(&device, &whole).expect("a device that works");
    let [whole, _, second] =
        [whole, first, second].map(|case| run(&mut loaded, &case).expect("a device that works"));
    for (index, (whole, second)) in whole.iter().zip(&second).enumerate() {
        let bits = |rows: &[f32]| rows.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        let last = bits(&whole[3 * cols[index]..5 * cols[index]]);
        assert!(last == bits(&second[..2 * cols[index]]), "buffer {index}");
    }
}

/// A record of one span.
fn one_span(rows: u32, before: Option<u32>, state: u32) -> Record {
    let mut span = Span {
        rows,
        before,
        ..Span::default()
    };
    span.writes[0] = Some((rows, state));
    let mut record = Record::default();
    record.clear();
    let rows = vec![Row::default(); rows as usize];
    record.set(RowSet::All, &rows, [&[]; 2]);
    record.spans(&[span]);
    record
}

#[test]
fn bandwidth_is_the_bytes_read_in_the_time_that_the_clock_says() {
    let Some(device) = device() else { return };
    let device = device.reopen().expect("the device of before");
    let device = device.with_binding_bytes_max(1 << 20);
    let seconds = Cell::new(0);
    let now = || {
        seconds.set(seconds.get() + 1);
        Duration::from_secs(seconds.get())
    };
    let found = device.read_bandwidth(now).expect("a device that works");
    assert_eq!(found, 4.0 * f64::from(1 << 20));
}

#[test]
fn device_that_reorders_sums_has_one_kernel_for_few_rows() {
    let Some(device) = device() else { return };
    let program = matmul(Format::Q8_0, 1).program;
    assert_eq!(check_program(&device, &program), Ok(()));
    assert!(!device.reorders_sums(), "llvmpipe keeps the order of sums");
    device.reorder_sums();
    for rows in [1, 3, 11, 37] {
        assert_eq!(compare(&device, &matmul(Format::Q8_0, rows)), Ok(()));
    }
    let rows: [&[usize]; 3] = [&[0], &[3, 7], &[9, 8, 2]];
    check_bits_of_rows(&device, &matmul(Format::Q8_0, 11), &rows);
}
