//! A segment of a log: its batches' file and its indexes. How offsets and timestamps are found in it.

use std::{
    fs::File,
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use common::ids::{Offset, Timestamp};

use crate::{
    atomic_file,
    error::{Context, Fault, is_shortage},
    file_cache::FileId,
    index::{self, Entries, Entry, Index, OffsetEntry, TimeEntry},
    mapped::Mapped,
    scan::{Found, HeaderScan, ScanError, header_at},
    segment_files::{self, LOG, OFFSET_INDEX, TIME_INDEX},
    shared::{Shared, open_existing, open_or_create},
};

/// A timestamp, and the last offset of the first batch that has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimestampOffset {
    pub(crate) timestamp: Timestamp,
    pub(crate) offset: Offset,
}

/// One segment as the log holds it, under the log's lock. Small: a log may have thousands.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    /// Names the `.log` in the cache of files; the next two numbers name the indexes.
    pub(crate) id: FileId,
    pub(crate) base: Offset,
    /// Bytes of whole batches; the file may have more after a write that failed.
    pub(crate) size: u64,
    pub(crate) offsets: Index<OffsetEntry>,
    pub(crate) times: Index<TimeEntry>,
    /// The largest timestamp and where it is; `None` until it is looked for. Timestamp -1 where no record has one.
    pub(crate) largest: Option<TimestampOffset>,
    /// Whether there is a `.txnindex` file.
    pub(crate) has_transaction_index: bool,
    /// Whether the `.txnindex` is known to hold what the batches say.
    pub(crate) transaction_index_checked: bool,
}

impl Segment {
    /// A new segment without files.
    pub(crate) fn new(shared: &Shared, base: Offset) -> Segment {
        Segment {
            id: shared.next_segment_id(),
            base,
            size: 0,
            offsets: Index::empty(),
            times: Index::empty(),
            largest: Some(TimestampOffset { timestamp: Timestamp::NONE, offset: base }),
            has_transaction_index: false,
            transaction_index_checked: true,
        }
    }

    /// A segment whose files are there, and were not looked at but for the log's size.
    pub(crate) fn found(shared: &Shared, base: Offset, size: u64) -> Segment {
        Segment {
            size,
            offsets: Index::unread(),
            times: Index::unread(),
            largest: None,
            transaction_index_checked: false,
            ..Segment::new(shared, base)
        }
    }

    /// What a reader needs, apart from the lock.
    pub(crate) fn view(&self, directory: &Arc<Path>, is_active: bool) -> SegmentView {
        SegmentView {
            id: self.id,
            base: self.base,
            size: self.size,
            directory: directory.clone(),
            stored_offsets: is_active.then_some(self.offsets.stored.unwrap_or(0)),
            stored_times: is_active.then_some(self.times.stored.unwrap_or(0)),
        }
    }
}

/// A segment as it was when the lock was left: enough to read it.
#[derive(Clone, Debug)]
pub(crate) struct SegmentView {
    pub(crate) id: FileId,
    pub(crate) base: Offset,
    pub(crate) size: u64,
    pub(crate) directory: Arc<Path>,
    /// Entries of the index files, where they may still grow; `None` for a sealed segment: all that is there.
    stored_offsets: Option<u32>,
    stored_times: Option<u32>,
}

impl SegmentView {
    pub(crate) fn path(&self, extension: &str) -> PathBuf {
        self.directory.join(segment_files::name(self.base, extension))
    }

    fn offset_index_id(&self) -> FileId {
        FileId(self.id.0 + 1)
    }

    fn time_index_id(&self) -> FileId {
        FileId(self.id.0 + 2)
    }

    /// The log's file.
    pub(crate) fn log(&self, shared: &Shared) -> Result<Arc<File>, Fault> {
        shared.files.get(self.id, || {
            let path = self.path(LOG);
            let opened = open_existing(&path).or_else(|error| match is_shortage(&error) {
                true => {
                    shared.files.clear();
                    open_existing(&path)
                }
                false => Err(error),
            });
            opened.context("open", path)
        })
    }

    fn read_fault(&self, error: impl Into<io::Error>) -> Fault {
        Fault { action: "read", path: self.path(LOG), source: error.into() }
    }

