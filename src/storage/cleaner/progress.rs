//! How far compaction has come with one log, and whether it is at work on it.

use common::ids::Offset;

/// Kept by each log, under a lock of its own that is held for a line.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    cleaned_to: Option<Offset>,
    status: Status,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Status {
    /// May be chosen. Next: `Busy`.
    #[default]
    Idle,
    /// A cleaner thread has it, to clean it or for its retention. Next: `Idle`, `Uncleanable`.
    Busy,
    /// Its data could not be cleaned: left alone until the broker starts again.
    Uncleanable,
}

impl Progress {
    /// First offset that was not compacted yet; `None` where nothing was.
    pub(crate) fn cleaned_to(&self) -> Option<Offset> {
        self.cleaned_to
    }

    pub(crate) fn set_cleaned_to(&mut self, offset: Option<Offset>) {
        self.cleaned_to = offset;
    }

    /// The log was cut, and its last segment now begins at `base`: what follows is new, or not there.
    pub(crate) fn truncate(&mut self, base: Offset) {
        self.cleaned_to = self.cleaned_to.map(|cleaned_to| cleaned_to.min(base));
    }

    /// Takes the log for one thread; whether it was free.
    pub(crate) fn begin(&mut self) -> bool {
        let is_free = self.status == Status::Idle;
        if is_free {
            self.status = Status::Busy;
        }
        is_free
    }

    /// Gives the log back.
    pub(crate) fn end(&mut self) {
        if self.status == Status::Busy {
            self.status = Status::Idle;
        }
    }

    /// Leaves the log alone from now on.
    pub(crate) fn give_up(&mut self) {
        self.status = Status::Uncleanable;
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.status == Status::Idle
    }

    pub(crate) fn is_uncleanable(&self) -> bool {
        self.status == Status::Uncleanable
    }
}
