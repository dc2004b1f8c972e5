//! Log directories: segments, indexes, recovery, retention.
