//! Described weights: the same tensors, shapes, bytes and errors as packed ones.
//!
//! Promise (Models): what a load that packs refuses, a description of the model refuses with the same message, and a described
//! matrix has the bytes that are packed, over all architectures.

use crate::experts::{one_by_one, rewritten};
use crate::support::bytes;
use crate::support::saved::Saved;
use kernels::{Isa, MatrixStack, Pool};
use weights::gguf::Gguf;
use weights::parameters::{
    Described, DescribedMatrix, DescribedReader, Parameter, Stored, Weights,
};
use weights::safetensors::{Quantize, Safetensors};
use weights::{Architecture, LoadError, ModelFiles, PackedSections};

fn packed(files: &ModelFiles, pool: &mut Pool) -> Result<Weights, LoadError> {
    let (config, sections) = (files.config(None)?, &mut PackedSections::none());
    Weights::load(files, &config, Isa::detect(), pool, sections, &mut |_| {})
}

fn described(files: &ModelFiles, pool: &mut Pool) -> Result<Weights<Described>, LoadError> {
    Weights::describe(files, &files.config(None)?, pool)
}

/// The bytes that a reader gives, packed as those of a stack.
fn repacked(reader: &mut DescribedReader<'_>, matrix: &DescribedMatrix) -> MatrixStack {
    let mut bytes = Vec::new();
    let read = reader.read(matrix, |rows| {
        assert!(rows.len().is_multiple_of(matrix.row_bytes()), "whole rows");
        bytes.extend_from_slice(rows);
        Ok::<_, LoadError>(())
    });
    read.unwrap();
    assert_eq!(bytes.len(), matrix.bytes());
    let (isa, mut pool) = (Isa::detect(), Pool::new(1));
    let (count, rows, cols) = (matrix.count, matrix.rows, matrix.cols);
    let mut stack = MatrixStack::new(isa, matrix.format, count, rows, cols).unwrap();
    let each = bytes.chunks_exact(rows * matrix.row_bytes());
    for (index, bytes) in each.enumerate() {
        stack.pack(&mut pool, index, bytes).unwrap();
    }
    stack
}

#[track_caller]
fn check_contents(label: &str, files: impl Into<ModelFiles>) {
    let (files, mut pool) = (files.into(), Pool::new(2));
    let packed = packed(&files, &mut pool).unwrap_or_else(|why| panic!("{label}: {why}"));
    let described = described(&files, &mut pool).unwrap_or_else(|why| panic!("{label}: {why}"));
    assert_eq!(packed.vocab(), described.vocab(), "{label}");
    assert_eq!(packed.parts().count(), described.parts().count(), "{label}");
    let reader = &mut DescribedReader::new(&files, &mut pool);
    for (packed, described) in packed.parts().zip(described.parts()) {
        match (packed, described) {
            (Parameter::Matrix(matrix), Parameter::Matrix(found)) => {
                let repacked = repacked(reader, found);
                assert_eq!((matrix.rows(), matrix.cols()), (found.rows, found.cols));
                assert!(
                    matrix.packed()[..] == repacked.packed()[..],
                    "{label} {found:?}"
                );
            }
            (Parameter::Stack(stack), Parameter::Stack(found)) => {
                let repacked = repacked(reader, found);
                assert_eq!(stack.count(), found.count, "{label}");
                assert!(
                    stack.packed()[..] == repacked.packed()[..],
                    "{label} {found:?}"
                );
            }
            (Parameter::Table(table), Parameter::Table(found)) => {
                let mut bytes = Vec::new();
                let read = reader.read(found, |rows| {
                    bytes.extend_from_slice(rows);
                    Ok::<_, LoadError>(())
                });
                read.unwrap();
                assert!(bytes == table.bytes, "{label}");
            }
            _ => panic!("{label}: parts of two kinds"),
        }
    }
}

fn tiny(family: Architecture, mix: &str) -> Vec<u8> {
    let few = match family {
        Architecture::Gemma3n => " layers=2 shared_kv=0",
        _ => "",
    };
    bytes(&format!("x preset=tiny-{family} mix={mix}{few}"))
}

#[test]
fn described_bytes_are_those_that_are_packed() {
    for family in Architecture::all() {
        for mix in ["F32", "Q8_0"] {
            let gguf = Gguf::from_bytes(tiny(family, mix)).unwrap();
            check_contents(&format!("{family} {mix}"), gguf);
        }
    }
    for line in [
        "x preset=tiny-deepseek2 mix=Q8_0 joined=true",
        "x preset=tiny-qwen35-mtp mix=Q4_0",
        "x preset=tiny-gpt-oss mix=MXFP4_MOE",
        "x preset=tiny-gemma4-26b mix=BF16",
        "x preset=small-phi3 mix=Q4_K_M",
    ] {
        check_contents(line, Gguf::from_bytes(bytes(line)).unwrap());
    }
    let one_by_one = one_by_one(&bytes("x preset=tiny-mixtral mix=Q8_0"));
    check_contents("one by one", Gguf::from_bytes(one_by_one).unwrap());
}

