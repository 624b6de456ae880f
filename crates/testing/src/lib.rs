//! Code that tests of several crates share. No other code depends on this crate.

pub mod child;
pub mod folder;
pub mod heap;
pub mod program;
pub mod random;
#[cfg(feature = "text")]
pub mod schemas;
#[cfg(feature = "text")]
pub mod small_vocabulary;
#[cfg(feature = "text")]
pub mod vocabulary;
pub mod wait;
