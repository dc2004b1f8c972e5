//! The admission check: a walk over the bytes of a request that decides whether the codec may see them.
//!
//! The codec reserves memory for the length that an array claims, so eight bytes of a stranger would end the process.
//! The walk allocates nothing. It checks each length against the bytes that are left, and the number of elements against
//! a budget, by the table of shapes. What it admits, the codec decodes, in memory that the budget bounds.
//!
//! It reads as Kafka's generated readers do, except where the codec is stricter: only -1 stands for null (Kafka takes any
//! negative length), and strings are UTF-8 (Kafka replaces what is not). Bytes behind the last field are left over.

use kafka_protocol::messages::ApiKey;
use thiserror::Error;

use crate::api::Api;
use crate::shapes::{self, Field, Shape};

/// The longest string of any version. Source: Kafka's generated readers.
const STRING_LENGTH_MAX: usize = 0x7fff;

/// What a request may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Structs and strings in arrays, and tagged fields that are not known, in all: what costs more memory than bytes.
    pub elements_max: usize,
}

impl Limits {
    /// The limits for an API. What describes a whole cluster may be larger.
    pub fn of(api: &Api) -> Limits {
        let elements_max = match api.key {
            ApiKey::LeaderAndIsr | ApiKey::StopReplica | ApiKey::UpdateMetadata => 1_000_000,
            _ => 200_000,
        };
        Limits { elements_max }
    }
}

/// Why a request is not admitted.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("{problem} in field {field}")]
pub struct AdmissionError {
    /// Kafka's name of the field, or of the request where no field is at fault.
    pub field: &'static str,
    /// What is wrong with it.
    pub problem: Problem,
}

/// What is wrong with a field.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum Problem {
    /// The bytes end before it does.
    #[error("the request ends")]
    Ends,
    /// It is null in a version that does not allow it.
    #[error("null")]
    Null,
    /// A length that cannot be.
    #[error("invalid length {0}")]
    Length(i64),
    /// A string that is not UTF-8.
    #[error("not UTF-8")]
    NotUtf8,
    /// A varint of more than five bytes.
    #[error("varint too long")]
    Varint,
    /// A known tag in a version that does not have it.
    #[error("tag of another version")]
    Tag,
    /// More elements than a request may have.
    #[error("too many elements")]
    Elements,
    /// The API has no such version, or is none of ours.
    #[error("no such version")]
    Version,
}

/// Checks the body of a request: what follows its header.
pub fn admit(api: &Api, version: i16, body: &[u8], limits: Limits) -> Result<(), AdmissionError> {
    walk(api, version, body, limits).map(|_| ())
}

/// Gives the number of bytes that are left over.
fn walk(api: &Api, version: i16, body: &[u8], limits: Limits) -> Result<usize, AdmissionError> {
    let no_version = AdmissionError { field: api.name, problem: Problem::Version };
    if !api.supports(version) {
        return Err(no_version);
    }
    let fields = shapes::of(api.key).ok_or(no_version)?;
    let mut walk = Walk {
        bytes: body,
        version,
        is_flexible: api.is_flexible(version),
        elements_left: limits.elements_max,
    };
    walk.fields(api.name, fields)?;
    Ok(walk.bytes.len())
}

struct Walk<'a> {
    /// What is left.
    bytes: &'a [u8],
    version: i16,
    is_flexible: bool,
    elements_left: usize,
}

impl<'a> Walk<'a> {
    /// `owner` names a fault of the struct itself.
    fn fields(
        &mut self,
        owner: &'static str,
        fields: &'static [Field],
    ) -> Result<(), AdmissionError> {
        for field in fields {
            if field.tag.is_none() && field.is_in(self.version) {
                self.value(field)?;
            }
        }
        if self.is_flexible { self.tagged_fields(owner, fields) } else { Ok(()) }
    }

