//! Rings: fixed channels between two processors, each end with one holder.
//!
//! A log keeps all written items for many readers; a ring keeps the last items for one reader. One end may also
//! be elsewhere (a device, another process): both sides share a header of four words and an array of items, and
//! the protocol consists of the order of stores and loads below. The placement of the ends gives the direction:
//! device to host (results stream out) or host to device (control streams in); the ring is the same.
//!
//! ```
//! use stream::ring::{self, RingKind, Next};
//!
//! let (mut writer, mut reader) = ring::open::<u32>(4, RingKind::Lossless)?;
//! writer.push(7).unwrap();
//! assert_eq!(reader.try_next(), Some(7));
//! assert_eq!(reader.next_item(), Next::Empty); // now, but there may come more
//! drop(writer);
//! assert_eq!(reader.next_item(), Next::Closed);
//! # Ok::<(), ring::CapacityError>(())
//! ```
//!
//! # Shared words
//!
//! | word | content | written by |
//! |---|---|---|
//! | 0 | items written since the beginning | the writer |
//! | 1 | items consumed since the beginning | the reader |
//! | 2 | capacity | constant |
//! | 3 | flags: closed, overflowed, abandoned | both, by setting bits |
//!
//! The item with number `i` is in slot `i mod capacity`. Numbers have 64 bits here; a 32-bit processor works
//! with their lower halves ([`Header`]): the difference of two is correct across 2^32, because a capacity is at
//! most [`CAPACITY_MAX`]; the lower half alone determines the slot where the capacity is a power of two.
//! [`HEADER_OFFSETS`] has the positions of the words in memory.
//!
//! # Protocol
//!
//! - The **writer** stores the item in the slot, then publishes the item by storing word 0 (Release), then rings the
//!   reader's bell. In a lossless ring the writer first checks that word 0 minus word 1 (Acquire) is below the
//!   capacity, and writes nothing otherwise.
//! - The **reader** loads word 0 (Acquire), copies items with numbers below that, then publishes the number of consumed
//!   items by storing word 1 (Release). The reader rings the writer's bell after consuming half the ring since the last
//!   time, and on finding nothing after consuming something: a sleeping writer wakes to room for more than one item.
//! - Closing sets a flag (Release) after the last item; a side that sees the flag checks once more for items.
//! - Bells are in `channel`: neither side ever waits for the other by spinning, and no wake-up is lost.
//!
//! The writer of a **drop-oldest** ring never reads word 1 and overwrites the oldest item. Beside the header
//! the writer keeps the number of *claimed* items: before touching the slot of item `i`, the writer stores `i +
//! 1` there (Release), followed by a Release fence. A reader that copied item `j` then has an Acquire fence,
//! loads the number of claimed items (Acquire), and keeps the copy only if that number is at most `j +
//! capacity`; otherwise the reader's cursor moves to the oldest item that is not overwritten, and the items in
//! between count as dropped.
//!
//! # Bad interleaving
//!
//! *The reader copies a slot during an overwrite, and returns half of each item.* If any word of the copy
//! belongs to the later item, the reader's fence comes after the writer's, and the reader sees the claim made
//! before the writer's fence. Slots are atomic words, so that the copy itself is no data race, only useless.

mod channel;
mod header;
mod item;
mod reader;
mod writer;

pub use channel::{CAPACITY_MAX, CapacityError, RingKind, open, open_at};
pub use header::{HEADER_OFFSETS, Header};
pub use item::{Cell, Item};
pub use reader::{Next, RingReader};
pub use writer::{Refused, RingWriter};
