//! Configuration: the table of all keys, and what a broker and a topic read from it.
//!
//! `table` has the rows, `broker::BrokerConfig` what one broker needs, `topic::TopicConfig` what one topic needs,
//! `dynamic` what ZooKeeper lays over a broker's file, `alter` what may be put there, `describe` what DescribeConfigs tells, `document` what `docs/configuration.md` says.

pub mod alter;
pub mod broker;
mod checks;
pub mod describe;
pub mod document;
pub mod dynamic;
pub mod ibp;
mod keys;
pub mod listener;
pub mod table;
pub mod topic;
pub mod validate;
pub mod value;
pub mod values;
