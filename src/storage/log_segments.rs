//! Starts of segments by the time of their files: how ListOffsets version 0 looks offsets up.
//! Source: `UnifiedLog.legacyFetchOffsetsBefore`.

use common::ids::{Offset, Timestamp};

use crate::{error::LogError, log::Log};

/// "The end of the log" in a request. Source: `ListOffsetsRequest.LATEST_TIMESTAMP`.
const LATEST: Timestamp = Timestamp(-1);
/// "The start of the log" in a request. Source: `ListOffsetsRequest.EARLIEST_TIMESTAMP`.
const EARLIEST: Timestamp = Timestamp(-2);

impl Log {
    /// The starts of segments whose files were last changed at `timestamp` or before, newest first, `count` at most;
    /// -1 begins with the log's end, -2 is the log's start alone.
    pub fn offsets_before(
        &self,
        timestamp: Timestamp,
        count: usize,
        now: Timestamp,
    ) -> Result<Vec<Offset>, LogError> {
        let (views, start, end) = {
            let state = self.state.lock();
            let last = state.segments.len() - 1;
            let all = state.segments.iter().enumerate();
            let views: Vec<_> =
                all.map(|(at, segment)| segment.view(&state.path, at == last)).collect();
            (views, state.start, state.end)
        };
        let mut starts = Vec::with_capacity(views.len() + 1);
        for view in &views {
            starts.push((view.base.max(start), view.modified()?));
        }
        if views.last().is_some_and(|view| view.size > 0) {
            starts.push((end, now));
        }
        let found = match timestamp {
            LATEST => starts.len(),
            EARLIEST => 1,
            _ => starts.iter().rposition(|(_, time)| *time <= timestamp).map_or(0, |at| at + 1),
        };
        let mut offsets: Vec<Offset> =
            starts[..found].iter().rev().take(count).map(|(offset, _)| *offset).collect();
        offsets.sort_unstable_by(|one, other| other.cmp(one));
        Ok(offsets)
    }
}

#[cfg(test)]
mod tests {
    use common::ids::{Offset, Timestamp};

    use crate::testing::{Batch, Folder, append, batch, small_segments};

    #[test]
    fn starts_come_newest_first_and_the_end_before_them() {
        let folder = Folder::new();
        let log = folder.create(small_segments());
        for _ in 0..20 {
            append(&log, Batch { count: 2, ..batch() }).unwrap();
        }
        let now = Timestamp(i64::MAX);
        let before = |time, count| log.offsets_before(Timestamp(time), count, now).unwrap();
        let all = before(-1, 100);
        assert_eq!(all.first(), Some(&Offset(40)));
        assert_eq!(all.last(), Some(&Offset(0)));
        assert_eq!(all.len(), log.segment_count() + 1);
        assert_eq!(before(-1, 2), all[..2]);
        assert_eq!(before(-2, 100), [Offset(0)]);
        assert_eq!(before(0, 100), []);
        assert_eq!(before(i64::MAX - 1, 100), all[1..]);
    }
}
