//! Packed matrices that were written by one load and are read by the next.

use crate::support::saved::Saved;
use crate::support::{bytes, ids, logits, options, pages};
use cpu::{EncoderModel, Model};
use kernels::{Isa, Pool};
use model::{Batch, Forward, Want};
use std::io::{self, Cursor, Seek, SeekFrom, Write};
use synth::EncoderSpec;
use testing::folder::Folder;
use weights::encoder::EncoderKind;
use weights::gguf::Gguf;
use weights::packed_file::{
    CHUNK_BYTES, HEADER_BYTES, PackedFile, PackedFileError, PackedKey, PackedReading,
    packed_file_bytes, write_packed,
};
use weights::safetensors::{Quantize, Safetensors};
use weights::{ModelFiles, PackedSections};

pub(crate) const KEY: PackedKey = PackedKey([7; 32]);

fn gguf(bytes: &[u8]) -> ModelFiles {
    Gguf::from_bytes(bytes.to_vec()).unwrap().into()
}

fn load(files: ModelFiles, isa: Isa, sections: &mut PackedSections) -> Model {
    let parts = (isa, Pool::new(2));
    Model::load_with(files, parts, &options(None), sections, &mut |_| {}).unwrap()
}

fn said(model: &mut Model) -> Vec<Vec<f32>> {
    let vocab = model.dims().vocab;
    logits(model, &ids(3, 40, vocab), 0)
}

/// The bytes of a packed file of a model.
pub(crate) fn packed(files: ModelFiles) -> Vec<u8> {
    let mut sections = PackedSections::new(None, true);
    load(files, Isa::detect(), &mut sections);
    written(sections)
}

fn written(sections: PackedSections) -> Vec<u8> {
    let kept = sections.into_kept();
    let mut out = Cursor::new(Vec::new());
    let length = write_packed(&mut out, &KEY, &kept).unwrap();
    let bytes = out.into_inner();
    assert_eq!(length, bytes.len() as u64);
    assert!(length <= packed_file_bytes(&kept));
    bytes
}

fn open(bytes: Vec<u8>) -> Result<PackedFile, PackedFileError> {
    PackedFile::from_source(bytes, &KEY, PackedReading::Copy)
}

/// Loads with a packed file: the logits are those of a load without, and all matrices come from the file.
#[track_caller]
fn check(label: &str, files: impl Fn() -> ModelFiles) {
    let file = packed(files());
    let count = open(file.clone()).unwrap().sections();
    for isa in Isa::available().filter(|isa| isa.is_batch_invariant()) {
        let plain = said(&mut load(files(), isa, &mut PackedSections::none()));
        let mut sections = PackedSections::new(Some(open(file.clone()).unwrap()), false);
        let mut model = load(files(), isa, &mut sections);
        assert!(sections.are_read(), "{label}: {} packed", sections.packed());
        assert_eq!(sections.read(), count, "{label}");
        assert!(said(&mut model) == plain, "{label} {isa}: other logits");
    }
}

#[test]
fn second_load_has_the_bits_of_the_first_for_every_kind_of_tensor() {
    for preset in [
        "tiny-llama",
        "tiny-phi3",
        "tiny-qwen3moe",
        "tiny-deepseek2",
        "tiny-qwen35",
        "tiny-gemma3n",
        "tiny-mamba2",
        "tiny-falcon-h1",
    ] {
        let bytes = bytes(&format!("x preset={preset}"));
        check(preset, || gguf(&bytes));
    }
    for line in [
        "x preset=tiny-llama mix=F32",
        "x preset=tiny-llama mix=F16",
        "x preset=tiny-llama mix=Q4_0",
        "x preset=small-llama mix=Q4_K",
        "x preset=small-llama mix=Q6_K",
    ] {
        let bytes = bytes(line);
        check(line, || gguf(&bytes));
    }
}

#[test]
fn quantized_safetensors_come_from_the_file() {
    let saved = Saved::of("x preset=tiny-llama mix=BF16", 2);
    for quantize in [None, Some(Quantize::Q8_0), Some(Quantize::Q4_K)] {
        check("safetensors", || {
            let files = Safetensors::open(&saved.folder, quantize);
            files.unwrap_or_else(|why| panic!("{why}")).into()
        });
    }
}

#[test]
fn encoders_come_from_the_file() {
    for preset in ["tiny-bert", "tiny-nomic-bert", "tiny-nomic-bert-moe"] {
        let bytes = EncoderSpec::preset(preset).unwrap().to_bytes().unwrap();
        let load = |sections: &mut PackedSections| {
            let gguf = Gguf::from_bytes(bytes.clone()).unwrap();
            let kind = EncoderKind::of(&gguf).unwrap();
            let (parts, options) = ((Isa::detect(), Pool::new(2)), options(None));
            let model = EncoderModel::load_with(gguf, kind, parts, &options, sections, &mut |_| {});
            let mut model = model.unwrap();
            let ids: Vec<u32> = (5..25).collect();
            let mut batch = Batch::default();
            batch.push(&ids, 0, &pages(0, ids.len()), Want::AllHidden);
            model.forward(&batch).unwrap();
            model.hidden().to_vec()
        };
        let mut sections = PackedSections::new(None, true);
        let plain = load(&mut sections);
        let file = open(written(sections)).unwrap();
        let mut sections = PackedSections::new(Some(file), false);
        assert!(load(&mut sections) == plain, "{preset}");
        assert!(sections.are_read(), "{preset}");
    }
}

