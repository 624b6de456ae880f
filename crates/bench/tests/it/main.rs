//! Integration tests of measurements, one module per subject.

mod eval;
mod load;
mod support;
