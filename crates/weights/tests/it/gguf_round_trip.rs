//! Round trips: values of every type, tensors, split files; and lookups of the wrong type.

use std::path::{Path, PathBuf};
use weights::gguf::{
    Array, Gguf, GgufError, GgufWriter, TensorKind, TensorPlan, Text, Value, WriteError,
};

const F32: TensorKind = TensorKind::from_id(0);
const Q4_0: TensorKind = TensorKind::from_id(2);

fn plan(name: &str, dims: &[u64], kind: TensorKind) -> TensorPlan {
    TensorPlan {
        name: name.to_owned(),
        dims: dims.to_vec(),
        kind,
    }
}

/// The written file; each tensor is filled with its own byte, from 1.
fn written(writer: &GgufWriter) -> Vec<u8> {
    let (mut out, mut fill) = (Vec::new(), 0);
    let bytes = writer.write(&mut out, |plan, sink| {
        fill += 1;
        sink.write_all(&vec![fill; plan.bytes().unwrap() as usize])
    });
    assert_eq!(bytes.unwrap(), out.len() as u64);
    out
}

/// A file in a folder of this test.
fn folder(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

#[test]
fn values_of_all_types_round_trip() {
    let values = [
        Value::U8(u8::MAX),
        Value::I8(i8::MIN),
        Value::U16(u16::MAX),
        Value::I16(i16::MIN),
        Value::U32(u32::MAX),
        Value::I32(i32::MIN),
        Value::F32(1.5),
        Value::Bool(true),
        Value::U64(u64::MAX),
        Value::I64(i64::MIN),
        Value::F64(-2.5),
    ];
    let mut writer = GgufWriter::new();
    for value in values {
        writer.value(&format!("a.{}", value.kind()), value);
    }
    writer
        .str("a.text", "Ġ and \0")
        .strings("a.texts", &[b"one".as_slice(), b"\xff\xfe", b""])
        .i32s("a.ints", &[-1, 2])
        .f32s("a.floats", &[0.5]);
    let first = Gguf::from_bytes(written(&writer)).unwrap();
    // A second copy from the values that were read.
    let mut copy = GgufWriter::new();
    for (key, value) in first.metadata() {
        copy.value(key, value);
    }
    let gguf = Gguf::from_bytes(written(&copy)).unwrap();
    assert_eq!(gguf.metadata_len(), values.len() + 4);
    for (value, (key, read)) in values.iter().zip(gguf.metadata()) {
        assert_eq!(format!("{value:?}"), format!("{read:?}"), "{key}");
    }
    assert_eq!(gguf.need::<&str>("a.text").unwrap(), "Ġ and \0");
    let texts: Vec<&[u8]> = gguf
        .array::<Text<'_>>("a.texts")
        .unwrap()
        .map(Text::as_bytes)
        .collect();
    assert_eq!(texts, [b"one".as_slice(), b"\xff\xfe", b""]);
    assert_eq!(
        gguf.array::<i64>("a.ints").unwrap().collect::<Vec<_>>(),
        [-1, 2]
    );
    assert_eq!(
        gguf.array::<f64>("a.floats").unwrap().collect::<Vec<_>>(),
        [0.5]
    );
}

/// The error's text.
fn no<T>(answer: Result<T, GgufError>) -> String {
    answer.map(|_| ()).unwrap_err().to_string()
}

#[test]
fn lookups_of_the_wrong_type_fail() {
    let mut writer = GgufWriter::new();
    writer
        .value("small", Value::U8(7))
        .value("large", Value::U64(1 << 40))
        .value("negative", Value::I32(-1))
        .value("huge", Value::F64(1e300))
        .str("text", "x")
        .f32("float", 1.0)
        .i32s("ints", &[1, -1]);
    writer.strings("broken", &[b"\xff"]);
    let gguf = Gguf::from_bytes(written(&writer)).unwrap();
    #[rustfmt::skip] // a table
    let rows = [
        ("missing", no(gguf.need::<u32>("none")), "key `none` is missing"),
        ("type", no(gguf.need::<u32>("text")), "key `text`: expected u32, found string"),
        ("float", no(gguf.need::<u32>("float")), "`float`: expected u32, found f32"),
        ("int", no(gguf.need::<f32>("small")), "`small`: expected f32, found u8"),
        ("range", no(gguf.need::<u32>("large")), "`large`: 1099511627776 does not fit u32"),
        ("sign", no(gguf.need::<usize>("negative")), "`negative`: -1 does not fit usize"),
        ("inf", no(gguf.need::<f32>("huge")), "does not fit f32"),
        ("no array", no(gguf.array::<u32>("text")), "expected array, found string"),
        ("element", no(gguf.array::<u32>("ints")), "-1 does not fit u32"),
        ("elements", no(gguf.array::<f32>("ints")), "expected f32, found array of i32"),
        ("bytes", no(gguf.array::<&str>("broken")), "the string is not UTF-8"),
        ("tensor", no(gguf.need_tensor("t")), "tensor `t` is missing"),
    ];
    for (label, error, expected) in rows {
        assert!(error.contains(expected), "{label}: {error}");
    }
    assert_eq!(gguf.need::<u64>("small").unwrap(), 7);
    assert_eq!(gguf.need::<u64>("large").unwrap(), 1 << 40);
    assert_eq!(gguf.find::<bool>("none").unwrap(), None);
    assert_eq!(
        gguf.find::<Array<'_>>("ints")
            .unwrap()
            .map(|array| array.len()),
        Some(2)
    );
}

#[test]
fn tensors_are_at_expected_offsets() {
    let mut writer = GgufWriter::new();
    writer
        .tensor(plan("odd", &[3], F32))
        .tensor(plan("blocks", &[64, 3], Q4_0))
        .tensor(plan("deep", &[2, 3, 4, 5], F32));
    let bytes = written(&writer);
    for cut in [bytes.len(), bytes.len() - 1] {
        let outcome = Gguf::from_bytes(bytes[..cut].to_vec());
        assert_eq!(outcome.is_ok(), cut == bytes.len(), "cut at {cut}");
    }
    let gguf = Gguf::from_bytes(bytes).unwrap();
    let rows = [
        ("odd", 12, 3, 1),
        ("blocks", 6 * 18, 64, 3),
        ("deep", 480, 2, 60),
    ];
    for (fill, (name, len, cols, count)) in (1_u8..).zip(rows) {
        let tensor = gguf.tensor(name).unwrap();
        assert_eq!(tensor.bytes, vec![fill; len], "{name}");
        assert_eq!(tensor.offset % gguf.alignment(), 0, "{name}");
        assert_eq!((tensor.cols(), tensor.rows()), (cols, count), "{name}");
    }
    assert_eq!(
        gguf.tensors().map(|t| t.name).collect::<Vec<_>>(),
        ["odd", "blocks", "deep"]
    );
}

#[test]
fn unsupported_kind_is_rejected_on_use() {
    let mut writer = GgufWriter::new();
    writer.tensor(plan("t", &[256], TensorKind::from_id(19)));
    let gguf = Gguf::from_bytes(written(&writer)).unwrap();
    let error = gguf.need_tensor("t").unwrap().format().unwrap_err();
    assert_eq!(
        error.to_string(),
        "tensor `t` is stored as IQ1_S, which is not supported"
    );
}

#[test]
fn writer_rejects_invalid_files() {
    let write = |writer: &GgufWriter, bytes: usize| {
        writer
            .write(&mut Vec::new(), |_, sink| sink.write_all(&vec![0; bytes]))
            .unwrap_err()
    };
    let one = |dims: &[u64], kind| {
        let mut writer = GgufWriter::new();
        writer.tensor(plan("t", dims, kind));
        writer
    };
    let mut keys = GgufWriter::new();
    keys.u32("k", 1).u32("k", 2);
    let mut names = one(&[8], F32);
    names.tensor(plan("t", &[8], F32));
    let rows = [
        ("key", write(&keys, 0), "key `k` was put twice"),
        ("name", write(&names, 0), "tensor `t` was put twice"),
        (
            "blocks",
            write(&one(&[33], Q4_0), 0),
            "rows of 33 are no whole Q4_0 blocks",
        ),
        ("dims", write(&one(&[], F32), 0), "shape [] is none"),
        (
            "kind",
            write(&one(&[1], TensorKind::from_id(99)), 0),
            "ggml type 99 has no known size",
        ),
        (
            "few",
            write(&one(&[8], F32), 31),
            "needs 32 bytes, was given 31",
        ),
        (
            "many",
            write(&one(&[8], F32), 33),
            "needs 32 bytes, was given 33",
        ),
    ];
    for (label, error, expected) in rows {
        assert!(error.to_string().contains(expected), "{label}: {error}");
    }
}

#[test]
fn sink_errors_are_returned() {
    let mut writer = GgufWriter::new();
    writer.tensor(plan("t", &[8], F32));
    let error = writer
        .write(&mut Vec::new(), |_, _| Err(std::io::Error::other("full")))
        .unwrap_err();
    assert!(matches!(error, WriteError::Io(_)), "{error}");
}

/// Part `number` of `count`, with one tensor, in `folder`.
fn part(folder: &Path, number: u16, says: (u16, u16, i32), tensor: &str) -> PathBuf {
    let mut writer = GgufWriter::new();
    writer
        .value("split.no", Value::U16(says.0))
        .value("split.count", Value::U16(says.1))
        .value("split.tensors.count", Value::I32(says.2))
        .u32("from", number.into())
        .tensor(plan(tensor, &[8], F32));
    let path = folder.join(format!("m-{:05}-of-00003.gguf", number + 1));
    std::fs::write(&path, written(&writer)).unwrap();
    path
}

fn three_parts(folder: &Path) -> Vec<PathBuf> {
    (0..3)
        .map(|number| part(folder, number, (number, 3, 3), &format!("t{number}")))
        .collect()
}

#[test]
fn any_part_opens_the_split_model() {
    for path in three_parts(&folder("split")) {
        let gguf = Gguf::open(&path).unwrap();
        assert_eq!(
            (gguf.parts(), gguf.tensors_len()),
            (3, 3),
            "{}",
            path.display()
        );
        assert_eq!(
            gguf.need::<u32>("from").unwrap(),
            0,
            "metadata is the first part's"
        );
        for number in 0..3 {
            let tensor = gguf.tensor(&format!("t{number}")).unwrap();
            assert_eq!((tensor.part, tensor.bytes), (number, [1; 32].as_slice()));
            gguf.release(&tensor);
            assert_eq!(tensor.bytes, [1; 32], "released pages come back");
        }
        gguf.advise_sequential();
        gguf.release_pages();
        assert!(gguf.tensors().all(|tensor| tensor.bytes == [1; 32]));
    }
}

#[test]
fn mismatched_parts_are_rejected() {
    type Damage = fn(&Path);
    let rows: [(&str, Damage, &str); 7] = [
        (
            "missing",
            |f| std::fs::remove_file(f.join("m-00002-of-00003.gguf")).unwrap(),
            "m-00002-of",
        ),
        (
            "number",
            |f| _ = part(f, 1, (2, 3, 3), "t1"),
            "says it is part 3 of 3",
        ),
        (
            "count",
            |f| _ = part(f, 1, (1, 4, 3), "t1"),
            "says it is part 2 of 4",
        ),
        (
            "total",
            |f| _ = part(f, 1, (1, 3, 9), "t1"),
            "(tensors in all: 9)",
        ),
        (
            "whole",
            |f| _ = part(f, 1, (0, 1, 1), "t1"),
            "is a whole model",
        ),
        (
            "twice",
            |f| _ = part(f, 2, (2, 3, 3), "t0"),
            "00003-of-00003.gguf: tensor `t0` stands a",
        ),
        (
            "cut",
            |f| std::fs::write(f.join("m-00003-of-00003.gguf"), b"GG").unwrap(),
            "truncated",
        ),
    ];
    for (label, damage, expected) in rows {
        let folder = folder(&format!("split-{label}"));
        let paths = three_parts(&folder);
        damage(&folder);
        let error = Gguf::open(&paths[0]).unwrap_err().to_string();
        assert!(error.contains(expected), "{label}: {error}");
    }
}

#[test]
fn wrong_tensor_counts_in_all_parts_are_rejected() {
    let folder = folder("split-promise");
    for number in 0..3 {
        part(&folder, number, (number, 3, 4), &format!("t{number}"));
    }
    let error = Gguf::open(folder.join("m-00001-of-00003.gguf"))
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("`split.tensors.count` is 4, the parts have 3"),
        "{error}"
    );
}

#[test]
fn paths_that_are_not_files_are_rejected() {
    let folder = folder("paths");
    let rows = [
        ("folder", folder.clone(), "not a regular file"),
        ("none", folder.join("x"), "open"),
    ];
    for (label, path, expected) in rows {
        let error = Gguf::open(&path).unwrap_err().to_string();
        assert!(
            error.contains(expected) && error.contains(path.to_str().unwrap()),
            "{label}: {error}"
        );
    }
}
