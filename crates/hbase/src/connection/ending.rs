//! The end of a connection whose client may still send.
//!
//! A socket that is closed while it has bytes that nobody has read is reset. The system then drops responses that the client
//! has not taken, and the client repeats calls whose changes are committed.

use std::time::Duration;
use stele_env::Env;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// How long a client may take to close its end: far longer than a round trip, and short next to the time that a server has to
/// shut down.
const CLOSE_WAIT: Duration = Duration::from_secs(1);

/// Bytes of one read that is discarded.
const READ_BYTES: usize = 4 << 10;

/// Tells the client that no more responses come, and discards its requests until it has closed its end.
pub(super) async fn close<T: AsyncRead + AsyncWrite + Unpin>(socket: &mut T, env: &Env) {
    let closing = async {
        socket.shutdown().await?;
        let mut unread = [0; READ_BYTES];
        while socket.read(&mut unread).await? > 0 {}
        Ok::<(), std::io::Error>(())
    };
    match env.timeout(CLOSE_WAIT, Box::pin(closing)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "a drained connection was lost"),
        Err(_) => tracing::debug!("the client of a drained connection did not close it within {CLOSE_WAIT:?}"),
    }
}
