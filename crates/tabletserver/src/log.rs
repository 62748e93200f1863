//! The commit log of a server has streams. This module also counts the bytes they retain, and knows the tablets that
//! need them.
//!
//! Terms: a tablet *holds* log while a segment has a record of it that is not in its files. An *unflushable* tablet is one
//! whose last flush failed.
//!
//! Invariants:
//! * A tablet always writes to the same stream, so that the order of its records is that of one stream.
//! * Segment numbers are unique over all streams and grow: `epoch << 32 | counter`.

use crate::commit::Stream;
use crate::options::ServerOptions;
use crate::tablets::Tablets;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use stele_commitlog::{
    BarrierCause, HeldSegments, LogClock, LogError, LogMetrics, LogOptions, LogPosition, LogStream, Mark, ReplayReport,
};
use stele_env::Env;
use stele_storage::Storage;
use stele_types::{Epoch, ServerId, TabletId, stream_of};

/// The streams of a server.
pub(crate) struct CommitLog {
    /// Whose log it is: decides the streams of tablets. Where one server owns the data root, any number serves.
    server: ServerId,
    streams: Vec<Arc<Stream>>,
    tablets: Arc<Tablets>,
    /// Bytes of log at which tablets are flushed for it.
    bytes_max: u64,
    /// Of a log that is archived.
    clock: Option<Arc<LogClock>>,
}

/// The last segment number that an owner before this epoch may have given.
pub(crate) fn last_segment_before(epoch: Epoch) -> u64 {
    (u64::from(epoch.0) << 32).saturating_sub(1)
}

/// The epoch in which a segment was made.
pub(crate) fn epoch_of_segment(number: u64) -> u64 {
    number >> 32
}

impl CommitLog {
    /// Starts the streams of an owner below a log root. The replayed segments of former ones are deleted when `tablets` have flushed them.
    pub(crate) fn start(
        (env, root): (&Env, &Arc<dyn Storage>),
        epoch: Epoch,
        options: &ServerOptions,
        replayed: ReplayReport,
        metrics: &LogMetrics,
        tablets: Arc<Tablets>,
    ) -> Self {
        let counter = AtomicU64::new(1);
        let next_segment: Arc<dyn Fn() -> u64 + Send + Sync> = Arc::new(move || {
            let number = counter.fetch_add(1, Ordering::Relaxed);
            assert!(
                number >> 32 == 0,
                "an owner makes fewer than 2^32 segments, so that numbers grow with epochs"
            );
            u64::from(epoch.0) << 32 | number
        });
        let log = LogOptions {
            segment_bytes: options.log_segment_bytes,
            queue_bytes: options.log_queue_bytes,
            clock: options.log_clock.clone(),
            ..LogOptions::default()
        };
        // Segment numbers are unique over all streams, so the first stream can own all old segments.
        if let Some(clock) = &options.log_clock {
            clock.raise(replayed.last_micros);
        }
        let is_archived = options.log_clock.is_some();
        let mut old: Vec<_> = replayed
            .segments
            .into_iter()
            .map(|(_, number, mut info)| {
                // They were synced before anything was built on them.
                info.note_synced();
                info.awaits_archive = is_archived && info.end > 0;
                (number, info)
            })
            .collect();
        let streams = (0..options.log_streams.max(1)).map(|stream| {
            let stream = LogStream::start(
                root.clone(),
                env.clone(),
                stream,
                log.clone(),
                next_segment.clone(),
                std::mem::take(&mut old),
                metrics.clone(),
            );
            Arc::new(stream)
        });
        let streams: Vec<Arc<Stream>> = streams.collect();
        assert!(
            !streams.is_empty(),
            "a log has a stream, which owns the segments of former owners"
        );
        CommitLog {
            server: ServerId(epoch.0),
            streams,
            tablets,
            bytes_max: options.log_bytes_max,
            clock: options.log_clock.clone(),
        }
    }

    /// Bytes on storage, open segments included.
    pub(crate) fn retained_bytes(&self) -> u64 {
        self.streams.iter().map(|stream| stream.retained_bytes()).sum()
    }

    /// The stream of a tablet.
    pub(crate) fn stream_of(&self, tablet: TabletId) -> &Arc<Stream> {
        &self.streams[stream_of(self.server, tablet, self.stream_count()) as usize]
    }

    /// How many streams there are. It does not change as long as the server lives.
    pub(crate) fn stream_count(&self) -> u32 {
        self.streams.len() as u32
    }

    /// The streams.
    #[cfg(test)]
    pub(crate) fn streams(&self) -> &[Arc<Stream>] {
        &self.streams
    }

    /// Completes the queued records and takes no more.
    pub(crate) async fn close(&self) {
        for stream in &self.streams {
            stream.close().await;
        }
    }

