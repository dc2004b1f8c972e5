//! The edges of every field: each leaf of a request is given one value after the other, the rest staying as it is.

use protocol::schema::{FieldSchema, Kind};

use crate::value::{Path, Value, replaced, varint};

/// A request with one thing changed.
pub(crate) struct Mutant {
    /// What was changed: `Topics.Partitions.Offset=-1`.
    pub(crate) name: String,
    /// The field that was changed, by Kafka's names.
    pub(crate) field: String,
    pub(crate) body: Value,
}

/// A value that a scenario wants tried in a field of a name, beside the edges.
pub(crate) struct Extra {
    pub(crate) field: &'static str,
    pub(crate) values: Vec<Value>,
    /// What the values are called; those that have no name are called as they are.
    pub(crate) labels: Vec<&'static str>,
}

impl Extra {
    /// Values that speak for themselves.
    pub(crate) fn of(field: &'static str, values: Vec<Value>) -> Extra {
        Extra { field, values, labels: Vec::new() }
    }
}

/// What is not wanted, by the end of the field's path and the value's text.
pub(crate) type Skip<'a> = &'a dyn Fn(&str, &Value) -> bool;

/// Names that are on neither side, or cannot be.
pub(crate) const LONGEST_NAME: usize = 249;

/// Every mutant of a base request.
pub(crate) fn mutants(
    schema: &[FieldSchema],
    base: &Value,
    is_flexible: bool,
    extras: &[Extra],
    skip: Skip,
) -> Vec<Mutant> {
    let mut walk = Walk { base, is_flexible, extras, skip, mutants: Vec::new() };
    walk.fields(schema, base, &Vec::new(), "");
    walk.mutants
}

struct Walk<'a> {
    base: &'a Value,
    is_flexible: bool,
    extras: &'a [Extra],
    skip: Skip<'a>,
    mutants: Vec<Mutant>,
}

impl Walk<'_> {
    fn fields(&mut self, schema: &[FieldSchema], value: &Value, path: &Path, prefix: &str) {
        let Value::Fields(values) = value else { return };
        for (index, field) in schema.iter().enumerate() {
            let here: Path = path.iter().copied().chain([index]).collect();
            let name = format!("{prefix}{}", field.name);
            let current = values.get(index).and_then(|value| value.as_ref());
            self.field(field, current, &here, &name);
        }
        if self.is_flexible {
            let extra =
                |bytes: &[u8]| Some(Value::Verbatim([&[0xe7, 0x07], bytes].concat().to_vec()));
            let unknown = [("unknown tag", extra(&[3, 1, 2, 3])), ("tag's size", extra(&[0x7f]))];
            for (label, tag) in unknown {
                let mut fields = values.clone();
                fields.push(tag);
                self.push(&format!("{prefix}*"), label, path, &Value::Fields(fields));
            }
        }
    }

    fn field(&mut self, field: &FieldSchema, current: Option<&Value>, path: &Path, name: &str) {
        for value in edges(&field.kind, current, self.is_flexible) {
            if Some(&value) != current {
                self.push(name, &value.to_string(), path, &value);
            }
        }
        let extras = self.extras;
        for extra in extras.iter().filter(|extra| extra.field == field.name) {
            for (index, value) in extra.values.iter().enumerate() {
                let label = extra.labels.get(index).map(|label| (*label).to_owned());
                self.push(name, &label.unwrap_or_else(|| value.to_string()), path, value);
            }
        }
        let prefix = format!("{name}.");
        match (&field.kind, current) {
            (Kind::Struct(fields), Some(value)) => self.fields(fields, value, path, &prefix),
            (Kind::StructArray(fields), Some(Value::List(items))) => {
                if let Some(first) = items.first() {
                    let inside: Path = path.iter().copied().chain([0]).collect();
                    self.fields(fields, first, &inside, &prefix);
                }
            }
            _ => {}
        }
    }

    fn push(&mut self, field: &str, label: &str, path: &Path, by: &Value) {
        if (self.skip)(field, by) {
            return;
        }
        self.mutants.push(Mutant {
            name: format!("{field}={label}"),
            field: field.to_owned(),
            body: replaced(self.base, path, by),
        });
    }
}

