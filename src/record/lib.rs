//! Record batches: view, check, build, compress; magic 0, 1 and 2.

pub mod batch;
mod checker;
pub mod compression;
pub mod entry;
mod legacy;
pub mod record_errors;
pub mod records;
pub mod validate;

mod varint;
pub mod view;
