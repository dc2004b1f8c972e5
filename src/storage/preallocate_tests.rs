//! Preallocation: blocks are reserved, sizes are not.

use std::os::unix::fs::MetadataExt;

use crate::{
    log_config::LogConfig,
    testing::{Folder, append, batch},
};

#[test]
fn a_preallocated_segment_reserves_blocks_and_gives_back_what_it_did_not_use() {
    let folder = Folder::new();
    let config = LogConfig { preallocate: true, segment_bytes: 1 << 20, ..LogConfig::default() };
    let log = folder.create(config);
    append(&log, batch()).unwrap();
    let first = log.path().join("00000000000000000000.log");
    let metadata = std::fs::metadata(&first).unwrap();
    assert_eq!(metadata.len(), log.size(), "the size is that of the records");
    assert!(metadata.blocks() * 512 >= 1 << 20, "{} blocks", metadata.blocks());
    log.roll().unwrap();
    let metadata = std::fs::metadata(&first).unwrap();
    assert!(metadata.blocks() * 512 < 1 << 20, "{} blocks", metadata.blocks());
    assert_eq!(metadata.len(), log.size());
}
