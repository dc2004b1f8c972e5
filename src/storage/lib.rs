//! Log directories: segments, indexes, recovery, retention, compaction. Files are Kafka's, byte for byte.
//!
//! Begin with `log_manager::LogManager`, which holds the logs of all directories, and `log::Log`, one partition's.
//! What a log does is spread over `log_load` and `log_recover` (opening), `log_append`, `log_read`, `log_truncate`
//! (both ends) and `log_files` (new segments, flushes, closing). Threads only: whoever calls waits for the disk.

mod atomic_file;
mod batch_reader;
pub mod checkpoint;
pub mod cleaner;
mod directory_lock;
pub mod directory_name;
mod epoch_check;
pub mod error;
#[cfg(test)]
mod faults;
mod file_cache;
mod index;
mod kept_tail;
pub mod leader_epochs;
pub mod log;
pub mod log_append;
mod log_append_run;
pub mod log_config;
mod log_files;
pub mod log_load;
pub mod log_manager;
pub mod log_manager_load;
pub mod log_read;
mod log_recover;
mod log_segments;
mod log_truncate;
pub mod maintenance;
mod mapped;
pub mod meta_properties;
pub mod partition_metadata;
pub mod producer_limit;
pub mod producer_snapshot;
pub mod producer_state;
mod recent;
mod replay;
mod scan;
mod segment;
mod segment_files;
pub mod shared;
pub mod transaction_index;
pub mod verification;

#[cfg(test)]
mod concurrency_tests;
#[cfg(test)]
mod crash_tests;
#[cfg(test)]
mod follower_crash_tests;
#[cfg(test)]
mod golden_tests;
#[cfg(test)]
mod log_append_run_tests;
#[cfg(test)]
mod log_manager_tests;
#[cfg(test)]
mod log_tests;
#[cfg(test)]
mod preallocate_tests;
#[cfg(test)]
mod retention_tests;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod transaction_tests;
