//! System properties as Kafka's scripts hand them to Java: `KAFKA_OPTS="-Dname=value ..."`.

/// Java's options; they may hold passwords, so they are not printed.
#[derive(Clone, Default)]
pub struct JavaOptions {
    text: String,
}

impl JavaOptions {
    /// Takes the text of the variable.
    pub fn new(text: impl Into<String>) -> JavaOptions {
        JavaOptions { text: text.into() }
    }

    /// The value of a system property; of two the last, as in Java.
    pub fn property(&self, name: &str) -> Option<&str> {
        let values = self.properties().filter(|(found, _)| *found == name);
        values.map(|(_, value)| value).last()
    }

    /// The system properties with their values, in the order in which they are given.
    pub fn properties(&self) -> impl Iterator<Item = (&str, &str)> {
        let words = self.text.split_ascii_whitespace();
        let definitions = words.filter_map(|word| word.strip_prefix("-D"));
        definitions.map(|definition| definition.split_once('=').unwrap_or((definition, "")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_definition_counts() {
        let options = JavaOptions::new("-Xmx1g -Da=1 -Db -Dc=x=y\n -Da=2 -Dab=3");
        for (name, value) in
            [("a", Some("2")), ("b", Some("")), ("c", Some("x=y")), ("Xmx1g", None)]
        {
            assert_eq!(options.property(name), value, "{name}");
        }
        let all: Vec<_> = options.properties().collect();
        assert_eq!(all, [("a", "1"), ("b", ""), ("c", "x=y"), ("a", "2"), ("ab", "3")]);
    }
}
