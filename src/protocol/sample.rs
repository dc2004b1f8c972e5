//! Random requests, for tests and fuzzing: every field of the table of shapes, with edges more often than not.

use bytes::{BufMut, BytesMut};

use crate::api::Api;
use crate::shapes::{self, Field, Shape};

/// The body of a request in a version that the API has. `random` gives numbers evenly.
pub fn request_body(api: &Api, version: i16, random: &mut dyn FnMut() -> u64) -> BytesMut {
    let mut sample =
        Sample { out: BytesMut::new(), version, is_flexible: api.is_flexible(version), random };
    sample.fields(shapes::of(api.key).unwrap_or_default(), 0);
    sample.out
}

struct Sample<'a> {
    out: BytesMut,
    version: i16,
    is_flexible: bool,
    random: &'a mut dyn FnMut() -> u64,
}

impl Sample<'_> {
    fn below(&mut self, bound: u64) -> u64 {
        (self.random)() % bound
    }

    fn fields(&mut self, fields: &[Field], depth: u64) {
        let version = self.version;
        for field in fields {
            if field.tag.is_none() && field.is_in(version) {
                self.value(field, depth);
            }
        }
        if !self.is_flexible {
            return;
        }
        let mut tagged = Vec::new();
        for field in fields {
            if field.tag.is_some() && field.is_in(version) && self.below(2) == 0 {
                tagged.push(field);
            }
        }
        let unknown = u32::from(self.below(8) == 0);
        self.varint(tagged.len() as u32 + unknown);
        for field in tagged {
            let around = std::mem::take(&mut self.out);
            self.value(field, depth);
            let value = std::mem::replace(&mut self.out, around);
            self.varint(field.tag.unwrap_or_default());
            self.varint(value.len() as u32);
            self.out.put_slice(&value);
        }
        if unknown == 1 {
            let length = self.below(20) as u32;
            self.varint(1_000);
            self.varint(length);
            self.raw(length as usize);
        }
    }

    fn value(&mut self, field: &Field, depth: u64) {
        let is_null = field.is_nullable_in(self.version) && self.below(4) == 0;
        // Deeper arrays are shorter, so that a request stays small.
        let count = self.below(u64::max(5 - depth, 2)) as usize;
        match field.shape {
            Shape::Fixed(length) => self.number(length),
            Shape::Struct(fields) => self.fields(fields, depth + 1),
            Shape::String if is_null => self.length(None, 2),
            Shape::String => self.string(),
            _ if is_null => self.length(None, 4),
            Shape::Bytes => {
                let length = self.below(60) as usize;
                self.length(Some(length), 4);
                self.raw(length);
            }
            Shape::FixedArray(length) => {
                self.length(Some(count), 4);
                (0..count).for_each(|_| self.number(length));
            }
            Shape::StringArray => {
                self.length(Some(count), 4);
                (0..count).for_each(|_| self.string());
            }
            Shape::StructArray(fields) => {
                self.length(Some(count), 4);
                (0..count).for_each(|_| self.fields(fields, depth + 1));
            }
        }
    }

    /// Small numbers, -1, both ends, and anything.
    fn number(&mut self, length: usize) {
        if length == 1 {
            let byte = self.below(2); // Both a boolean and a small number, written the same by everybody.
            return self.out.put_u8(byte as u8);
        }
        match self.below(6) {
            0 => self.out.put_bytes(0xff, length),
            1 => {
                self.out.put_u8(0x7f);
                self.out.put_bytes(0xff, length - 1);
            }
            2 => {
                self.out.put_u8(0x80);
                self.out.put_bytes(0, length - 1);
            }
            3 => self.raw(length),
            _ => {
                let small = self.below(20);
                self.out.put_bytes(0, length - 1);
                self.out.put_u8(small as u8);
            }
        }
    }

    fn string(&mut self) {
        const WORDS: [&str; 8] =
            ["", "a", "topic-1", "kafka", "__consumer_offsets", "größe", "日本語", "a.b_c-d"];
        let word = WORDS[self.below(WORDS.len() as u64) as usize];
        self.length(Some(word.len()), 2);
        self.out.put_slice(word.as_bytes());
    }

    fn raw(&mut self, length: usize) {
        for _ in 0..length {
            let byte = self.below(256);
            self.out.put_u8(byte as u8);
        }
    }

    /// A length or count; `bytes` says how many it takes where it is not compact.
    fn length(&mut self, length: Option<usize>, bytes: usize) {
        match length {
            _ if self.is_flexible => self.varint(length.map_or(0, |length| length as u32 + 1)),
            Some(length) => self.out.put_uint(length as u64, bytes),
            None => self.out.put_bytes(0xff, bytes),
        }
    }

    fn varint(&mut self, mut value: u32) {
        while value >= 0x80 {
            self.out.put_u8(value as u8 | 0x80);
            value >>= 7;
        }
        self.out.put_u8(value as u8);
    }
}
