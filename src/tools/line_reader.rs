//! Records from lines of text. Source: `ConsoleProducer.LineMessageReader`.

use bytes::Bytes;
use client::producer::ProducerRecord;
use common::properties::Properties;
use regex::Regex;

/// How a line is taken apart: `headers`, `key` and value, each but the last ended by its separator.
pub(crate) struct LineReader {
    topic: String,
    parse_key: bool,
    key_separator: String,
    parse_headers: bool,
    headers_delimiter: String,
    headers_separator: Regex,
    headers_key_separator: String,
    ignore_error: bool,
    null_marker: Option<String>,
    line_number: u64,
}

impl LineReader {
    /// Takes the reader's properties; the error is Java's text.
    pub(crate) fn new(topic: String, properties: &Properties) -> Result<LineReader, String> {
        let is_true = |name: &str| {
            properties.get(name).is_some_and(|value| value.trim().eq_ignore_ascii_case("true"))
        };
        let text = |name: &str, default: &str| {
            properties.get(name).cloned().unwrap_or_else(|| default.to_owned())
        };
        let headers_separator = text("headers.separator", ",");
        let reader = LineReader {
            topic,
            parse_key: is_true("parse.key"),
            key_separator: text("key.separator", "\t"),
            parse_headers: is_true("parse.headers"),
            headers_delimiter: text("headers.delimiter", "\t"),
            headers_separator: Regex::new(&headers_separator).map_err(|error| error.to_string())?,
            headers_key_separator: text("headers.key.separator", ":"),
            ignore_error: is_true("ignore.error"),
            null_marker: properties.get("null.marker").cloned(),
            line_number: 0,
        };
        reader.check(&headers_separator)?;
        Ok(reader)
    }

    fn check(&self, headers_separator: &str) -> Result<(), String> {
        let pairs = [
            ("headers.delimiter", &*self.headers_delimiter, "headers.separator", headers_separator),
            (
                "headers.delimiter",
                &self.headers_delimiter,
                "headers.key.separator",
                &self.headers_key_separator,
            ),
            (
                "headers.separator",
                headers_separator,
                "headers.key.separator",
                &self.headers_key_separator,
            ),
        ];
        let equal = pairs.iter().find(|(_, one, _, other)| one == other);
        if let Some((one, _, other, _)) = equal {
            return Err(format!("{one} and {other} may not be equal"));
        }
        let Some(marker) = &self.null_marker else { return Ok(()) };
        let others = [
            ("key.separator", &*self.key_separator),
            ("headers.separator", headers_separator),
            ("headers.delimiter", &self.headers_delimiter),
            ("headers.key.separator", &self.headers_key_separator),
        ];
        match others.iter().find(|(_, other)| other == marker) {
            Some((name, _)) => Err(format!("null.marker and {name} may not be equal")),
            None => Ok(()),
        }
    }

    /// Reads the next line; the error is Java's text.
    pub(crate) fn record(&mut self, line: &str) -> Result<ProducerRecord, String> {
        self.line_number += 1;
        let headers = self.part(
            self.parse_headers,
            line,
            &self.headers_delimiter,
            "headers delimiter",
            line,
        )?;
        let after_headers =
            headers.map_or(line, |headers| &line[headers.len() + self.headers_delimiter.len()..]);
        let key =
            self.part(self.parse_key, after_headers, &self.key_separator, "key separator", line)?;
        let value =
            key.map_or(after_headers, |key| &after_headers[key.len() + self.key_separator.len()..]);
        let bytes = |text: &str| {
            (Some(text) != self.null_marker.as_deref())
                .then(|| Bytes::copy_from_slice(text.as_bytes()))
        };
        let headers = match headers {
            Some(headers) if Some(headers) != self.null_marker.as_deref() => {
                self.headers(headers)?
            }
            _ => Vec::new(),
        };
        Ok(ProducerRecord {
            topic: self.topic.clone(),
            key: key.and_then(bytes),
            value: bytes(value),
            headers,
            ..ProducerRecord::default()
        })
    }

