//! Integration tests of measurements, one module per subject.

mod load;
mod support;
