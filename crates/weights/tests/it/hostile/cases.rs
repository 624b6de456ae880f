//! Hostile files: label, bytes, and expected error.

use super::raw::Raw;

/// Label (the file's name), bytes, part of the error's text. An empty text: the file is unusual, but valid.
pub(crate) type Case = (&'static str, Vec<u8>, &'static str);

const F32: u32 = 0;
const Q4_0: u32 = 2;
const STRING: u32 = 8;
const ARRAY: u32 = 9;

/// All cases.
pub(crate) fn all() -> Vec<Case> {
    [
        headers(),
        keys(),
        values(),
        arrays(),
        alignments(),
        names(),
        shapes(),
        offsets(),
        overlaps(),
        splits(),
    ]
    .concat()
}

fn case(label: &'static str, raw: Raw, expected: &'static str) -> Case {
    (label, raw.0, expected)
}

fn headers() -> Vec<Case> {
    let raw = |bytes: &[u8]| Raw(bytes.to_vec());
    vec![
        case(
            "empty",
            raw(b""),
            "truncated at byte 0: magic needs 4 bytes, 0 are left",
        ),
        case(
            "zip",
            raw(b"PK\x03\x04 a zip"),
            "begins with \"PK\\x03\\x04\" instead of \"GGUF\"",
        ),
        case(
            "version-1",
            Raw::versioned(1, 0, 0),
            "version 1 is not read, only 2 and 3 (version 1",
        ),
        case(
            "version-99",
            Raw::versioned(99, 0, 0),
            "version 99 is not read",
        ),
        case(
            "big-endian",
            Raw::versioned(3 << 24, 0, 0),
            "big-endian GGUF (version 3)",
        ),
        case(
            "half-a-count",
            raw(b"GGUF\x03\0\0\0\0\0\0"),
            "truncated at byte 8: tensor count",
        ),
        case(
            "tensors-2-to-the-64",
            Raw::new(u64::MAX, 0),
            "tensor count at byte 8 is 1844674407",
        ),
        case(
            "entries-2-to-the-63",
            Raw::new(0, 1 << 63),
            "metadata count at byte 16 is 9223372036",
        ),
        case(
            "tensors-without-room",
            Raw::new(3, 1)
                .key("k", ARRAY)
                .u32(0)
                .u64(100)
                .bytes(&[0; 100]),
            "tensor count before the infos at byte",
        ),
        case(
            "version-2-is-read",
            Raw::versioned(2, 0, 1).entry("k", 1),
            "",
        ),
    ]
}

/// A header with one metadata entry.
fn one() -> Raw {
    Raw::new(0, 1)
}

fn keys() -> Vec<Case> {
    vec![
        case(
            "key-2-to-the-64",
            one().u64(u64::MAX).data(9),
            "metadata key at byte 24 is 18446744",
        ),
        case(
            "key-65536",
            one().text(&[b'k'; 65_536]).u32(4).u32(1),
            "at most 65535 is possible",
        ),
        case(
            "key-empty",
            one().entry("", 1),
            "metadata key at byte 24: is empty",
        ),
        case(
            "key-not-utf8",
            one().text(b"\xff\xfe").u32(4).u32(1),
            "is not UTF-8",
        ),
        case(
            "key-twice",
            Raw::new(0, 2).entry("k", 1).entry("k", 2),
            "`k` stands a second time",
        ),
    ]
}

fn values() -> Vec<Case> {
    vec![
        case(
            "type-13",
            one().key("k", 13).u64(0),
            "metadata type at byte 33: 13 is no type",
        ),
        case(
            "string-too-long",
            one().key("k", STRING).u64(1 << 40),
            "metadata string needs 10995",
        ),
        case(
            "bool-2",
            one().key("k", 7).bytes(&[2]),
            "metadata bool at byte 37: 2 is neither",
        ),
    ]
}

fn arrays() -> Vec<Case> {
    let array = |kind: u32, len: u64| one().key("k", ARRAY).u32(kind).u64(len);
    let nest = |depth: u32| (1..depth).fold(one().key("k", ARRAY), |raw, _| raw.u32(ARRAY).u64(1));
    vec![
        case(
            "array-of-nothing",
            array(77, 1).u64(0),
            "array element type at byte 37: 77",
        ),
        case(
            "array-times-8",
            array(10, 1 << 61).u64(0),
            "array length at byte 41 is 23058430092",
        ),
        case(
            "array-too-long",
            array(0, 9).u64(0),
            "array length at byte 41 is 9, at most 8",
        ),
        case(
            "array-string-long",
            array(STRING, 1).u64(u64::MAX),
            "truncated at byte 57",
        ),
        case(
            "array-bool-3",
            array(7, 2).bytes(&[1, 3]),
            "3 is neither 0 nor 1",
        ),
        case("arrays-in-4", nest(4).u32(0).u64(2).bytes(b"ab"), ""),
        case(
            "arrays-in-5",
            nest(5).u32(0).u64(2).bytes(b"ab"),
            "array nesting at byte",
        ),
        case(
            "arrays-in-1000",
            nest(1000).u32(0).u64(0),
            "array nesting at byte",
        ),
        case(
            "string-not-utf8",
            one().key("k", STRING).text(b"\xff\x00"),
            "",
        ),
    ]
}

