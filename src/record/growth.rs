//! How large buffers grow: doubling while they are small, then by steps, so that none is much larger than what it holds.

const STEP_MAX: usize = 16 * 1024 * 1024;

/// Makes room for `capacity` bytes in all.
pub(crate) fn reserve(bytes: &mut Vec<u8>, capacity: usize) {
    if capacity > bytes.capacity() {
        let step = bytes.capacity().min(STEP_MAX);
        let grown = capacity.max(bytes.capacity() + step);
        bytes.reserve_exact(grown - bytes.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_doubles_and_then_grows_by_steps() {
        let mut bytes = Vec::new();
        let mut steps = 0;
        for length in 1..=(64 << 20) / 1024 {
            let before = bytes.capacity();
            reserve(&mut bytes, length * 1024);
            steps += usize::from(bytes.capacity() > before);
            assert!(bytes.capacity() <= (length * 2048).min(length * 1024 + STEP_MAX));
            bytes.resize(length * 1024, 0);
        }
        assert!(steps < 20, "{steps} steps");
    }
}
