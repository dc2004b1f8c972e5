//! `/latest_producer_id_block`: the last block of producer ids given out.

use common::ids::{BrokerId, ProducerId};
use serde::{Deserialize, Serialize};

use super::{DocumentError, from_json, from_text, to_json};
use crate::paths;

/// Producer ids in a block. Source: `ProducerIdsBlock.PRODUCER_ID_BLOCK_SIZE`.
pub const BLOCK_SIZE: i64 = 1000;

/// A block of producer ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducerIdBlock {
    /// Who took it.
    pub broker: BrokerId,
    /// Its first id.
    pub first: ProducerId,
    /// Its last id; not below `first`.
    pub last: ProducerId,
}

#[derive(Serialize, Deserialize)]
struct Wire {
    #[serde(skip_deserializing)]
    version: i64,
    broker: i32,
    block_start: String,
    block_end: String,
}

impl ProducerIdBlock {
    /// Reads the last block; no data means that none was given out.
    pub fn parse(data: &[u8]) -> Result<Option<ProducerIdBlock>, DocumentError> {
        const PATH: &str = paths::PRODUCER_ID_BLOCK;
        if data.is_empty() {
            return Ok(None);
        }
        let wire: Wire = from_json(PATH, data)?;
        let first: i64 = from_text(PATH, "block_start", &wire.block_start)?;
        let last: i64 = from_text(PATH, "block_end", &wire.block_end)?;
        if first < 0 || last < first {
            return Err(DocumentError::new(PATH, format!("block from {first} to {last}")));
        }
        let (first, last) = (ProducerId(first), ProducerId(last));
        Ok(Some(ProducerIdBlock { broker: BrokerId(wire.broker), first, last }))
    }

    /// Writes it.
    pub fn to_bytes(&self) -> Vec<u8> {
        to_json(&Wire {
            version: 1,
            broker: self.broker.0,
            block_start: self.first.to_string(),
            block_end: self.last.to_string(),
        })
    }

    /// The block after `previous`; `None` once the 63 bits are used up.
    pub fn after(previous: Option<ProducerIdBlock>, broker: BrokerId) -> Option<ProducerIdBlock> {
        let first = match previous {
            None => 0,
            Some(block) => block.last.0.checked_add(1)?,
        };
        let last = first.checked_add(BLOCK_SIZE - 1)?;
        Some(ProducerIdBlock { broker, first: ProducerId(first), last: ProducerId(last) })
    }
}
