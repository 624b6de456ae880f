//! Items of rings: numbers, bytes, and structs of them.

use crate::sync::{AtomicU8, AtomicU32, AtomicU64, Ordering};

/// A plain item of fixed size.
///
/// An item is stored as [`Item::CELLS`] cells of one width, each an atomic, so that no read of a slot during
/// an overwrite is undefined. A struct implements the conversion to cells and back:
///
/// ```
/// use stream::ring::Item;
///
/// #[derive(Clone, Copy, Debug, PartialEq)]
/// struct Score {
///     token: u32,
///     logprob: f32,
/// }
///
/// impl Item for Score {
///     type Cell = u32;
///     const CELLS: usize = 2;
///
///     fn put(self, mut cell: impl FnMut(usize, u32)) {
///         cell(0, self.token);
///         cell(1, self.logprob.to_bits());
///     }
///
///     fn get(cell: impl Fn(usize) -> u32) -> Self {
///         Self { token: cell(0), logprob: f32::from_bits(cell(1)) }
///     }
/// }
///
/// let (mut writer, mut reader) = stream::ring::open(2, stream::ring::RingKind::DropOldest)?;
/// writer.push(Score { token: 3, logprob: -0.5 }).unwrap();
/// assert_eq!(reader.try_next(), Some(Score { token: 3, logprob: -0.5 }));
/// # Ok::<(), stream::ring::CapacityError>(())
/// ```
pub trait Item: Copy + Send + 'static {
    /// Type of a cell: `u8`, `u32` or `u64`.
    type Cell: Cell;
    /// Number of cells.
    const CELLS: usize;

    /// Passes the index (`0..CELLS`) and the value of each cell.
    fn put(self, cell: impl FnMut(usize, Self::Cell));

    /// The item of these cells. Must accept any values: cells of two items may be mixed, and such an item is
    /// discarded.
    fn get(cell: impl Fn(usize) -> Self::Cell) -> Self;
}

/// A number that one atomic holds. Sealed.
pub trait Cell: Copy + sealed::Sealed {}

impl<C: Copy + sealed::Sealed> Cell for C {}

pub(crate) mod sealed {
    /// Atomic of a number; accesses are relaxed, the ring's indices order them.
    pub trait Sealed: Sized {
        #[doc(hidden)]
        type Atomic: Send + Sync;
        #[doc(hidden)]
        fn zero() -> Self::Atomic;
        #[doc(hidden)]
        fn load(place: &Self::Atomic) -> Self;
        #[doc(hidden)]
        fn store(place: &Self::Atomic, value: Self);
    }
}

macro_rules! number {
    ($number:ty, $atomic:ty) => {
        impl sealed::Sealed for $number {
            type Atomic = $atomic;
            fn zero() -> $atomic {
                <$atomic>::new(0)
            }
            #[inline]
            fn load(place: &$atomic) -> Self {
                place.load(Ordering::Relaxed)
            }
            #[inline]
            fn store(place: &$atomic, value: Self) {
                place.store(value, Ordering::Relaxed);
            }
        }

        impl Item for $number {
            type Cell = $number;
            const CELLS: usize = 1;
            #[inline]
            fn put(self, mut cell: impl FnMut(usize, $number)) {
                cell(0, self);
            }
            #[inline]
            fn get(cell: impl Fn(usize) -> $number) -> Self {
                cell(0)
            }
        }
    };
}

number!(u8, AtomicU8);
number!(u32, AtomicU32);
number!(u64, AtomicU64);

impl Item for f32 {
    type Cell = u32;
    const CELLS: usize = 1;

    fn put(self, mut cell: impl FnMut(usize, u32)) {
        cell(0, self.to_bits());
    }

    fn get(cell: impl Fn(usize) -> u32) -> Self {
        Self::from_bits(cell(0))
    }
}

/// `[u8; N]` is a record of bytes.
impl<T: Item, const N: usize> Item for [T; N] {
    type Cell = T::Cell;
    const CELLS: usize = N * T::CELLS;

    fn put(self, mut cell: impl FnMut(usize, T::Cell)) {
        for (at, item) in self.into_iter().enumerate() {
            item.put(|k, value| cell(at * T::CELLS + k, value));
        }
    }

    fn get(cell: impl Fn(usize) -> T::Cell) -> Self {
        std::array::from_fn(|at| T::get(|k| cell(at * T::CELLS + k)))
    }
}
