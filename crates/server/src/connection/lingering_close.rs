//! Closing a connection whose client still sends a request that was answered.
//!
//! The system answers bytes that the server has not read with a reset when the socket is closed, and a reset makes the client's
//! system drop an answer that the client has not read: a client that writes its whole body before it reads would see a
//! broken connection in place of a 413. So the socket is closed for writing first, and what still arrives is read and dropped,
//! within bounds of bytes and time.

use super::buffered_stream::BufferedStream;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::time::timeout;

/// Bytes that are read and dropped.
const DROPPED_BYTES_MAX: usize = 256 << 20;
/// Bytes that are read at once.
const PIECE_BYTES: usize = 64 << 10;
/// Time without a byte after which the client counts as done: an idle client does not close before its next request.
const SILENCE_MAX: Duration = Duration::from_secs(1);

/// Reads and drops what the client still sends on a socket that is closed for writing, for `time_max` at most.
pub(super) async fn drop_rest(mut socket: BufferedStream, time_max: Duration) {
    let mut piece = vec![0; PIECE_BYTES];
    let all = async {
        let mut bytes = 0;
        while bytes < DROPPED_BYTES_MAX
            && let Ok(Ok(count @ 1..)) = timeout(SILENCE_MAX, socket.read(&mut piece)).await
        {
            bytes += count;
        }
    };
    let _ = timeout(time_max, all).await;
}
