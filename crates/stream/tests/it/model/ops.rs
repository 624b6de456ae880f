//! Random operations on a log's holders.

use proptest::prelude::*;
use stream::SEGMENT_ITEMS;

#[derive(Clone, Debug)]
pub(super) enum Op {
    Append { items: usize },
    Finish,
    DropWriter,
    Read { reader: usize, room: usize },
    Poll { reader: usize, room: usize },
    Accept { reader: usize, index: u64 },
    AcceptByTap { tap: usize, index: u64 },
    Grant { reader: usize, extra: u64 },
    GrantByTap { tap: usize, extra: u64 },
    AttachToReader { reader: usize, index: u64 },
    AttachToTap { tap: usize, index: u64 },
    Tap { reader: usize },
    DropReader { reader: usize },
    DropTap { tap: usize },
    Show { len: u64 },
    ShowEnd,
    OpenGate,
    CloneGate,
    DropGate,
}

pub(super) const SEGMENTS: usize = 3;
/// Not a multiple of the segment, so that the last one is never full.
pub(super) const CAPACITY: usize = SEGMENTS * SEGMENT_ITEMS - 100;

pub(super) fn op() -> impl Strategy<Value = Op> {
    let index = || 0..CAPACITY as u64 + 50;
    let extra = || prop_oneof![8 => 0..100u64, 1 => Just(u64::MAX)];
    prop_oneof![
        6 => (1..200usize).prop_map(|items| Op::Append { items }),
        1 => Just(Op::Finish),
        1 => Just(Op::DropWriter),
        6 => (0..8usize, 1..400usize).prop_map(|(reader, room)| Op::Read { reader, room }),
        6 => (0..8usize, 1..400usize).prop_map(|(reader, room)| Op::Poll { reader, room }),
        2 => (0..8usize, index()).prop_map(|(reader, index)| Op::Accept { reader, index }),
        2 => (0..8usize, index()).prop_map(|(tap, index)| Op::AcceptByTap { tap, index }),
        1 => (0..8usize, extra()).prop_map(|(reader, extra)| Op::Grant { reader, extra }),
        1 => (0..8usize, extra()).prop_map(|(tap, extra)| Op::GrantByTap { tap, extra }),
        2 => (0..8usize, index()).prop_map(|(reader, index)| Op::AttachToReader { reader, index }),
        2 => (0..8usize, index()).prop_map(|(tap, index)| Op::AttachToTap { tap, index }),
        2 => (0..8usize).prop_map(|reader| Op::Tap { reader }),
        2 => (0..8usize).prop_map(|reader| Op::DropReader { reader }),
        1 => (0..8usize).prop_map(|tap| Op::DropTap { tap }),
        6 => index().prop_map(|len| Op::Show { len }),
        2 => Just(Op::ShowEnd),
        1 => Just(Op::OpenGate),
        1 => Just(Op::CloneGate),
        1 => Just(Op::DropGate),
    ]
}
