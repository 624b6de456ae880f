//! Shifts by a distance that is constant only after inlining.

/// Calls a shift intrinsic, which takes the distance as a constant.
macro_rules! by_distance {
    ($shift:ident, $v:expr, $distance:expr) => {
        match $distance {
            0 => $v,
            1 => $shift::<1>($v),
            2 => $shift::<2>($v),
            3 => $shift::<3>($v),
            4 => $shift::<4>($v),
            5 => $shift::<5>($v),
            6 => $shift::<6>($v),
            _ => $shift::<7>($v),
        }
    };
}

pub(super) use by_distance;
