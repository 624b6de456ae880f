//! What happens to a registry at random.

use proptest::prelude::*;
use std::time::Duration;
use stream::RegistryLimits;

#[derive(Clone, Debug)]
pub(crate) enum Op {
    Register {
        owner: u64,
        at: u64,
    },
    /// By the registration, where the stream still has one; else by its name.
    End {
        stream: usize,
        at: u64,
        bytes: usize,
    },
    Keep {
        stream: usize,
    },
    DropRegistration {
        stream: usize,
    },
    Forget {
        stream: usize,
    },
    Sweep {
        at: u64,
    },
}

/// Of 4 owners the last never opens anything.
pub(crate) const OWNERS: u64 = 4;

pub(crate) fn op() -> impl Strategy<Value = Op> {
    // few different times, out of order, so that many are equal
    let at = || 0..30u64;
    let stream = || 0..1000usize;
    let bytes = prop_oneof![8 => 0..60usize, 1 => 60..130usize, 1 => Just(usize::MAX)];
    prop_oneof![
        8 => (0..OWNERS - 1, at()).prop_map(|(owner, at)| Op::Register { owner, at }),
        8 => (stream(), at(), bytes)
            .prop_map(|(stream, at, bytes)| Op::End { stream, at, bytes }),
        2 => stream().prop_map(|stream| Op::Keep { stream }),
        1 => stream().prop_map(|stream| Op::DropRegistration { stream }),
        1 => stream().prop_map(|stream| Op::Forget { stream }),
        2 => at().prop_map(|at| Op::Sweep { at }),
    ]
}

pub(crate) fn limits() -> impl Strategy<Value = RegistryLimits> {
    (0..6usize, 0..5usize, 0..120usize, 0..15u64, 0..5usize).prop_map(
        |(open_max, retained_max, retained_bytes_max, retention, gone_max)| RegistryLimits {
            open_max,
            retained_max,
            retained_bytes_max,
            retention: Duration::from_secs(retention),
            gone_max,
        },
    )
}
