//! Random bytes as segments and as records.

use crate::arbitrary_segments::check_bytes;
use journal::{Open, Record, RecordAddress, Tokens, encode_record};
use proptest::prelude::*;
use testing::random::Random;

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_bytes_are_read_within_bounds(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        check_bytes(&bytes);
    }

    /// Valid records of few streams in any order, with changed bytes, under right checksums.
    #[test]
    fn records_in_any_order_are_read_within_bounds(seed in any::<u64>()) {
        check_bytes(&random_records(&mut Random(seed)));
    }
}

fn random_records(random: &mut Random) -> Vec<u8> {
    let mut bytes = vec![1];
    for _ in 0..random.below(30) {
        let sequence = random.below(6);
        let address = RecordAddress {
            handle: 1 + random.below(4),
            sequence,
        };
        let replaces = random.below(3);
        let ids = [7; 5];
        let tokens = Tokens {
            first: random.below(10) as u32,
            ids: &ids[..random.below(5) as usize],
            ..Tokens::default()
        };
        let record = match random.below(6) {
            0 => Record::Open(Open {
                replaces,
                ..Open::new(u128::from(random.below(3)), b"{}")
            }),
            1 => Record::Forgotten {
                why: random.below(2) as u32,
                copy: random.below(4),
            },
            2 => Record::Unknown {
                kind: random.below(20) as u8,
                body: &[0; 4],
            },
            _ => Record::Tokens(tokens),
        };
        encode_record(&mut bytes, address, &record).unwrap();
        if random.chance(20) {
            bytes.push(0xfe);
        }
        if random.chance(5) {
            let place = random.below(bytes.len() as u64) as usize;
            bytes[place] ^= 1 << random.below(8);
        }
    }
    bytes
}