    fn value(&mut self, field: &'static Field) -> Result<(), AdmissionError> {
        let failed = |problem| AdmissionError { field: field.name, problem };
        match field.shape {
            Shape::Fixed(length) => self.take(length).map(|_| ()).map_err(failed),
            Shape::Struct(fields) => self.fields(field.name, fields),
            Shape::String => {
                let nullable = field.is_nullable_in(self.version);
                self.string(nullable).map_err(failed)
            }
            Shape::Bytes => {
                let length =
                    self.length(LengthOf::Bytes).and_then(|length| self.present(field, length));
                let length = length.map_err(failed)?.unwrap_or(0);
                self.take(length).map(|_| ()).map_err(failed)
            }
            Shape::FixedArray(element_length) => {
                let count =
                    self.length(LengthOf::Array).and_then(|count| self.present(field, count));
                let count = count.map_err(failed)?.unwrap_or(0);
                // As a count is below 2^32, the product cannot overflow.
                self.take(count * element_length).map(|_| ()).map_err(failed)
            }
            Shape::StringArray => {
                for _ in 0..self.elements(field).map_err(failed)? {
                    self.string(false).map_err(failed)?;
                }
                Ok(())
            }
            Shape::StructArray(fields) => {
                for _ in 0..self.elements(field).map_err(failed)? {
                    self.fields(field.name, fields)?;
                }
                Ok(())
            }
        }
    }

    /// The count of an array whose elements cost memory of their own; each has a byte at least.
    fn elements(&mut self, field: &Field) -> Result<usize, Problem> {
        let count = self.length(LengthOf::Array).and_then(|count| self.present(field, count))?;
        let count = count.unwrap_or(0);
        if count > self.bytes.len() {
            return Err(Problem::Ends);
        }
        self.elements_left = self.elements_left.checked_sub(count).ok_or(Problem::Elements)?;
        Ok(count)
    }

    fn present(&self, field: &Field, length: Option<usize>) -> Result<Option<usize>, Problem> {
        match length {
            None if !field.is_nullable_in(self.version) => Err(Problem::Null),
            length => Ok(length),
        }
    }

    fn string(&mut self, nullable: bool) -> Result<(), Problem> {
        let Some(length) = self.length(LengthOf::String)? else {
            return if nullable { Ok(()) } else { Err(Problem::Null) };
        };
        if length > STRING_LENGTH_MAX {
            return Err(Problem::Length(length as i64));
        }
        match std::str::from_utf8(self.take(length)?) {
            Ok(_) => Ok(()),
            Err(_) => Err(Problem::NotUtf8),
        }
    }

    fn tagged_fields(
        &mut self,
        owner: &'static str,
        fields: &'static [Field],
    ) -> Result<(), AdmissionError> {
        let failed = |problem| AdmissionError { field: owner, problem };
        let count = self.varint().map_err(failed)?;
        for _ in 0..count {
            let tag = self.varint().map_err(failed)?;
            let size = self.varint().map_err(failed)?;
            match fields.iter().find(|field| field.tag == Some(tag)) {
                // Neither Kafka nor the codec compares the size with what the field takes.
                Some(field) if field.is_in(self.version) => self.value(field)?,
                Some(_) => return Err(failed(Problem::Tag)),
                None => {
                    let left = self.elements_left.checked_sub(1);
                    self.elements_left = left.ok_or(failed(Problem::Elements))?;
                    self.take(size as usize).map_err(failed)?;
                }
            }
        }
        Ok(())
    }

    /// A length or a count; none stands for null.
    fn length(&mut self, of: LengthOf) -> Result<Option<usize>, Problem> {
        let length = match of {
            _ if self.is_flexible => i64::from(self.varint()?) - 1,
            LengthOf::String => i64::from(i16::from_be_bytes(self.take_array()?)),
            LengthOf::Bytes | LengthOf::Array => i64::from(i32::from_be_bytes(self.take_array()?)),
        };
        match usize::try_from(length) {
            Ok(length) => Ok(Some(length)),
            Err(_) if length == -1 => Ok(None),
            Err(_) => Err(Problem::Length(length)),
        }
    }

    /// Source: `ByteUtils.readUnsignedVarint`.
    fn varint(&mut self) -> Result<u32, Problem> {
        let mut value = 0;
        for shift in [0, 7, 14, 21, 28] {
            let [byte] = self.take_array()?;
            value |= u32::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(Problem::Varint)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Problem> {
        let (taken, left) = self.bytes.split_at_checked(length).ok_or(Problem::Ends)?;
        self.bytes = left;
        Ok(taken)
    }

    fn take_array<const N: usize>(&mut self) -> Result<[u8; N], Problem> {
        let (taken, left) = self.bytes.split_first_chunk().ok_or(Problem::Ends)?;
        self.bytes = left;
        Ok(*taken)
    }
}

/// Whose length it is: in versions that are not flexible they have different sizes.
enum LengthOf {
    String,
    Bytes,
    Array,
}

#[cfg(test)]
mod tests;
