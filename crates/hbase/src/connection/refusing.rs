//! A connection of a caller that is refused.
//!
//! HBase's clients do not read a response that is for the whole connection. They would find it closed, and connect again until their
//! deadline. So every call gets the refusal, by its number.
//!
//! Bounds: a caller gets [`CALLS_MAX`] refusals, and has [`IDLE_WAIT`] for each and [`TOTAL_WAIT`] for all of them. No memory of
//! requests is reserved for it.
//!
//! Invariant: no service is reached from here.

use super::input::{Arrived, Input};
use super::{ConnectionError, ending};
use crate::call::failed;
use crate::failure::Failure;
use futures::future::{Either, select};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::time::Duration;
use stele_env::Env;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};

/// Refusals of one connection: those of a client with many threads, which does not repeat the calls.
pub(super) const CALLS_MAX: usize = 100;

/// Time in which the next call must come, and its refusal be taken.
pub(super) const IDLE_WAIT: Duration = Duration::from_secs(10);

/// Time after which the connection ends in any case. A caller that sends a call every few seconds would otherwise hold the place of
/// one that is served for a quarter of an hour.
pub(super) const TOTAL_WAIT: Duration = Duration::from_secs(60);

/// Answers the calls of a connection with a failure, until it has had enough of them or the server drains.
pub(super) async fn refuse<T>(
    socket: &mut T,
    input: &mut Input,
    env: &Env,
    failure: &Failure,
    drain: impl Future<Output = ()>,
) -> Result<(), ConnectionError>
where
    T: AsyncRead + AsyncWrite + Unpin,
{
    input.take_small_frames_only();
    let refusing = async {
        for _ in 0..CALLS_MAX {
            match env.timeout(IDLE_WAIT, refuse_next(socket, input, failure)).await {
                Ok(Ok(true)) => {}
                Ok(ended) => return ended.map(drop),
                Err(_) => break,
            }
        }
        Ok(())
    };
    match select(pin!(env.timeout(TOTAL_WAIT, refusing)), pin!(drain)).await {
        Either::Left((Ok(ended), _)) => ended?,
        Either::Left((Err(_), _)) | Either::Right(_) => {}
    }
    ending::close(socket, env).await;
    Ok(())
}

/// Refuses the next call; `false` at the end of the connection.
async fn refuse_next<T>(socket: &mut T, input: &mut Input, failure: &Failure) -> Result<bool, ConnectionError>
where
    T: AsyncRead + AsyncWrite + Unpin,
{
    loop {
        let call_id = match input.take()? {
            Some(Arrived::Request(request, _)) => request.header.call_id,
            Some(Arrived::Refused(call_id, _)) => Some(call_id),
            None => match poll_fn(|cx| input.poll_read(socket, cx)).await? {
                0 => return Ok(false),
                _ => continue,
            },
        };
        socket.write_all(&failed(call_id, failure).frame).await?;
        return Ok(true);
    }
}
