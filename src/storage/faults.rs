//! Disk faults for tests: the next write of this thread takes so many bytes, then fails.

use std::{
    cell::{Cell, RefCell},
    fs::File,
    io,
    io::IoSlice,
    os::unix::fs::FileExt,
};

thread_local! {
    static STEPS: RefCell<Option<Box<dyn FnMut()>>> = const { RefCell::new(None) };
    static NEXT: Cell<Option<(usize, io::ErrorKind)>> = const { Cell::new(None) };
}

/// Makes the next write of this thread fail after `bytes` bytes.
pub(crate) fn fail_next_write(bytes: usize, kind: io::ErrorKind) {
    NEXT.set(Some((bytes, kind)));
}

/// Called before each write of batches.
pub(crate) fn before_write(file: &File, pieces: &[IoSlice<'_>], position: u64) -> io::Result<()> {
    let Some((bytes, kind)) = NEXT.take() else { return Ok(()) };
    let all: Vec<u8> = pieces.iter().flat_map(|piece| piece.iter().copied()).collect();
    file.write_all_at(&all[..bytes.min(all.len())], position)?;
    Err(kind.into())
}

/// Calls `observe` before each step of this thread's file operations that crash tests look at, until it is `None`.
pub(crate) fn on_steps(observe: Option<Box<dyn FnMut()>>) {
    STEPS.set(observe);
}

/// Called before compaction writes or renames a file, and before each rename of a segment's file.
pub(crate) fn before_step() {
    let observe = STEPS.take();
    if let Some(mut observe) = observe {
        observe();
        STEPS.set(Some(observe));
    }
}
