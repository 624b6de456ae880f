//! Images: bytes to pixels, and to a plan of the rows that a model will see.
//!
//! [`Header::read`] looks at dimensions alone and allocates nothing for pixels; a rule of [`plan`] turns the upright
//! size into resizes, tiles and a number of rows. [`decode()`] makes the pixels, [`plan::Plan::views`] what the tower
//! sees, and [`patches()`] the numbers that its first matrix takes. Any bytes may come: everything here ends with an
//! image or with a sentence about the caller's field, within [`Limits`].
//!
//! The crate knows no weights, no tokens and no HTTP. The clock is the caller's.

mod color;
mod data_url;
mod decode;
mod digest;
mod error;
mod header;
mod kind;
mod limits;
mod orientation;
mod patches;
mod pixels;
pub mod plan;
mod recipe;
mod resize;
mod size;

pub use data_url::{ImageSource, decode_base64};
pub use decode::decode;
pub use digest::{ImageKey, PREPROCESS_VERSION, file_digest};
pub use error::{ImageError, ImageFault};
pub use header::Header;
pub use kind::ImageKind;
pub use limits::Limits;
pub use orientation::Orientation;
pub use patches::{Normalization, PatchOrder, patches, planes};
pub use pixels::Pixels;
pub use recipe::{Detail, DetailRows, Recipe, Rule, View};
pub use resize::{Filter, resize};
pub use size::{Area, Grid, Size};
