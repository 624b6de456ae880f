//! Reports of a download's progress, and the caller's way to abandon the download.

use server::{LibraryError, PullNews};
use std::ops::ControlFlow;

/// Takes each report; `Break` abandons the download.
pub(super) type ReportPull<'a> = &'a mut dyn FnMut(PullNews<'_>) -> ControlFlow<()>;

/// An error if the caller abandoned the download.
pub(super) fn expect_continue(flow: ControlFlow<()>) -> Result<(), LibraryError> {
    match flow {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(LibraryError::Abandoned),
    }
}