fn edges(kind: &Kind, current: Option<&Value>, is_flexible: bool) -> Vec<Value> {
    match kind {
        Kind::Fixed(16) => vec![
            Value::Raw(vec![0; 16]),
            Value::Raw([vec![0; 15], vec![1]].concat()),
            Value::Raw(vec![0xab; 16]),
        ],
        Kind::Fixed(length) => numbers(*length),
        Kind::String => strings(is_flexible),
        Kind::Bytes => vec![
            Value::Raw(Vec::new()),
            Value::Null,
            Value::Raw(vec![0]),
            Value::Raw(vec![0; 61]),
            Value::Raw(vec![0xff; 100]),
            claimed(1_000_000, 4, is_flexible),
            negative(4, is_flexible),
        ],
        Kind::FixedArray(length) => {
            let lists: [&[i64]; 8] = [&[], &[0], &[0, 0], &[-1], &[1], &[0, 1], &[1, 0, 2], &[99]];
            let list = |numbers: &[i64]| {
                Value::List(numbers.iter().map(|number| Value::Number(*number)).collect())
            };
            let mut values: Vec<Value> = lists.iter().map(|numbers| list(numbers)).collect();
            values.push(Value::Null);
            if *length == 4 {
                values.push(list(&[i64::from(i32::MAX), i64::from(i32::MIN)]));
            }
            values.push(claimed(0x7fff_fff0, 4, is_flexible));
            values.push(negative(4, is_flexible));
            values
        }
        Kind::StringArray => {
            let text = |text: &str| Value::Text(text.to_owned());
            let mut values = vec![
                Value::List(Vec::new()),
                Value::Null,
                Value::List(vec![text("")]),
                Value::List(vec![text("unknown")]),
                Value::List(vec![Value::Null]),
                Value::List(vec![text("a/b"), text("unknown"), text("unknown")]),
                claimed(0x7fff_fff0, 4, is_flexible),
                negative(4, is_flexible),
            ];
            if let Some(Value::List(items)) = current {
                values.push(Value::List([items.clone(), items.clone()].concat()));
                values.push(Value::List([items.clone(), vec![text("unknown")]].concat()));
            }
            values
        }
        Kind::StructArray(_) => {
            let mut values = vec![
                Value::List(Vec::new()),
                Value::Null,
                claimed(0x7fff_fff0, 4, is_flexible),
                negative(4, is_flexible),
            ];
            if let Some(Value::List(items)) = current {
                values.push(Value::List([items.clone(), items.clone()].concat()));
                if items.len() > 1 {
                    values.push(Value::List(items.iter().rev().cloned().collect()));
                }
            }
            values
        }
        Kind::Struct(_) => Vec::new(),
    }
}

fn numbers(length: usize) -> Vec<Value> {
    let numbers: &[i64] = match length {
        1 => &[-128, -1, 0, 1, 2, 3, 4, 5, 8, 16, 32, 127],
        2 => &[-32768, -2, -1, 0, 1, 2, 3, 32767],
        4 => &[-2_147_483_648, -3, -2, -1, 0, 1, 2, 3, 7, 1000, 2_147_483_647],
        _ => &[i64::MIN, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 7, 1000, 1 << 33, i64::MAX],
    };
    numbers.iter().map(|number| Value::Number(*number)).collect()
}

fn strings(is_flexible: bool) -> Vec<Value> {
    let texts = ["", "a", "unknown", ".", "..", "a/b", "a b", "gr\u{f6}\u{df}e", "nul\0", "%2e"];
    let mut values: Vec<Value> = texts.iter().map(|text| Value::Text((*text).to_owned())).collect();
    let long = [LONGEST_NAME + 1, 0x7fff].map(|length| Value::Text("x".repeat(length)));
    values.extend(long);
    values.push(Value::Null);
    values.push(Value::Raw(vec![0x61, 0xff, 0xfe, 0x62]));
    values.push(claimed(30_000, 2, is_flexible));
    values.push(negative(2, is_flexible));
    values
}

/// A length that the bytes behind it do not bear out.
fn claimed(length: usize, bytes: usize, is_flexible: bool) -> Value {
    if is_flexible {
        return Value::Verbatim(varint(length + 1));
    }
    Value::Verbatim((length as u64).to_be_bytes()[8 - bytes..].to_vec())
}

/// A length below null's; compact lengths have a varint too long instead.
fn negative(bytes: usize, is_flexible: bool) -> Value {
    if is_flexible {
        return Value::Verbatim(vec![0xff; 6]);
    }
    Value::Verbatim((-2i64).to_be_bytes()[8 - bytes..].to_vec())
}

/// Every leaf of a schema, by path: what the scenarios of an API have to change between them.
pub(crate) fn leaves(schema: &[FieldSchema], prefix: &str, into: &mut Vec<String>) {
    for field in schema {
        let name = format!("{prefix}{}", field.name);
        match &field.kind {
            Kind::Struct(fields) => leaves(fields, &format!("{name}."), into),
            Kind::StructArray(fields) => {
                leaves(fields, &format!("{name}."), into);
                into.push(name);
            }
            _ => into.push(name),
        }
    }
}
