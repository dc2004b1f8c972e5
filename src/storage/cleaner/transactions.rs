//! The transactions that a cleaner meets on its way through a log. Source: `CleanedTransactionMetadata`.

use std::collections::{BTreeMap, HashMap, HashSet};

use common::ids::{Offset, ProducerId};
use record::entry::EntryHeader;

use crate::{log_append::marker, transaction_index::AbortedTransaction};

/// What is open at the batch that was read last. Begins anew with each pass over a log.
#[derive(Debug, Default)]
pub(crate) struct Transactions {
    /// Aborted ones that begin later, by first and last offset.
    upcoming: BTreeMap<(Offset, Offset), AbortedTransaction>,
    aborted: HashMap<ProducerId, Aborted>,
    /// Producers that batches of a transaction were seen of that is not aborted.
    committed: HashSet<ProducerId>,
    /// Aborted ones whose markers stay: the index of what is being written.
    pub(crate) retained: Vec<AbortedTransaction>,
}

#[derive(Debug)]
struct Aborted {
    transaction: AbortedTransaction,
    /// Whether a batch of it was seen.
    has_data: bool,
}

impl Transactions {
    /// Takes aborted transactions from a segment's index, which may have come before.
    pub(crate) fn add(&mut self, transactions: &[AbortedTransaction]) {
        for transaction in transactions {
            let key = (transaction.first_offset, transaction.last_offset);
            self.upcoming.insert(key, *transaction);
        }
    }

    /// Takes the next batch. Whether its records may go: those of an aborted transaction; a marker whose transaction
    /// has no batch left.
    pub(crate) fn take(&mut self, header: &EntryHeader, bytes: &[u8]) -> bool {
        while let Some(entry) = self.upcoming.first_entry()
            && entry.key().0 <= header.last_offset
        {
            let transaction = entry.remove();
            let aborted = Aborted { transaction, has_data: false };
            self.aborted.entry(transaction.producer_id).or_insert(aborted);
        }
        match header.is_control {
            true => self.take_marker(header, bytes),
            false => header.is_transactional && self.take_data(header),
        }
    }

    fn take_data(&mut self, header: &EntryHeader) -> bool {
        match self.aborted.get_mut(&header.producer_id) {
            // An index that were wrong must not cost records of a later transaction.
            Some(aborted) if header.last_offset <= aborted.transaction.last_offset => {
                aborted.has_data = true;
                true
            }
            _ => {
                self.committed.insert(header.producer_id);
                false
            }
        }
    }

    fn take_marker(&mut self, header: &EntryHeader, bytes: &[u8]) -> bool {
        if header.record_count == Some(0) {
            return true;
        }
        match marker(bytes) {
            Some(marker) if marker.abort => match self.aborted.remove(&header.producer_id) {
                Some(aborted) if aborted.has_data => {
                    self.retained.push(aborted.transaction);
                    false
                }
                _ => true,
            },
            Some(_) => !self.committed.remove(&header.producer_id),
            None => false,
        }
    }
}
