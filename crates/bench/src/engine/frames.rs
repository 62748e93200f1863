//! Messages between dispatcher and workers: JSON in frames of a 4-byte big-endian length.
//!
//! A conversation: `Hello` → then for each run `Start` → `Ready` → `Go` → (`Take` → `Ranges`)* with a `Report` each
//! second → `Finish` or the end of time → `Done`. Either side ends the conversation by closing the connection. No state
//! remains.

use crate::load::Written;
use crate::outcome::Verdict;
use crate::outcome::{EncodedHistogram, WorkerOutcome};
use crate::plan::Run;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io;
use std::ops::Range;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Largest frame. A report of some seconds with all its histograms is thousands of times smaller.
const FRAME_BYTES_MAX: u32 = 64 << 20;

/// Spoken by this version; others are refused.
pub const VERSION: u32 = 2;

/// From worker to dispatcher.
#[derive(Debug, Serialize, Deserialize)]
pub enum FromWorker {
    /// First frame.
    Hello {
        /// [`VERSION`].
        version: u32,
        /// The token from the dispatcher's command line.
        token: String,
        /// Host name and process id.
        place: String,
        /// Process id, meaningful only on the dispatcher's machine.
        pid: u32,
    },
    /// Clients are connected and wait for `Go`.
    Ready {
        /// Number of the run.
        run: u64,
    },
    /// Clients have no work.
    Take {
        /// Number of the run.
        run: u64,
        /// Ranges wanted.
        count: u32,
    },
    /// Work done since the last report.
    Report(Box<Report>),
    /// The run is over in this worker. Its last report precedes this message.
    Done {
        /// Number of the run.
        run: u64,
    },
    /// The run cannot be carried out or continued.
    Failed {
        /// Number of the run.
        run: u64,
        /// Why.
        cause: String,
        /// Whether the cause is the protocol, which lacks the operation.
        unsupported: bool,
    },
}

/// Work done since the last report.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Report {
    /// Number of the run.
    pub run: u64,
    /// Spans that were done whole, or up to the moment when time was up.
    pub done: Vec<Range<u64>>,
    /// Spans in which an operation failed. Its effect is unknown.
    pub uncertain: Vec<Range<u64>>,
    /// End of the last of these spans, in seconds after the run's start.
    pub last_span_at: Option<f64>,
    /// Increment of the statistics.
    pub increment: WorkerOutcome,
    /// Increment of the verdict.
    pub verdict: Verdict,
    /// Seconds that ended.
    pub seconds: Vec<SecondReport>,
}

/// The later of two optional times.
pub fn later(one: Option<f64>, other: Option<f64>) -> Option<f64> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.max(other)),
        (moment, None) | (None, moment) => moment,
    }
}

/// One second of one worker.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct SecondReport {
    /// 0 for the first second after `Go`, warm-up included.
    pub index: u32,
    /// Operations that succeeded.
    pub operations: u64,
    /// Operations that failed.
    pub failures: u64,
    /// Bytes moved.
    pub bytes: u64,
    /// Latencies.
    pub histogram: EncodedHistogram,
}

/// From dispatcher to worker.
#[derive(Debug, Serialize, Deserialize)]
pub enum FromDispatcher {
    /// Get ready for a run.
    Start(Box<Start>),
    /// Begin now.
    Go {
        /// Number of the run.
        run: u64,
        /// Zero unless the worker replaces one that died.
        elapsed_seconds: f64,
    },
    /// Ranges to be done.
    Ranges {
        /// Number of the run.
        run: u64,
        /// May be fewer than requested, and may be empty.
        ranges: Vec<Range<u64>>,
    },
    /// All ranges are done.
    Finish {
        /// Number of the run.
        run: u64,
    },
    /// Forget the run.
    Abort {
        /// Number of the run.
        run: u64,
    },
}

/// A worker's part of a run.
#[derive(Debug, Serialize, Deserialize)]
pub struct Start {
    /// Number of the run.
    pub run: u64,
    /// The run.
    pub what: Run,
    /// Address of the target.
    pub target: String,
    /// The contents of the run's table.
    pub written: Vec<Written>,
    /// Index of this worker among those of the run.
    pub worker: u32,
    /// Workers of the run.
    pub workers: u32,
    /// Index of this worker's first client within the run.
    pub first_client: u32,
    /// Number of its clients.
    pub clients: u32,
}

/// Writes one frame.
///
/// # Errors
/// Of the socket.
pub async fn write<T: Serialize>(socket: &mut (impl AsyncWriteExt + Unpin), message: &T) -> io::Result<()> {
    let body = serde_json::to_vec(message)?;
    let length = u32::try_from(body.len())
        .ok()
        .filter(|l| *l <= FRAME_BYTES_MAX)
        .ok_or_else(|| io::Error::other(format!("a frame of {} bytes is too large", body.len())))?;
    let mut frame = Vec::with_capacity(body.len() + 4);
    frame.extend_from_slice(&length.to_be_bytes());
    frame.extend_from_slice(&body);
    socket.write_all(&frame).await?;
    socket.flush().await
}

/// Reads one frame. `None` when the other side has closed.
///
/// # Errors
/// Of the socket, of a frame that is too large, of a frame that is not a message.
pub async fn read<T: DeserializeOwned>(socket: &mut (impl AsyncReadExt + Unpin)) -> io::Result<Option<T>> {
    let mut length = [0; 4];
    match socket.read_exact(&mut length).await {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    }
    let length = u32::from_be_bytes(length);
    if length > FRAME_BYTES_MAX {
        return Err(io::Error::other(format!(
            "a frame of {length} bytes, more than {FRAME_BYTES_MAX}"
        )));
    }
    let mut body = Vec::new();
    // Grows as bytes arrive: a claimed length alone must not cost memory.
    let mut rest = socket.take(u64::from(length));
    rest.read_to_end(&mut body).await?;
    if body.len() as u64 != u64::from(length) {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(Some(serde_json::from_slice(&body)?))
}

#[cfg(test)]
#[allow(
    clippy::single_range_in_vec_init,
    clippy::panic,
    reason = "lists of one range are meant; tests may panic"
)]
mod tests {
    use super::*;

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread()
            .build()
            .expect("a runtime")
            .block_on(future)
    }

    #[test]
    fn a_frame_survives_the_way() {
        block_on(async {
            let mut bytes = Vec::new();
            write(
                &mut bytes,
                &FromDispatcher::Ranges {
                    run: 7,
                    ranges: vec![3..9],
                },
            )
            .await
            .unwrap();
            let mut reader = bytes.as_slice();
            let Some(FromDispatcher::Ranges { run: 7, ranges }) = read(&mut reader).await.unwrap() else {
                panic!("another message");
            };
            assert_eq!(ranges, [3..9]);
            assert!(read::<FromDispatcher>(&mut reader).await.unwrap().is_none());
        });
    }

    #[test]
    fn damaged_frames_are_errors() {
        block_on(async {
            for bytes in [&[0xFF, 0xFF, 0xFF, 0xFF][..], &[0, 0, 0, 9, b'{'], &[0, 0, 0, 1, b'{']] {
                assert!(read::<FromWorker>(&mut &*bytes).await.is_err(), "{bytes:?}");
            }
        });
    }
}