fn alignments() -> Vec<Case> {
    let with = |value: u32| Raw::new(0, 1).entry("general.alignment", value);
    let key = |kind: u32| Raw::new(0, 1).key("general.alignment", kind);
    vec![
        case(
            "alignment-0",
            with(0),
            "general.alignment at byte 53: 0 is not a power of two",
        ),
        case("alignment-48", with(48), "48 is not a power of two"),
        case(
            "alignment-2-to-the-31",
            with(1 << 31),
            "is 2147483648, at most 1048576",
        ),
        case(
            "alignment-negative",
            key(5).u32(u32::MAX),
            "-1 is not a power of two",
        ),
        case(
            "alignment-text",
            key(STRING).text(b"32"),
            "expected u32, found string",
        ),
    ]
}

/// A file with one tensor and enough data.
fn tensor(name: &[u8], dims: &[u64], kind: u32) -> Raw {
    Raw::new(1, 0).tensor(name, dims, kind, 0).data(4096)
}

fn names() -> Vec<Case> {
    let named = |name: &[u8]| tensor(name, &[8], F32);
    let two = Raw::new(2, 0)
        .tensor(b"t", &[8], F32, 0)
        .tensor(b"t", &[8], F32, 32);
    vec![
        case(
            "name-256",
            named(&[b'n'; 256]),
            "tensor name at byte 24 is 256, at most 255",
        ),
        case(
            "name-2-to-the-64",
            Raw::new(1, 0).u64(u64::MAX).data(64),
            "tensor name at byte 24",
        ),
        case("name-empty", named(b""), "tensor name at byte 24: is empty"),
        case(
            "name-not-utf8",
            named(b"\x80"),
            "tensor name at byte 24: is not UTF-8",
        ),
        case(
            "name-twice",
            two.data(64),
            "tensor `t` stands a second time at byte 57",
        ),
    ]
}

fn shapes() -> Vec<Case> {
    let shaped = |dims: &[u64]| tensor(b"t", dims, F32);
    vec![
        case(
            "dims-0",
            shaped(&[]),
            "dimension count at byte 33: 0 is not within 1 to 4",
        ),
        case("dims-5", shaped(&[1; 5]), "5 is not within 1 to 4"),
        case(
            "dims-2-to-the-32",
            Raw::new(1, 0).text(b"t").u32(u32::MAX).data(64),
            "4294967295 is",
        ),
        case(
            "dim-0",
            shaped(&[8, 0]),
            "shape [8, 0, 1, 1] has no weights",
        ),
        case(
            "dims-overflow",
            shaped(&[1 << 40, 1 << 40]),
            "has more than 2^63 weights",
        ),
        case(
            "bytes-overflow",
            shaped(&[1 << 62]),
            "has more than 2^63 weights",
        ),
        case(
            "dims-wrap-to-8",
            shaped(&[1 << 32, 1 << 32, 8]),
            "has more than 2^63 weights",
        ),
        case(
            "row-33-of-q4-0",
            tensor(b"t", &[33, 2], Q4_0),
            "rows of 33 weights are no whole number",
        ),
        case("kind-unknown", tensor(b"t", &[33], 99), ""),
    ]
}

fn offsets() -> Vec<Case> {
    let at = |offset: u64| Raw::new(1, 0).tensor(b"t", &[8], F32, offset).data(64);
    vec![
        case(
            "offset-odd",
            at(5),
            "offset 5 is not a multiple of the alignment 32",
        ),
        case(
            "offset-beyond",
            at(4096),
            "offset 4096 lies beyond the end of the file",
        ),
        case(
            "offset-2-to-the-64",
            at(u64::MAX - 31),
            "lies beyond the end of the file",
        ),
        case(
            "data-cut",
            Raw::new(1, 0).tensor(b"t", &[64], F32, 0).data(255),
            "needs 256 bytes",
        ),
        case(
            "no-data",
            Raw::new(1, 0).tensor(b"t", &[8], F32, 0),
            "beyond the end of the file",
        ),
    ]
}

fn overlaps() -> Vec<Case> {
    let two = |first: (u32, u64), second: (u32, u64)| {
        Raw::new(2, 0)
            .tensor(b"a", &[32], first.0, first.1)
            .tensor(b"b", &[32], second.0, second.1)
            .data(256)
    };
    vec![
        case(
            "overlap",
            two((F32, 0), (F32, 96)),
            "`b` begins at byte 192, inside tensor `a`",
        ),
        case("overlap-same", two((F32, 0), (F32, 0)), "inside tensor `a`"),
        case(
            "overlap-turned",
            two((F32, 96), (F32, 0)),
            "`a` begins at byte 192, inside",
        ),
        case(
            "overlap-unknown",
            two((99, 0), (98, 0)),
            "inside tensor `a`",
        ),
        case("kinds-unknown", two((99, 0), (98, 32)), ""),
    ]
}

fn splits() -> Vec<Case> {
    vec![
        case(
            "part-of-two",
            Raw::new(0, 2).entry("split.no", 0).entry("split.count", 2),
            "split file: bytes are part 1 of 2",
        ),
        case(
            "parts-beyond-1024",
            Raw::new(0, 2)
                .entry("split.no", 0)
                .entry("split.count", 65_535),
            "`split.count` is 65535, at most 1024",
        ),
    ]
}
