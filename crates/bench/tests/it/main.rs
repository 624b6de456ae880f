//! Measurements from outside: one module for each subject.

mod eval;
mod load;
mod support;