#[test]
fn mapped_file_serves_without_a_copy() {
    let bytes = bytes("x preset=tiny-llama mix=Q8_0");
    let plain = said(&mut load(
        gguf(&bytes),
        Isa::detect(),
        &mut PackedSections::none(),
    ));
    let folder = Folder::new("packed-map");
    let path = folder.0.join("a.packed");
    std::fs::write(&path, packed(gguf(&bytes))).unwrap();
    for reading in [PackedReading::Copy, PackedReading::Map] {
        let file = PackedFile::open(&std::fs::File::open(&path).unwrap(), &KEY, reading).unwrap();
        let mut sections = PackedSections::new(Some(file), true);
        let mut model = load(gguf(&bytes), Isa::detect(), &mut sections);
        assert!(sections.are_read());
        // The file may lose its name while it is used.
        if reading == PackedReading::Map {
            std::fs::remove_file(&path).unwrap();
        }
        assert!(said(&mut model) == plain, "{reading:?}");
        assert_eq!(written(sections).len(), packed(gguf(&bytes)).len());
    }
}

#[test]
fn damaged_section_is_packed_again() {
    let bytes = bytes("x preset=tiny-llama mix=Q8_0");
    let plain = said(&mut load(
        gguf(&bytes),
        Isa::detect(),
        &mut PackedSections::none(),
    ));
    let file = packed(gguf(&bytes));
    let count = open(file.clone()).unwrap().sections();
    let mut damaged = file.clone();
    damaged[HEADER_BYTES + 100] ^= 1;
    for reading in [PackedReading::Copy, PackedReading::Map] {
        let file = PackedFile::from_source(damaged.clone(), &KEY, reading).unwrap();
        let mut sections = PackedSections::new(Some(file), true);
        let mut model = load(gguf(&bytes), Isa::detect(), &mut sections);
        assert_eq!((sections.read(), sections.packed()), (count - 1, 1));
        assert!(!sections.are_read());
        assert!(said(&mut model) == plain);
        // The handles of all sections, also of those that were read, make a whole file again.
        assert!(written(sections) == packed(gguf(&bytes)));
    }
}

#[test]
fn file_of_another_model_serves_nothing_that_differs() {
    let small = bytes("x preset=tiny-llama mix=Q8_0");
    let other = bytes("x preset=tiny-llama mix=Q4_0");
    let plain = said(&mut load(
        gguf(&small),
        Isa::detect(),
        &mut PackedSections::none(),
    ));
    // The key is the caller's; shapes and formats are compared all the same.
    let file = open(packed(gguf(&other))).unwrap();
    let mut sections = PackedSections::new(Some(file), false);
    let mut model = load(gguf(&small), Isa::detect(), &mut sections);
    assert_eq!(sections.read(), 0);
    assert!(said(&mut model) == plain);
}

#[test]
fn file_that_is_not_whole_is_refused() {
    let file = packed(gguf(&bytes("x preset=tiny-llama mix=Q8_0")));
    let error = |bytes: &[u8]| open(bytes.to_vec()).err().unwrap();
    for length in [0, 1, 8, HEADER_BYTES - 1] {
        assert_eq!(
            error(&file[..length]),
            PackedFileError::NotPacked,
            "{length}"
        );
    }
    for length in [HEADER_BYTES, file.len() / 2, file.len() - 1] {
        let found = length as u64;
        let wanted = file.len() as u64;
        assert_eq!(
            error(&file[..length]),
            PackedFileError::Length { wanted, found }
        );
    }
    let mut longer = file.clone();
    longer.push(0);
    assert!(matches!(error(&longer), PackedFileError::Length { .. }));
    let key = PackedKey([8; 32]);
    let other = PackedFile::from_source(file.clone(), &key, PackedReading::Copy);
    assert_eq!(other.err(), Some(PackedFileError::OtherKey));
    // The version, before anything else of an unknown header is read.
    let mut newer = file.clone();
    newer[8] += 1;
    assert_eq!(error(&newer), PackedFileError::Version(2));
    // A torn write: all but the header.
    let mut torn = file.clone();
    torn[..HEADER_BYTES].fill(0);
    assert_eq!(error(&torn), PackedFileError::NotPacked);
    for at in (12..80).chain([80, HEADER_BYTES - 1, file.len() - 1, file.len() - 40]) {
        let mut flipped = file.clone();
        flipped[at] ^= 0x10;
        assert!(
            matches!(error(&flipped), PackedFileError::Damaged(_)),
            "byte {at}"
        );
    }
}

/// A writer that has room for some bytes.
struct Full {
    written: Cursor<Vec<u8>>,
    room: u64,
}

impl Write for Full {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.written.position() + bytes.len() as u64 > self.room {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.written.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for Full {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.written.seek(to)
    }
}

#[test]
fn full_disk_is_an_error_and_leaves_no_file_that_opens() {
    let mut sections = PackedSections::new(None, true);
    let model = gguf(&bytes("x preset=tiny-llama mix=Q8_0"));
    load(model, Isa::detect(), &mut sections);
    let kept = sections.into_kept();
    let mut whole = Cursor::new(Vec::new());
    let length = write_packed(&mut whole, &KEY, &kept).unwrap();
    for room in [0, 100, HEADER_BYTES as u64, length / 2, length - 1] {
        let written = Cursor::new(Vec::new());
        let mut out = Full { written, room };
        let why = write_packed(&mut out, &KEY, &kept).unwrap_err();
        assert_eq!(why.kind(), io::ErrorKind::StorageFull, "room {room}");
        assert!(open(out.written.into_inner()).is_err());
    }
    assert!(CHUNK_BYTES.is_multiple_of(HEADER_BYTES));
}
