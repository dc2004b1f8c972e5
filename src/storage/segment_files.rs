//! Names of a segment's files: the base offset in twenty digits, and what kind of file it is.

use common::ids::Offset;

/// `<base>.log`: the batches.
pub(crate) const LOG: &str = ".log";
/// `<base>.index`: offsets to positions.
pub(crate) const OFFSET_INDEX: &str = ".index";
/// `<base>.timeindex`: timestamps to offsets.
pub(crate) const TIME_INDEX: &str = ".timeindex";
/// `<base>.txnindex`: aborted transactions.
pub(crate) const TRANSACTION_INDEX: &str = ".txnindex";
/// `<offset>.snapshot`: producers.
pub(crate) const SNAPSHOT: &str = ".snapshot";

/// Added to a file that waits for its removal.
pub(crate) const DELETED: &str = ".deleted";
/// Added to a file that compaction or a split is writing.
pub(crate) const CLEANED: &str = ".cleaned";
/// Added to a file that is complete and takes the place of others.
pub(crate) const SWAP: &str = ".swap";

/// Name of a file: `name(Offset(7), LOG)` is `00000000000000000007.log`.
pub(crate) fn name(base: Offset, extension: &str) -> String {
    format!("{:020}{extension}", base.0)
}

/// The offset that a file's name begins with. Source: `LogFileUtils.offsetFromFileName`.
pub(crate) fn offset(name: &str) -> Option<Offset> {
    let digits = name.split('.').next()?;
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok().map(Offset)
}

#[cfg(test)]
mod tests {
    use super::{LOG, Offset, name, offset};

    #[test]
    fn names_have_twenty_digits_and_read_back() {
        assert_eq!(name(Offset(7), LOG), "00000000000000000007.log");
        assert_eq!(offset("00000000000000000007.log.swap"), Some(Offset(7)));
        assert_eq!(offset("partition.metadata"), None);
        assert_eq!(offset("99999999999999999999.log"), None);
    }
}
