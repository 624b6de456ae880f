//! Records as bytes, without files: the encoding between machines.

use journal::{
    Alternative, Alternatives, NotARecord, Open, RECORD_BYTES_MAX, Record, RecordAddress,
    RecordDecoder, TOKENS_PER_RECORD_MAX, Tokens, encode_record,
};
use proptest::prelude::*;
use testing::heap::take_thread_peak;

const ADDRESS: RecordAddress = RecordAddress {
    handle: 300,
    sequence: 70_000,
};

fn sample_records() -> Vec<Record<'static>> {
    let items = &[
        Alternative {
            id: 1,
            logprob: -0.5,
        },
        Alternative {
            id: 70_000,
            logprob: -9.0,
        },
    ];
    let alternatives = Alternatives {
        counts: &[2, 0, 0],
        items,
    };
    let mut records = vec![
        Record::Open(Open {
            id: u128::MAX - 1,
            version: 1,
            replaces: 9,
            body: b"{}",
        }),
        Record::Started {
            cached_tokens: 12,
            at_unix_us: 1 << 50,
        },
        Record::Tokens(Tokens {
            choice: 2,
            first: 1000,
            ids: &[1, 128, 151_935],
            ..Tokens::default()
        }),
        Record::Tokens(Tokens {
            choice: 0,
            first: 0,
            ids: &[5, 6, 7],
            logprobs: &[-0.1, -0.2, f32::NEG_INFINITY],
            alternatives,
        }),
    ];
    records.extend(sample_states());
    records
}

fn sample_states() -> Vec<Record<'static>> {
    vec![
        Record::Steered {
            sampling: b"{\"temperature\":0}",
        },
        Record::Paused { on: true },
        Record::Broke { choice: 3 },
        Record::Ended {
            choice: 3,
            end: 77,
            at_unix_us: 5,
        },
        Record::Claimed {
            generation: 2,
            instance: u64::MAX,
            attempt: 1,
            why: 4,
            tokens: 300,
        },
        Record::Prepared { body: b"[[1,2]]" },
        Record::Kept {
            outcome: b"{\"id\":\"resp_1\"}",
        },
        Record::Forgotten { why: 6, copy: 0 },
        Record::Forgotten { why: 0, copy: 300 },
        Record::Gap,
        Record::Seal,
        Record::Unknown {
            kind: 200,
            body: b"later",
        },
    ]
}

#[test]
fn each_kind_is_read_back() {
    let mut bytes = Vec::new();
    for record in sample_records() {
        encode_record(&mut bytes, ADDRESS, &record).unwrap();
    }
    let mut decoder = RecordDecoder::default();
    let mut rest = &bytes[..];
    for record in sample_records() {
        let decoded = decoder.decode_record(rest).unwrap();
        assert_eq!((decoded.address, decoded.record), (ADDRESS, record));
        rest = &rest[decoded.bytes..];
    }
    assert!(rest.is_empty());
}

/// The bytes of each kind: a change breaks journals and other machines.
///
/// Promise (Journal): the bytes of each record are stable.
#[test]
fn encoding_is_stable() {
    let expected = [
        "01 ac02 f0a204 14 fffffffffffffffffffffffffffffffe 01 09 7b7d",
        "02 ac02 f0a204 09 0c 8080808080808002",
        "03 ac02 f0a204 0b 00 02 e807 03 01 8001 ffa209",
        "03 ac02 f0a204 22 03 00 00 03 05 06 07 cdccccbd cdcc4cbe 000080ff 02 01 000000bf f0a204 000010c1 00 00",
        "04 ac02 f0a204 11 7b2274656d7065726174757265223a307d",
        "05 ac02 f0a204 01 01",
        "06 ac02 f0a204 01 03",
        "07 ac02 f0a204 03 03 4d 05",
        "08 ac02 f0a204 0f 02 ffffffffffffffffff01 01 04 ac02",
        "0d ac02 f0a204 07 5b5b312c325d5d",
        "09 ac02 f0a204 0f 7b226964223a22726573705f31227d",
        "0a ac02 f0a204 01 06",
        "0a ac02 f0a204 03 00 ac02",
        "0c ac02 f0a204 00",
        "0b ac02 f0a204 00",
        "c8 ac02 f0a204 05 6c61746572",
    ];
    for (record, expected) in sample_records().iter().zip(expected) {
        let mut bytes = Vec::new();
        encode_record(&mut bytes, ADDRESS, record).unwrap();
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, expected.replace(' ', ""), "{record:?}");
    }
}

#[test]
fn longer_bodies_have_longer_lengths() {
    for length in [0, 111, 112, 127, 128, 16_383, 16_384, 1 << 21] {
        let outcome = vec![7; length];
        let mut bytes = vec![1, 2, 3];
        let record = Record::Kept { outcome: &outcome };
        let size = encode_record(&mut bytes, ADDRESS, &record).unwrap();
        assert_eq!(bytes.len(), 3 + size);
        let mut decoder = RecordDecoder::default();
        assert_eq!(decoder.decode_record(&bytes[3..]).unwrap().record, record);
    }
}

