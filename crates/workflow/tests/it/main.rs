//! Integration tests of generation programs, one module for each subject.

mod bounds;
mod documents;
mod running_ahead;
mod samples;
mod support;
mod windows;
