//! `<base>.txnindex`: the aborted transactions whose markers are in a segment. Source: `TransactionIndex`, `AbortedTxn`.

use common::ids::{Offset, ProducerId};

const ENTRY_LENGTH: usize = 34;
const VERSION: i16 = 0;

/// A transaction that was aborted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AbortedTransaction {
    /// Whose it was.
    pub producer_id: ProducerId,
    /// Its first record.
    pub first_offset: Offset,
    /// Its marker.
    pub last_offset: Offset,
    /// The last stable offset just after the marker was appended.
    pub last_stable_offset: Offset,
}

/// Decodes a file; `None` where its length, a version or the order of its entries is wrong.
pub fn decode(bytes: &[u8], base: Offset) -> Option<Vec<AbortedTransaction>> {
    let (entries, rest) = bytes.as_chunks::<ENTRY_LENGTH>();
    if !rest.is_empty() {
        return None;
    }
    let mut transactions = Vec::with_capacity(entries.len());
    let mut previous = Offset(base.0.saturating_sub(1));
    for entry in entries {
        let number = |at: usize| i64::from_be_bytes(entry[at..at + 8].try_into().expect("8 bytes"));
        let transaction = AbortedTransaction {
            producer_id: ProducerId(number(2)),
            first_offset: Offset(number(10)),
            last_offset: Offset(number(18)),
            last_stable_offset: Offset(number(26)),
        };
        let version = i16::from_be_bytes([entry[0], entry[1]]);
        if version != VERSION || transaction.last_offset <= previous {
            return None;
        }
        previous = transaction.last_offset;
        transactions.push(transaction);
    }
    Some(transactions)
}

/// The bytes of entries.
pub(crate) fn encode(transactions: &[AbortedTransaction]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(transactions.len() * ENTRY_LENGTH);
    for transaction in transactions {
        bytes.extend_from_slice(&VERSION.to_be_bytes());
        bytes.extend_from_slice(&transaction.producer_id.0.to_be_bytes());
        bytes.extend_from_slice(&transaction.first_offset.0.to_be_bytes());
        bytes.extend_from_slice(&transaction.last_offset.0.to_be_bytes());
        bytes.extend_from_slice(&transaction.last_stable_offset.0.to_be_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::{AbortedTransaction, Offset, ProducerId, decode, encode};

    #[test]
    fn entries_read_back_and_wrong_ones_are_noticed() {
        let one = AbortedTransaction {
            producer_id: ProducerId(5),
            first_offset: Offset(10),
            last_offset: Offset(20),
            last_stable_offset: Offset(21),
        };
        let two = AbortedTransaction { last_offset: Offset(30), ..one };
        let bytes = encode(&[one, two]);
        assert_eq!(decode(&bytes, Offset(10)), Some(vec![one, two]));
        assert_eq!(decode(&bytes[..50], Offset(10)), None);
        assert_eq!(decode(&bytes, Offset(21)), None);
        assert_eq!(decode(&encode(&[two, one]), Offset(0)), None);
        assert_eq!(decode(&[1; 34], Offset(0)), None);
    }
}
