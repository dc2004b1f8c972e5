//! The table of shapes as data, for what builds requests field by field: tests and fuzzing.

use crate::api::Api;
use crate::shapes::{self, Field, Shape};

/// A field as a version of a request has it.
#[derive(Clone, Debug)]
pub struct FieldSchema {
    /// Kafka's name.
    pub name: &'static str,
    /// What stands on the wire.
    pub kind: Kind,
    /// Whether it may be null.
    pub nullable: bool,
    /// Its number where it is a tagged field, which may be missing.
    pub tag: Option<u32>,
}

/// What stands on the wire.
#[derive(Clone, Debug)]
pub enum Kind {
    /// This many bytes.
    Fixed(usize),
    /// A string.
    String,
    /// Bytes, or records.
    Bytes,
    /// An array of values of this many bytes.
    FixedArray(usize),
    /// An array of strings.
    StringArray,
    /// An array of structs.
    StructArray(Vec<FieldSchema>),
    /// A struct.
    Struct(Vec<FieldSchema>),
}

/// The fields of a request in a version, in their order; tagged ones among them.
pub fn request(api: &Api, version: i16) -> Vec<FieldSchema> {
    fields(shapes::of(api.key).unwrap_or_default(), version)
}

fn fields(of: &[Field], version: i16) -> Vec<FieldSchema> {
    let present = of.iter().filter(|field| field.is_in(version));
    let schema = present.map(|field| FieldSchema {
        name: field.name,
        kind: match field.shape {
            Shape::Fixed(length) => Kind::Fixed(length),
            Shape::String => Kind::String,
            Shape::Bytes => Kind::Bytes,
            Shape::FixedArray(length) => Kind::FixedArray(length),
            Shape::StringArray => Kind::StringArray,
            Shape::StructArray(of) => Kind::StructArray(fields(of, version)),
            Shape::Struct(of) => Kind::Struct(fields(of, version)),
        },
        nullable: field.is_nullable_in(version),
        tag: field.tag,
    });
    schema.collect()
}
