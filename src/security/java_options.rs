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
        let words = self.text.split_ascii_whitespace();
        let definitions = words.filter_map(|word| word.strip_prefix("-D"));
        let mut values = definitions.filter_map(|definition| {
            let (found, value) = definition.split_once('=').unwrap_or((definition, ""));
            (found == name).then_some(value)
        });
        values.next_back()
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
    }
}
