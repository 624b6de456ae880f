//! Work on long bodies that nobody holds a permit for: out of everybody's way, and not much of it at a time.

use generate::error::ApiError;
use tokio::sync::Semaphore;

/// Long bodies that are worked on at one time, in all, by requests without a permit: who has one must find a
/// thread that prepares.
const APART_AT_ONCE_MAX: usize = 1;

static TURNS: Semaphore = Semaphore::const_new(APART_AT_ONCE_MAX);

/// Does something that takes time with the length of a body: here, if that is at most `inline_max`; else
/// elsewhere, when it is its turn.
///
/// # Errors
/// Those of the work, and a panic in it.
pub(crate) async fn apart<T: Send + 'static>(
    (body_bytes, inline_max): (usize, usize),
    work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    if body_bytes <= inline_max {
        return work();
    }
    let turn = TURNS.acquire().await.map_err(|_| undone())?;
    // What was begun holds its turn, also when nobody waits for it any more.
    let done = tokio::task::spawn_blocking(move || {
        let done = work();
        drop(turn);
        done
    });
    done.await.unwrap_or_else(|_| Err(undone()))
}

fn undone() -> ApiError {
    ApiError::ours("internal_error", "the request could not be processed")
}