#[test]
fn bytes_added_by_a_newer_version_are_skipped() {
    let bytes = [5, 1, 0, 3, 1, 99, 99];
    let decoded = RecordDecoder::default()
        .decode_record(&bytes)
        .map(|decoded| decoded.bytes);
    assert_eq!(decoded, Ok(7));
}

#[test]
fn record_cut_anywhere_is_rejected() {
    for record in sample_records() {
        let mut bytes = Vec::new();
        encode_record(&mut bytes, ADDRESS, &record).unwrap();
        for length in 0..bytes.len() {
            let mut decoder = RecordDecoder::default();
            let decoded = decoder.decode_record(&bytes[..length]);
            assert_eq!(decoded, Err(NotARecord), "{record:?} cut at {length}");
        }
    }
}

/// Promise (Journal): no length in a file causes an allocation beyond the bounds; rebuilt streams keep to their
/// memory.
/// Also held by `journal/tests/it/versions.rs :: memory_of_rebuilt_streams_is_bounded`.
#[test]
fn length_beyond_the_bytes_allocates_nothing() {
    // Kinds with a body of 4 GiB, of 16 MiB, and tokens that promise a billion ids.
    let cases: [&[u8]; 3] = [
        &[9, 1, 0, 0xff, 0xff, 0xff, 0xff, 0x0f],
        &[9, 1, 0, 0x80, 0x80, 0x80, 0x08, 1, 2],
        &[3, 1, 0, 8, 0, 0, 0, 0xff, 0xff, 0xff, 0x7f, 1],
    ];
    for bytes in cases {
        let mut decoder = RecordDecoder::default();
        take_thread_peak();
        let before = take_thread_peak();
        assert_eq!(decoder.decode_record(bytes), Err(NotARecord));
        assert!(take_thread_peak() - before < 4096);
    }
}

#[test]
fn record_beyond_a_bound_leaves_the_buffer_unchanged() {
    let large = vec![0; RECORD_BYTES_MAX + 1];
    let ids = vec![0; TOKENS_PER_RECORD_MAX + 1];
    let records = [
        Record::Kept { outcome: &large },
        Record::Open(Open::new(1, &large)),
        Record::Tokens(Tokens {
            ids: &ids,
            ..Tokens::default()
        }),
        Record::Tokens(Tokens {
            ids: &[1, 2],
            logprobs: &[0.0],
            ..Tokens::default()
        }),
        Record::Tokens(Tokens {
            choice: 1 << 20,
            ids: &[1],
            ..Tokens::default()
        }),
        Record::Tokens(Tokens {
            first: u32::MAX,
            ids: &[1],
            ..Tokens::default()
        }),
        Record::Unknown {
            kind: 99,
            body: &large,
        },
    ];
    for record in records {
        let mut bytes = vec![5];
        assert!(encode_record(&mut bytes, ADDRESS, &record).is_err());
        assert_eq!(bytes, [5]);
    }
}

#[test]
fn long_runs_are_divided() {
    let ids: Vec<u32> = (0..10_000).collect();
    let logprobs: Vec<f32> = ids.iter().map(|id| -(*id as f32)).collect();
    let counts: Vec<u8> = ids.iter().map(|id| (id % 3) as u8).collect();
    let items: Vec<Alternative> = (0..counts.iter().map(|c| u32::from(*c)).sum())
        .map(|id| Alternative { id, logprob: 0.0 })
        .collect();
    let alternatives = Alternatives {
        counts: &counts,
        items: &items,
    };
    let tokens = Tokens {
        choice: 1,
        first: 5,
        ids: &ids,
        logprobs: &logprobs,
        alternatives,
    };
    let runs: Vec<Tokens<'_>> = tokens.split_runs().collect();
    assert_eq!(
        runs.iter().map(|run| run.first).collect::<Vec<_>>(),
        [5, 4101, 8197]
    );
    assert_eq!(runs.iter().flat_map(|run| run.ids).count(), 10_000);
    let rejoined: Vec<Alternative> = runs
        .iter()
        .flat_map(|run| run.alternatives.items)
        .copied()
        .collect();
    assert_eq!(rejoined, items);
    for run in runs {
        encode_record(&mut Vec::new(), ADDRESS, &Record::Tokens(run)).unwrap();
    }
}

proptest! {
    /// Any bytes are a record or are rejected, and a record encodes to an equal one.
    #[test]
    fn any_bytes_are_a_record_or_rejected(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
        let mut decoder = RecordDecoder::default();
        if let Ok(decoded) = decoder.decode_record(&bytes) {
            let mut again = Vec::new();
            encode_record(&mut again, decoded.address, &decoded.record).unwrap();
            let mut second = RecordDecoder::default();
            let reread = second.decode_record(&again).unwrap();
            prop_assert_eq!(format!("{:?}", reread.record), format!("{:?}", decoded.record));
        }
    }
}