    /// What stands before the separator; none where it is not looked for, or is missing and that is forgiven.
    fn part<'a>(
        &self,
        is_wanted: bool,
        text: &'a str,
        separator: &str,
        name: &str,
        line: &str,
    ) -> Result<Option<&'a str>, String> {
        if !is_wanted {
            return Ok(None);
        }
        match text.find(separator) {
            Some(end) => Ok(Some(&text[..end])),
            None if self.ignore_error => Ok(None),
            None => Err(format!("No {name} found on line number {}: '{line}'", self.line_number)),
        }
    }

    fn headers(&self, text: &str) -> Result<Vec<(String, Option<Bytes>)>, String> {
        let mut pairs: Vec<&str> = self.headers_separator.split(text).collect();
        // Java's split drops empty parts at the end, but leaves one.
        while pairs.len() > 1 && pairs.last().is_some_and(|pair| pair.is_empty()) {
            pairs.pop();
        }
        pairs.into_iter().map(|pair| self.header(pair)).collect()
    }

    fn header(&self, pair: &str) -> Result<(String, Option<Bytes>), String> {
        let Some((name, value)) = pair.split_once(&*self.headers_key_separator) else {
            if self.ignore_error {
                return Ok((pair.to_owned(), None));
            }
            return Err(format!(
                "No header key separator found in pair '{pair}' on line number {}",
                self.line_number
            ));
        };
        if let Some(marker) = self.null_marker.as_deref().filter(|marker| *marker == name) {
            return Err(format!(
                "Header keys should not be equal to the null marker '{marker}' as they can't be null"
            ));
        }
        let is_null = Some(value) == self.null_marker.as_deref();
        Ok((name.to_owned(), (!is_null).then(|| Bytes::copy_from_slice(value.as_bytes()))))
    }
}

#[cfg(test)]
mod tests {
    use common::properties::parse;

    use super::LineReader;

    fn read(properties: &str, line: &str) -> Result<String, String> {
        let record =
            LineReader::new("t".to_owned(), &parse(properties.as_bytes()))?.record(line)?;
        let show = |bytes: Option<&bytes::Bytes>| match bytes {
            Some(bytes) => format!("{:?}", String::from_utf8_lossy(bytes)),
            None => "null".to_owned(),
        };
        let headers: Vec<String> = record
            .headers
            .iter()
            .map(|(name, value)| format!("{name}={}", show(value.as_ref())))
            .collect();
        let (key, value) = (show(record.key.as_ref()), show(record.value.as_ref()));
        Ok(format!("[{}] {key} {value}", headers.join(" ")))
    }

    #[test]
    fn lines_are_taken_apart_as_kafka_does() {
        let ok = |properties, line| read(properties, line).unwrap();
        assert_eq!(ok("", "a\tb"), r#"[] null "a\tb""#);
        assert_eq!(ok("parse.key=true", "k\tv\tw"), r#"[] "k" "v\tw""#);
        assert_eq!(
            ok("parse.key=true\nparse.headers=true", "h:1,h:,i:x:y\tk\tv"),
            r#"[h="1" h="" i="x:y"] "k" "v""#
        );
        assert_eq!(ok("parse.key=TRUE\nnull.marker=N\nkey.separator=:", "N:N"), "[] null null");
        assert_eq!(ok("parse.key=true\nignore.error=true", "line"), r#"[] null "line""#);
        assert_eq!(
            ok("parse.headers=true\nheaders.separator=;\nheaders.delimiter=|", "a:1;;|v"),
            r#"[a="1"] null "v""#
        );
    }

    #[test]
    fn faults_name_the_line() {
        let error = |properties, line| read(properties, line).unwrap_err();
        assert_eq!(
            error("parse.key=true", "none"),
            "No key separator found on line number 1: 'none'"
        );
        assert_eq!(
            error("parse.headers=true", "pair\tv"),
            "No header key separator found in pair 'pair' on line number 1"
        );
        assert_eq!(
            error("headers.delimiter=,", ""),
            "headers.delimiter and headers.separator may not be equal"
        );
        assert_eq!(
            error("null.marker=:", ""),
            "null.marker and headers.key.separator may not be equal"
        );
    }
}