#[test]
fn described_bytes_of_safetensors_are_those_that_are_packed() {
    for line in [
        "x preset=tiny-llama mix=F32",
        "x preset=tiny-phi3 mix=F16",
        "x preset=tiny-granitemoe mix=BF16 shared=0",
        "x preset=tiny-qwen3moe mix=F32",
    ] {
        let saved = Saved::of(line, 2);
        for quantize in [None, Some(Quantize::Q8_0)] {
            let files = Safetensors::open(&saved.folder, quantize).unwrap();
            check_contents(line, files);
        }
    }
}

/// Whether both refuse with one message; `None`: the file itself is refused, or nothing is.
#[track_caller]
fn check_refusals(label: &str, files: Option<ModelFiles>) -> Option<String> {
    let (files, mut pool) = (files?, Pool::new(1));
    let packed = packed(&files, &mut pool).err();
    let described = described(&files, &mut pool).err();
    assert_eq!(packed, described, "{label}");
    packed.map(|error| error.to_string())
}

/// The file with dimensions, type or content of one tensor changed.
fn changed(whole: &[u8], tensor: &str, change: &Change) -> Option<ModelFiles> {
    let named = [&(tensor.len() as u64).to_le_bytes(), tensor.as_bytes()].concat();
    let mut bytes = whole.to_vec();
    let at = bytes.windows(named.len()).position(|part| part == named)? + named.len();
    let dims = bytes[at] as usize;
    let kind = at + 4 + 8 * dims;
    match change {
        Change::Renamed => bytes[at - 1] = b'_',
        Change::Turned => bytes[at + 4..kind].rotate_left(8),
        Change::Kind(number) => bytes[kind] = *number,
        Change::NotFinite => {
            let gguf = Gguf::from_bytes(whole.to_vec()).ok()?;
            let found = gguf.tensor(tensor)?;
            let first = whole
                .windows(found.bytes.len())
                .position(|part| part == found.bytes)?;
            bytes[first..first + 4].copy_from_slice(&f32::NAN.to_le_bytes());
        }
    }
    Gguf::from_bytes(bytes).ok().map(ModelFiles::from)
}

/// How a tensor is changed.
#[derive(Debug)]
enum Change {
    Renamed,
    Turned,
    /// The number of a type that no wider than f32 is.
    Kind(u8),
    NotFinite,
}

#[test]
fn described_models_are_refused_as_packed_ones_are() {
    // F16, I8 and a number that no type has.
    let changes = [
        Change::Renamed,
        Change::Turned,
        Change::Kind(1),
        Change::Kind(24),
        Change::Kind(200),
        Change::NotFinite,
    ];
    for family in Architecture::all() {
        let whole = tiny(family, "F32");
        let gguf = Gguf::from_bytes(whole.clone()).unwrap();
        for change in &changes {
            let mut refused = 0;
            for tensor in gguf.tensors().filter(|tensor| of_few_layers(tensor.name)) {
                let label = format!("{family} {} {change:?}", tensor.name);
                let files = changed(&whole, tensor.name, change);
                refused += usize::from(check_refusals(&label, files).is_some());
            }
            let may_load = matches!(change, Change::Kind(1));
            assert!(may_load || refused > 0, "{family} {change:?}");
        }
    }
}

/// Tensors of layers are alike from the fourth layer on.
fn of_few_layers(name: &str) -> bool {
    let layer = name
        .strip_prefix("blk.")
        .and_then(|rest| rest.split('.').next());
    layer.is_none_or(|layer| layer.parse::<usize>().is_ok_and(|layer| layer < 3))
}

#[test]
fn described_experts_of_two_formats_are_refused() {
    let whole = one_by_one(&bytes("x preset=tiny-mixtral mix=F32"));
    let second = changed(&whole, "blk.0.ffn_up.1.weight", &Change::Kind(1));
    let said = check_refusals("two formats", second).expect("refused");
    assert!(
        said.contains("the format of the layer's first expert"),
        "{said}"
    );
    let more = rewritten(&whole, |name, dims, bytes| {
        let again = (name == "output_norm.weight").then(|| "more.weight".to_owned());
        let names = std::iter::once(name.to_owned()).chain(again);
        names
            .map(|name| (name, dims.to_vec(), bytes.to_vec()))
            .collect()
    });
    let more = Gguf::from_bytes(more).ok().map(ModelFiles::from);
    let said = check_refusals("unknown", more).expect("refused");
    assert!(said.contains("`more.weight`"), "{said}");
}
