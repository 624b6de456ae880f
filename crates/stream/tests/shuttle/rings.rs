//! The ring's protocol, under shuttle: longer runs than loom can.

use crate::explore;
use crate::ring::{RingKind, open};
use crate::thread;

const ITEMS: u32 = 20;

#[test]
fn a_lossless_ring_passes_everything_on_in_order() {
    explore(|| {
        let (mut writer, mut reader) = open(5, RingKind::Lossless).unwrap();
        let writing = thread::spawn(move || {
            for item in 0..ITEMS {
                writer.push_blocking([item, item]).unwrap();
            }
        });
        let seen: Vec<[u32; 2]> = std::iter::from_fn(|| reader.next_blocking()).collect();
        assert!(seen.into_iter().eq((0..ITEMS).map(|item| [item, item])));
        writing.join().unwrap();
    });
}

#[test]
fn a_drop_oldest_ring_is_never_torn_and_ends_with_its_last_item() {
    explore(|| {
        let (mut writer, mut reader) = open(2, RingKind::DropOldest).unwrap();
        let writing = thread::spawn(move || {
            for item in 0..ITEMS {
                writer.push([item, !item]).unwrap();
            }
        });
        let seen: Vec<[u32; 2]> = std::iter::from_fn(|| reader.next_blocking()).collect();
        assert!(seen.iter().all(|[item, inverted]| *inverted == !*item));
        assert!(seen.is_sorted_by_key(|[item, _]| *item));
        assert_eq!(seen.last(), Some(&[ITEMS - 1, !(ITEMS - 1)]));
        assert_eq!(seen.len() as u64 + reader.dropped(), u64::from(ITEMS));
        writing.join().unwrap();
    });
}