    /// The first batch from `position` on whose last offset is at least `target`.
    pub(crate) fn find_from(
        &self,
        file: &File,
        position: u64,
        target: Offset,
    ) -> Result<Option<Found>, ScanError> {
        let mut scan = HeaderScan::new(file, position, self.size);
        while let Some(found) = scan.next()? {
            if found.header.last_offset >= target {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// The first batch whose last offset is at least `target`: the one that holds it, or the next one. By the offset
    /// index's file, as far as that goes.
    pub(crate) fn find(
        &self,
        shared: &Shared,
        file: &File,
        target: Offset,
    ) -> Result<Option<Found>, Fault> {
        let mut scan = match self.entry_before(shared, file, target)? {
            None => HeaderScan::new(file, 0, self.size),
            Some(entry) => {
                let mut scan = HeaderScan::new(file, u64::from(entry.position), self.size);
                match scan.next() {
                    Ok(Some(found)) if self.agrees(entry, &found) => {
                        if found.header.last_offset >= target {
                            return Ok(Some(found));
                        }
                        scan
                    }
                    Err(ScanError::Read(error)) => return Err(self.read_fault(error)),
                    // Makes the index again.
                    _ => {
                        let position = self.position_before(shared, file, target)?;
                        HeaderScan::new(file, position, self.size)
                    }
                }
            }
        };
        while let Some(found) = scan.next().map_err(|error| self.read_fault(error))? {
            if found.header.last_offset >= target {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// A position at which a batch begins that lies at or before the one with `target`, by the offset index's file.
    pub(crate) fn position_before(
        &self,
        shared: &Shared,
        file: &File,
        target: Offset,
    ) -> Result<u64, Fault> {
        for attempt in 0..2 {
            let Some(entry) = self.entry_before(shared, file, target)? else { return Ok(0) };
            if self.entry_is_right(file, entry).map_err(|error| self.read_fault(error))? {
                return Ok(u64::from(entry.position));
            }
            if attempt == 0 && self.stored_offsets.is_none() {
                tracing::warn!(path = %self.path(OFFSET_INDEX).display(), "index is wrong, rebuilding it");
                self.rebuild_offset_index(shared, file)?;
            }
        }
        Ok(0)
    }

    /// The last entry of the offset index's file whose offset is not beyond `target`.
    fn entry_before(
        &self,
        shared: &Shared,
        file: &File,
        target: Offset,
    ) -> Result<Option<OffsetEntry>, Fault> {
        let Some(relative) = index::relative(self.base, target.max(self.base)) else {
            return Ok(None);
        };
        let Some(map) = self.offset_map(shared, file)? else { return Ok(None) };
        let entries = Entries::<OffsetEntry>::trusted(&map);
        let floor = entries.floor(|entry| entry.relative <= relative);
        Ok(floor.and_then(|index| entries.get(index)))
    }

    /// Whether a batch begins at the entry's position, and none before it reaches beyond the entry's offset.
    fn entry_is_right(&self, file: &File, entry: OffsetEntry) -> Result<bool, ScanError> {
        let found = header_at(file, u64::from(entry.position), self.size)?;
        Ok(found.is_some_and(|found| self.agrees(entry, &found)))
    }

    /// Whether the batch at the entry's position agrees with the entry. One that does leads to right answers, wherever
    /// it came from: what lies before the batch is before its first offset, and so before the entry's.
    fn agrees(&self, entry: OffsetEntry, found: &Found) -> bool {
        let offset = self.base.0 + i64::from(entry.relative);
        found.header.first_or_last_offset() >= self.base && found.header.last_offset.0 <= offset
    }

    /// The offset index's file; `None` where it has no entries. What is wrong in its form is rebuilt first.
    fn offset_map(&self, shared: &Shared, file: &File) -> Result<Option<Arc<Mapped>>, Fault> {
        let id = self.offset_index_id();
        let length = self.stored_offsets.map(|count| count as usize * OffsetEntry::SIZE);
        let checked = |bytes: &[u8]| Entries::<OffsetEntry>::checked(bytes, self.size).is_some();
        if let Some(map) = self.map(shared, id, OFFSET_INDEX, length, &checked)? {
            return Ok((!map.is_empty()).then_some(map));
        }
        if length.is_some() {
            return Ok(None);
        }
        self.rebuild_offset_index(shared, file)?;
        Ok(self.map(shared, id, OFFSET_INDEX, length, &checked)?.filter(|map| !map.is_empty()))
    }

    /// A checked map of an index file, of `length` or of all of it. `None` where the file is not there or wrong.
    fn map(
        &self,
        shared: &Shared,
        id: FileId,
        extension: &str,
        length: Option<usize>,
        checked: &dyn Fn(&[u8]) -> bool,
    ) -> Result<Option<Arc<Mapped>>, Fault> {
        if let Some(map) = shared.maps.find(id)
            && length.is_none_or(|length| map.len() == length)
        {
            return Ok(Some(map));
        }
        let path = self.path(extension);
        let Some(map) = map_file(&path, length).context("map", &path)? else { return Ok(None) };
        if !checked(&map) {
            tracing::warn!(path = %path.display(), "index is malformed, rebuilding it");
            return Ok(None);
        }
        let map = Arc::new(map);
        shared.maps.insert(id, map.clone());
        Ok(Some(map))
    }

    /// Writes the offset index of a sealed segment anew from its batches.
    fn rebuild_offset_index(&self, shared: &Shared, file: &File) -> Result<(), Fault> {
        let entries = self.scan_entries(file)?.0;
        let bytes = index::encode(&entries);
        self.replace_index(shared, self.offset_index_id(), OFFSET_INDEX, &bytes).map(|_| ())
    }

    /// Writes the time index of a sealed segment anew from its batches.
    fn rebuild_time_index(&self, shared: &Shared, file: &File) -> Result<(), Fault> {
        let entries = self.scan_entries(file)?.1;
        let bytes = index::encode(&entries);
        self.replace_index(shared, self.time_index_id(), TIME_INDEX, &bytes).map(|_| ())
    }

    /// Both indexes as recovery makes them.
    fn scan_entries(&self, file: &File) -> Result<(Vec<OffsetEntry>, Vec<TimeEntry>), Fault> {
        let mut builder = IndexBuilder::new(self.base, REBUILD_INTERVAL_BYTES);
        let mut scan = HeaderScan::new(file, 0, self.size);
        while let Some(found) = scan.next().map_err(|error| self.read_fault(error))? {
            builder.add(&found);
        }
        builder.seal();
        Ok((builder.offsets, builder.times))
    }

    /// Puts a new index file in the place of the old one, if that has another content; whether it had. Maps of the
    /// old file stay as they are.
    pub(crate) fn replace_index(
        &self,
        shared: &Shared,
        id: FileId,
        extension: &str,
        bytes: &[u8],
    ) -> Result<bool, Fault> {
        let path = self.path(extension);
        let replaced = atomic_file::replace_if_different(&path, bytes).context("write", &path)?;
        shared.files.remove(id);
        shared.maps.remove(id);
        Ok(replaced)
    }

    /// Appends entries to an index file that has `stored` entries.
    pub(crate) fn append_index<E: Entry>(
        &self,
        shared: &Shared,
        extension: &str,
        index: &Index<E>,
    ) -> Result<(), Fault> {
        let id =
            if extension == OFFSET_INDEX { self.offset_index_id() } else { self.time_index_id() };
        let path = self.path(extension);
        let file = shared.files.get(id, || open_or_create(&path)).context("open", &path)?;
        let position = u64::from(index.stored.unwrap_or(0)) * E::SIZE as u64;
        file.write_all_at(&index.encode_tail(), position).context("write", path)
    }

    /// Syncs what the segment has on disk.
    pub(crate) fn sync(&self, shared: &Shared, with_indexes: bool) -> Result<(), Fault> {
        let path = self.path(LOG);
        self.log(shared)?.sync_data().context("sync", path)?;
        if !with_indexes {
            return Ok(());
        }
        for (id, extension) in
            [(self.offset_index_id(), OFFSET_INDEX), (self.time_index_id(), TIME_INDEX)]
        {
            let path = self.path(extension);
            let file = shared.files.get(id, || open_or_create(&path)).context("open", &path)?;
            file.sync_data().context("sync", path)?;
        }
        Ok(())
    }

    /// Forgets the segment's open files and maps.
    pub(crate) fn forget(&self, shared: &Shared) {
        for id in [self.id, self.offset_index_id(), self.time_index_id()] {
            shared.files.remove(id);
            shared.maps.remove(id);
        }
    }

    /// The largest timestamp of the segment, and the last offset of the first batch that has it.
    ///
    /// The time index's last entry is believed where the batches around it agree with it.
    pub(crate) fn largest_timestamp(
        &self,
        shared: &Shared,
        tail: &[TimeEntry],
    ) -> Result<TimestampOffset, Fault> {
        let none = TimestampOffset { timestamp: Timestamp::NONE, offset: self.base };
        if self.size == 0 {
            return Ok(none);
        }
        let file = self.log(shared)?;
        for attempt in 0..2 {
            let times = self.time_entries(shared, &file)?;
            let entry = tail.last().copied().or_else(|| times.entries().last());
            let previous = match tail.len() {
                0 => times
                    .entries()
                    .len()
                    .checked_sub(2)
                    .and_then(|index| times.entries().get(index)),
                1 => times.entries().last(),
                length => Some(tail[length - 2]),
            };
            let Some(position) = self.check_time_entry(shared, &file, previous, entry)? else {
                self.distrust_times(shared, &file, attempt)?;
                continue;
            };
            let known = entry.map_or(none, |entry| self.timestamp_offset(entry));
            let (largest, is_later) = self.largest_from(&file, position, known)?;
            // A sealed segment's index ends with its largest timestamp.
            if is_later && self.stored_times.is_none() && attempt == 0 {
                self.distrust_times(shared, &file, attempt)?;
                continue;
            }
            return Ok(largest);
        }
        Ok(self.largest_from(&file, 0, none)?.0)
    }

    fn timestamp_offset(&self, entry: TimeEntry) -> TimestampOffset {
        let offset = Offset(self.base.0 + i64::from(entry.relative));
        TimestampOffset { timestamp: entry.timestamp, offset }
    }

    /// The largest timestamp of `known` and the batches from `position` on; whether it is one of those.
    fn largest_from(
        &self,
        file: &File,
        position: u64,
        known: TimestampOffset,
    ) -> Result<(TimestampOffset, bool), Fault> {
        let (mut largest, mut is_later) = (known, false);
        let mut scan = HeaderScan::new(file, position, self.size);
        while let Some(found) = scan.next().map_err(|error| self.read_fault(error))? {
            if found.header.max_timestamp > largest.timestamp {
                let Found { header, .. } = found;
                largest =
                    TimestampOffset { timestamp: header.max_timestamp, offset: header.last_offset };
                is_later = true;
            }
        }
        Ok((largest, is_later))
    }

    fn distrust_times(&self, shared: &Shared, file: &File, attempt: i32) -> Result<(), Fault> {
        if attempt == 0 && self.stored_times.is_none() {
            tracing::warn!(path = %self.path(TIME_INDEX).display(), "index is wrong, rebuilding it");
            self.rebuild_time_index(shared, file)?;
        }
        Ok(())
    }

    /// Whether the entry says what the batches say, given that the one before it does: the first batch after
    /// `previous` with a timestamp as large as the entry's is the one that holds the entry's offset, and its largest
    /// timestamp is the entry's. Gives the position after that batch; without an entry, the first position.
    ///
    /// If `previous` is the wrong one of the two, an entry that passes is right all the same.
    fn check_time_entry(
        &self,
        shared: &Shared,
        file: &File,
        previous: Option<TimeEntry>,
        entry: Option<TimeEntry>,
    ) -> Result<Option<u64>, Fault> {
        let Some(entry) = entry.map(|entry| self.timestamp_offset(entry)) else {
            return Ok(Some(0));
        };
        let after = previous.map(|previous| self.timestamp_offset(previous).offset);
        let position = match after {
            Some(after) => self.position_before(shared, file, after)?,
            None => 0,
        };
        let mut scan = HeaderScan::new(file, position, self.size);
        while let Some(found) = scan.next().map_err(|error| self.read_fault(error))? {
            let header = &found.header;
            if after.is_some_and(|after| header.last_offset <= after) {
                continue;
            }
            if header.last_offset >= entry.offset {
                // Brokers before 3.6 wrote the offset of the record, which may be any one of the batch.
                let is_right = header.first_or_last_offset() <= entry.offset
                    && header.max_timestamp == entry.timestamp;
                return Ok(is_right.then(|| found.end()));
            }
            if header.max_timestamp >= entry.timestamp {
                return Ok(None);
            }
        }
        Ok(None)
    }

    /// A position from which a search for the first record with a timestamp of at least `target` may begin.
    pub(crate) fn position_before_timestamp(
        &self,
        shared: &Shared,
        file: &File,
        tail: &[TimeEntry],
        target: Timestamp,
    ) -> Result<u64, Fault> {
        for attempt in 0..2 {
            let times = self.time_entries(shared, file)?;
            let entries = times.entries();
            let in_tail = tail.partition_point(|entry| entry.timestamp <= target);
            let at = match in_tail {
                0 => entries.floor(|entry| entry.timestamp <= target).map_or(0, |index| index + 1),
                _ => entries.len() + in_tail,
            };
            let get = |index: usize| {
                entries.get(index).or_else(|| tail.get(index.checked_sub(entries.len())?).copied())
            };
            let Some(index) = at.checked_sub(1) else { return Ok(0) };
            let entry = get(index);
            let previous = index.checked_sub(1).and_then(get);
            if self.check_time_entry(shared, file, previous, entry)?.is_some()
                && let Some(entry) = entry
            {
                return self.position_before(shared, file, self.timestamp_offset(entry).offset);
            }
            self.distrust_times(shared, file, attempt)?;
        }
        Ok(0)
    }

    /// How many entries the offset index's file has, and from which position on batches have to be walked to find the
    /// segment's end. `None` where it is not the index of this segment.
    pub(crate) fn stored_offsets(&self, shared: &Shared) -> Result<Option<(u32, u64)>, Fault> {
        let Some(bytes) = self.read_index(OFFSET_INDEX)? else { return Ok(None) };
        let Some(entries) = Entries::<OffsetEntry>::checked(&bytes, self.size) else {
            return Ok(None);
        };
        let Some(last) = entries.last() else { return Ok(Some((0, 0))) };
        let file = self.log(shared)?;
        let is_right = self.entry_is_right(&file, last).map_err(|error| self.read_fault(error))?;
        let count = u32::try_from(entries.len()).unwrap_or(u32::MAX);
        Ok(is_right.then_some((count, u64::from(last.position))))
    }

    /// How many entries the time index's file has; `None` where it is not a time index.
    pub(crate) fn stored_times(&self) -> Result<Option<u32>, Fault> {
        let Some(bytes) = self.read_index(TIME_INDEX)? else { return Ok(None) };
        let entries = Entries::<TimeEntry>::checked(&bytes, self.size);
        Ok(entries.map(|entries| u32::try_from(entries.len()).unwrap_or(u32::MAX)))
    }

    fn read_index(&self, extension: &str) -> Result<Option<Vec<u8>>, Fault> {
        let path = self.path(extension);
        atomic_file::read(&path, INDEX_SIZE_MAX).context("read", path)
    }

    /// The timestamp of the time index's last entry; -1 where there is none.
    pub(crate) fn last_time_entry(
        &self,
        shared: &Shared,
        tail: &[TimeEntry],
    ) -> Result<Timestamp, Fault> {
        if let Some(entry) = tail.last() {
            return Ok(entry.timestamp);
        }
        let file = self.log(shared)?;
        let last = self.time_entries(shared, &file)?.entries().last();
        Ok(last.map_or(Timestamp::NONE, |entry| entry.timestamp))
    }

    /// The first entry of the offset index's file whose position is at least `position`.
    /// Source: `OffsetIndex.fetchUpperBoundOffset`.
    pub(crate) fn entry_after_position(
        &self,
        shared: &Shared,
        file: &File,
        position: u64,
    ) -> Result<Option<OffsetEntry>, Fault> {
        let Some(map) = self.offset_map(shared, file)? else { return Ok(None) };
        let entries = Entries::<OffsetEntry>::trusted(&map);
        let before = entries.floor(|entry| u64::from(entry.position) < position);
        Ok(entries.get(before.map_or(0, |index| index + 1)))
    }

    /// When the log's file was last written: the age of a segment whose records have no timestamps.
    pub(crate) fn modified(&self) -> Result<Timestamp, Fault> {
        let path = self.path(LOG);
        let modified = std::fs::metadata(&path).and_then(|metadata| metadata.modified());
        let since_1970 = modified
            .context("look at", path)?
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap_or_default();
        Ok(Timestamp(i64::try_from(since_1970.as_millis()).unwrap_or(i64::MAX)))
    }

    fn time_entries(&self, shared: &Shared, file: &File) -> Result<TimeEntries, Fault> {
        let id = self.time_index_id();
        let length = self.stored_times.map(|count| count as usize * TimeEntry::SIZE);
        let checked = |bytes: &[u8]| Entries::<TimeEntry>::checked(bytes, self.size).is_some();
        if let Some(map) = self.map(shared, id, TIME_INDEX, length, &checked)? {
            return Ok(TimeEntries(Some(map)));
        }
        if length.is_none() {
            self.rebuild_time_index(shared, file)?;
        }
        Ok(TimeEntries(self.map(shared, id, TIME_INDEX, length, &checked)?))
    }
}

/// The entries of a time index's file.
struct TimeEntries(Option<Arc<Mapped>>);

impl TimeEntries {
    fn entries(&self) -> Entries<'_, TimeEntry> {
        Entries::trusted(self.0.as_deref().map_or(&[], |map| map))
    }
}

/// Largest index that is read: `segment.index.bytes` is a 31-bit number.
const INDEX_SIZE_MAX: u64 = i32::MAX as u64;
/// Bytes between entries of an index that is rebuilt: Kafka's default of `index.interval.bytes`.
const REBUILD_INTERVAL_BYTES: u64 = 4096;

/// Maps an index file, its first `length` bytes or all of it; `None` where the file is not there or too short.
fn map_file(path: &Path, length: Option<usize>) -> io::Result<Option<Mapped>> {
    if length == Some(0) {
        return Ok(Some(Mapped::empty()));
    }
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let available = file.metadata()?.len();
    let length = length.unwrap_or(usize::try_from(available).unwrap_or(usize::MAX));
    if available < length as u64 {
        return Ok(None);
    }
    Mapped::new(&file, length).map(Some)
}

/// Makes both indexes of a segment from its batches. Source: `LogSegment.recover`.
pub(crate) struct IndexBuilder {
    base: Offset,
    interval_bytes: u64,
    last_entry_position: u64,
    pub(crate) offsets: Vec<OffsetEntry>,
    pub(crate) times: Vec<TimeEntry>,
    pub(crate) largest: TimestampOffset,
}

impl IndexBuilder {
    pub(crate) fn new(base: Offset, interval_bytes: u64) -> IndexBuilder {
        IndexBuilder {
            base,
            interval_bytes,
            last_entry_position: 0,
            offsets: Vec::new(),
            times: Vec::new(),
            largest: TimestampOffset { timestamp: Timestamp::NONE, offset: base },
        }
    }

    /// Takes the next batch.
    pub(crate) fn add(&mut self, found: &Found) {
        let header = &found.header;
        if header.max_timestamp > self.largest.timestamp {
            self.largest =
                TimestampOffset { timestamp: header.max_timestamp, offset: header.last_offset };
        }
        if found.position - self.last_entry_position > self.interval_bytes {
            self.add_entry(header.last_offset, found.position);
            self.seal();
            self.last_entry_position = found.position;
        }
    }

    fn add_entry(&mut self, offset: Offset, position: u64) {
        if let (Some(relative), Ok(position)) =
            (index::relative(self.base, offset), u32::try_from(position))
        {
            self.offsets.push(OffsetEntry { relative, position });
        }
    }

    /// Adds the entry of the largest timestamp, as is done when a segment ends.
    pub(crate) fn seal(&mut self) {
        let TimestampOffset { timestamp, offset } = self.largest;
        let last = self.times.last().map_or(Timestamp::NONE, |entry| entry.timestamp);
        if timestamp > last
            && let Some(relative) = index::relative(self.base, offset)
        {
            self.times.push(TimeEntry { timestamp, relative });
        }
    }
}
