//! Record batches: view, check, build, compress; magic 0, 1 and 2.

#[cfg(test)]
mod answer_tests;
pub mod batch;
pub mod build;
mod checker;
pub mod compression;
pub mod control;
pub mod convert;
#[cfg(test)]
mod damage_tests;
pub mod entry;
#[cfg(test)]
mod golden_tests;
mod growth;
mod gzip;
mod legacy;
mod lz4;
pub mod produce_version;
#[cfg(test)]
mod property_tests;
pub mod record_errors;
pub mod records;
pub mod rewrite;
mod skim;
mod snappy;
mod up_convert;
pub mod validate;
mod varint;
pub mod view;
mod walk;
mod window;
mod zstandard;
