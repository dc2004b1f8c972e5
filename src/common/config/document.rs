//! Prints `docs/configuration.md` from the table.

use super::table::{self, ConfigKey, Effect, Importance, Update};

/// The whole page.
pub fn page() -> String {
    let mut page = INTRODUCTION.to_owned();
    let broker = || table::broker_keys();
    let count = |effect| broker().filter(|key| key.effect == effect).count();
    page.push_str(&format!(
        "Of {} broker keys {} work, {} have no effect yet, {} act in KRaft mode only, {} need the \
         Java virtual machine, and {} tune parts that this broker does not have; ignored, as by Kafka at a newer \
         inter-broker protocol: {}.\n\n",
        broker().count(),
        count(Effect::Works),
        count(Effect::NotYet),
        count(Effect::KRaftOnly),
        count(Effect::JavaOnly),
        count(Effect::Moot),
        count(Effect::NewestFormat),
    ));
    for group in table::broker_groups() {
        section(&mut page, group.title, group.keys, "Update", |key| update(key.update).to_owned());
    }
    section(&mut page, "Topics", table::topic_keys(), "Broker key", |key| {
        table::topic_synonym(key.name).map_or_else(String::new, |name| format!("`{name}`"))
    });
    page
}

const INTRODUCTION: &str = "\
# Configuration

Every key of Kafka 3.9 that a broker in ZooKeeper mode reads, as the broker holds it: this page is printed from the
table in `src/common/config/keys/` (`UPDATE_EXPECT=1 cargo test -p tests configuration` prints it again).

A value is trimmed, then read by its type; a wrong one is refused at start together with all other wrong ones.
An unknown key, and a known one that does nothing here, is warned of. The *Effect* column tells what a key does:

| Effect | Meaning |
|---|---|
| works | what it does in Kafka |
| no effect yet | checked and shown; what it steers is not built |
| acts in KRaft mode only | Kafka reads it in ZooKeeper mode too, and does nothing with it |
| needs the Java virtual machine | names a Java class, or tunes what only a JVM has |
| nothing to tune in this broker | steers a part of Kafka that this broker does not have, such as thread pools |
| ignored, as by Kafka at IBP >= 3.0 | checked and shown; below that `inter.broker.protocol.version` Kafka would store records in an old format |

*Update*: *read-only* keys are read from the file, at start. *Per-broker* and *cluster-wide* ones may stand in ZooKeeper as well, where
`kafka-configs.sh` puts them, by whichever broker: what is set for one broker beats what is set for all, and that beats the file. They are
read at start, and the log names them. While the broker runs it takes changes of the defaults of topics (the keys that *Topics* below names as
*Broker key*), of the quotas of replication, of `producer.id.expiration.ms` and of `transaction.partition.verification.enable` at once; for
others it warns that they count from its next start. *Per-broker* keys, which are those of listeners and their security, and passwords
are not changed at this broker: a request to do so is refused, and passwords in ZooKeeper are not read yet.
*Dynamic only* ones stand in ZooKeeper and never in a file. A default of *null* means \"not set\".
Where the note gives an order `a > b`, `a` wins when it is set.

";

fn section(
    page: &mut String,
    title: &str,
    keys: &[ConfigKey],
    column: &str,
    fill: fn(&ConfigKey) -> String,
) {
    page.push_str(&format!(
        "## {title}\n\n| Key | Type | Default | Valid | Importance | {column} | Effect | Meaning |\n|---|---|---|---|---|---|---|---|\n"
    ));
    for key in keys {
        let note = if key.note.is_empty() { String::new() } else { format!(" ({})", key.note) };
        page.push_str(&format!(
            "| `{}`{} | {} | {} | {} | {} | {} | {} | {}{} |\n",
            key.name,
            if key.internal { " (internal)" } else { "" },
            key.kind.name().to_lowercase(),
            default(key),
            cell(&key.valid.to_string()),
            importance(key.importance),
            fill(key),
            key.effect.describe(),
            cell(key.doc),
            cell(&note),
        ));
    }
    page.push('\n');
}

/// A text that may stand in a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('*', "\\*").replace('<', "&lt;")
}

fn default(key: &ConfigKey) -> String {
    match key.default {
        None => "null".to_owned(),
        Some("") => "(empty)".to_owned(),
        Some(default) => format!("`{}`", default.replace('|', "\\|")),
    }
}

fn importance(importance: Importance) -> &'static str {
    match importance {
        Importance::High => "high",
        Importance::Medium => "medium",
        Importance::Low => "low",
    }
}

fn update(update: Update) -> &'static str {
    match update {
        Update::ReadOnly => "read-only",
        Update::PerBroker => "per-broker",
        Update::ClusterWide => "cluster-wide",
        Update::DynamicOnly => "dynamic only",
    }
}
