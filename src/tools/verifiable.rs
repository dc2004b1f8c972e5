//! Events of the verifiable producer and consumer: a JSON object a line, its members in Kafka's order.

use common::{clock, topic::TopicPartition};
use serde_json::Value;

use crate::{argparse::Argument, console::say};

/// An event that is being put together.
pub(crate) struct Event(String);

impl Event {
    /// An event of that name, now.
    pub(crate) fn new(name: &str) -> Event {
        Event(String::new()).raw("timestamp", &clock::wall_clock().to_string()).text("name", name)
    }

    /// A part of an event.
    pub(crate) fn part() -> Event {
        Event(String::new())
    }

    /// A member whose value is JSON already.
    pub(crate) fn raw(mut self, name: &str, json: &str) -> Event {
        self.0.push(if self.0.is_empty() { '{' } else { ',' });
        self.0.push_str(&format!("\"{name}\":{json}"));
        self
    }

    /// A member that is a text.
    pub(crate) fn text(self, name: &str, text: &str) -> Event {
        self.raw(name, &Value::from(text).to_string())
    }

    /// A member that is a text or null.
    pub(crate) fn nullable(self, name: &str, text: Option<&str>) -> Event {
        self.raw(name, &Value::from(text).to_string())
    }

    /// A member that is a number.
    pub(crate) fn number(self, name: &str, number: impl std::fmt::Display) -> Event {
        self.raw(name, &number.to_string())
    }

    /// A member that is a list of objects.
    pub(crate) fn list(self, name: &str, parts: impl IntoIterator<Item = Event>) -> Event {
        let parts: Vec<String> = parts.into_iter().map(Event::json).collect();
        self.raw(name, &format!("[{}]", parts.join(",")))
    }

    /// Topic and partition.
    pub(crate) fn place(self, partition: &TopicPartition) -> Event {
        self.text("topic", &partition.topic).number("partition", partition.partition)
    }

    fn json(mut self) -> String {
        self.0.push('}');
        self.0
    }

    /// Prints the event.
    pub(crate) fn print(self) {
        say(&self.json());
    }
}

/// An option with a value.
pub(crate) const fn argument(
    name: &'static str,
    metavar: &'static str,
    help: &'static str,
) -> Argument {
    Argument {
        name,
        metavar: Some(metavar),
        is_required: false,
        takes_many: false,
        is_choice: false,
        help,
    }
}

/// One of the two options that name the brokers.
pub(crate) const fn servers(name: &'static str, help: &'static str) -> Argument {
    Argument { is_choice: true, ..argument(name, "HOST1:PORT1[,HOST2:PORT2[...]]", help) }
}

#[cfg(test)]
mod tests {
    use common::topic::TopicPartition;

    use super::Event;

    #[test]
    fn members_keep_their_order() {
        let partition = TopicPartition::new("t", 3);
        let event = Event::part()
            .nullable("key", None)
            .text("value", "a\"b")
            .list("partitions", [Event::part().place(&partition).number("count", 2)]);
        assert_eq!(
            event.json(),
            r#"{"key":null,"value":"a\"b","partitions":[{"topic":"t","partition":3,"count":2}]}"#
        );
    }
}
