//! Rings: fixed channels between two processors, each end with one holder.
//!
//! A log keeps all that was written for many readers; a ring keeps its last items for one. It is made so
//! that an end may also lie elsewhere (a device, another process): what both sides must see is a header of
//! four words and an array of items, and the agreement between them is only the order of stores and loads
//! below. Which end is where is the direction: device to host (results stream out) or host to device
//! (control streams in); the ring is the same.
//!
//! ```
//! use stream::ring::{self, Kind, Next};
//!
//! let (mut writer, mut reader) = ring::open::<u32>(4, Kind::Lossless)?;
//! writer.push(7).unwrap();
//! assert_eq!(reader.try_next(), Some(7));
//! assert_eq!(reader.next_item(), Next::Empty); // now, but there may come more
//! drop(writer);
//! assert_eq!(reader.next_item(), Next::Closed);
//! # Ok::<(), ring::CapacityError>(())
//! ```
//!
//! # What both sides see
//!
//! | word | what | written by |
//! |---|---|---|
//! | 0 | items written since the beginning | the writer |
//! | 1 | items consumed since the beginning | the reader |
//! | 2 | capacity | nobody |
//! | 3 | flags: closed, overflowed, abandoned | both, by setting bits |
//!
//! The item with number `i` lies in slot `i mod capacity`. Numbers have 64 bits here; their lower halves are
//! what a processor of 32 bits works with ([`Header`]): the distance of two is right across 2^32, because a
//! capacity is at most [`CAPACITY_MAX`]; a slot can be found from the lower half alone where the capacity is a
//! power of two. [`HEADER_OFFSETS`] says where the words lie in memory.
//!
//! # The protocol
//!
//! - The **writer** stores the item in its slot, then publishes it by storing word 0 (Release), then rings the
//!   reader's bell. Of a lossless ring it first makes sure that word 0 less word 1 (Acquire) is below the
//!   capacity, and writes nothing otherwise.
//! - The **reader** loads word 0 (Acquire), copies items below it, then publishes what it consumed by storing
//!   word 1 (Release). It rings the writer's bell when it has taken half the ring since it rang, and when it
//!   finds nothing after it took something: a sleeping writer wakes to room for more than one item.
//! - Closing sets a flag (Release) after the last item; who sees it looks once more for items.
//! - Bells are in `bell`: neither side ever waits for the other by spinning, and no wake is lost.
//!
//! A **drop-oldest** ring's writer never looks at word 1 and overwrites what is oldest. Beside the header it
//! keeps the number of items it has *claimed*: before it touches the slot of item `i` it stores `i + 1` there
//! (Release), and a Release fence follows. A reader that copied item `j` then has an Acquire fence, loads what
//! was claimed (Acquire), and keeps its copy only if that is at most `j + capacity`; otherwise its cursor moves
//! to the oldest item that is not overwritten, and what lay between is counted as dropped.
//!
//! # The bad interleaving
//!
//! *The reader copies a slot while it is overwritten, and returns half of each item.* If any word of the copy is
//! of the later item, the reader's fence comes after the writer's, and the reader sees the claim made before it.
//! Slots are atomic words, so that the copy itself is no race, only worthless.

mod bell;
mod channel;
mod header;
mod item;
mod reader;
mod writer;

pub use channel::{CAPACITY_MAX, CapacityError, Kind, open, open_at};
pub use header::{HEADER_OFFSETS, Header};
pub use item::{Cell, Item};
pub use reader::{Next, Reader};
pub use writer::{Refused, Writer};