    /// Deletes the log segments that nobody needs. No header speaks of another stream's segment, so where one cannot be deleted the
    /// other streams go on.
    pub(crate) async fn delete_unneeded(&self) -> Result<usize, LogError> {
        let is_flushed = |tablet, seq| self.tablets.is_flushed(tablet, seq);
        let (mut deleted, mut failure) = (0, None);
        for stream in &self.streams {
            match stream.delete_unneeded(is_flushed).await {
                Ok(some) => deleted += some,
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        failure.map_or(Ok(deleted), Err)
    }

    /// Keeps the segments of former owners where they are. They are the first stream's.
    pub(crate) async fn hold_former_segments(&self) -> HeldSegments {
        self.streams[0].hold_segments().await
    }

    /// Bytes of log that flushes can make superfluous. Bytes kept for a tablet that cannot be flushed, now or ever, are not:
    /// flushing others for its sake would make ever smaller files, and free nothing.
    pub(crate) fn flushable_bytes(&self, unflushable: &BTreeSet<TabletId>) -> u64 {
        let retained = self.retained_bytes();
        if retained <= self.bytes_max {
            return retained;
        }
        let is_flushed = |tablet, seq| self.tablets.is_flushed(tablet, seq);
        let archive = self
            .streams
            .iter()
            .map(|stream| stream.bytes_kept_for_archive(is_flushed));
        retained
            .saturating_sub(self.bytes_kept(unflushable))
            .saturating_sub(archive.sum())
    }

    /// The acknowledged parts of all segments that wait for the archive, in the order of their numbers.
    pub(crate) fn positions(&self) -> Vec<LogPosition> {
        let mut positions: Vec<_> = self.streams.iter().flat_map(|stream| stream.positions()).collect();
        positions.sort_by_key(|position| position.number);
        assert!(
            positions.windows(2).all(|two| two[0].number < two[1].number),
            "segment numbers are unique over all streams"
        );
        positions
    }

    /// Lets a segment go that waits for the archive.
    pub(crate) fn archived(&self, number: u64) {
        self.streams.iter().for_each(|stream| stream.archived(number));
    }

    /// Notes in a log that is archived that files of a tablet are about to change without a record. Its writers wait.
    pub(crate) async fn bar(&self, tablet: TabletId, cause: BarrierCause) -> Result<(), LogError> {
        let Some(clock) = &self.clock else { return Ok(()) };
        assert!(tablet > TabletId(0), "no tablet has the number of marks");
        let micros = clock.now();
        let mark = Mark::Barrier { micros, tablet, cause };
        self.stream_of(tablet).mark(mark).await
    }

    /// Bytes of log kept for tablets that are not served, or are `unflushable`.
    pub(crate) fn bytes_kept(&self, unflushable: &BTreeSet<TabletId>) -> u64 {
        if unflushable.is_empty() && !self.tablets.has_unserved() {
            return 0;
        }
        let tablets = &self.tablets;
        let is_kept = |tablet, seq| {
            !tablets.is_flushed(tablet, seq) && (unflushable.contains(&tablet) || !tablets.is_served(tablet))
        };
        self.streams.iter().map(|stream| stream.bytes_kept_by(is_kept)).sum()
    }

    /// Bytes of log kept for `unflushable` tablets alone. Those kept for tablets that are not served do not grow: nobody writes
    /// to them.
    pub(crate) fn bytes_kept_growing(&self, unflushable: &BTreeSet<TabletId>) -> u64 {
        let is_kept = |tablet, seq| unflushable.contains(&tablet) && !self.tablets.is_flushed(tablet, seq);
        match unflushable.is_empty() {
            true => 0,
            false => self.streams.iter().map(|stream| stream.bytes_kept_by(is_kept)).sum(),
        }
    }

    /// The tablets that are to be flushed for the log. Of one stream: a large tablet that holds a short one would be flushed
    /// again and again, and the small one that holds the longest would never be. It is the stream that keeps most, of
    /// those for which something can be done.
    pub(crate) fn oldest_holders(&self, unflushable: &BTreeSet<TabletId>) -> BTreeSet<TabletId> {
        let mut streams: Vec<_> = self.streams.iter().collect();
        streams.sort_by_key(|stream| std::cmp::Reverse(stream.retained_bytes()));
        let can_be_flushed = |tablet: &TabletId| !unflushable.contains(tablet) && self.tablets.is_served(*tablet);
        // Where nothing can be done for a tablet it is passed over: behind it others keep segments that can go.
        let is_done = |tablet, seq| !can_be_flushed(&tablet) || self.tablets.is_flushed(tablet, seq);
        let holders = streams
            .into_iter()
            .map(|stream| stream.oldest_holders(is_done).into_iter().collect::<BTreeSet<_>>());
        let mut holders = holders.filter(|holders| !holders.is_empty());
        holders.next().unwrap_or_default()
    }

    /// The tablets with something that was acknowledged and that the log has failed to make durable.
    pub(crate) fn forsaken_holders(&self) -> BTreeSet<TabletId> {
        let is_flushed = |tablet, seq| self.tablets.is_flushed(tablet, seq);
        let holders = |stream: &Arc<Stream>| stream.forsaken_holders(is_flushed);
        self.streams.iter().flat_map(holders).collect()
    }
}
