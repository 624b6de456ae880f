//! Integration tests of generations, over a fake model.

mod resume;
mod support;
