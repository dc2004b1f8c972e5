//! Scripts of requests about groups and transactions, whose answers depend on what was asked before.

mod group;
mod groups;
mod instances;
mod offsets;
mod transactions;

use kafka_protocol::messages::ApiKey;
use protocol::api;
use serde_json::{Value as Json, json};

use crate::scenarios::{Names, Step};

/// A script, told in rounds: in round N every API is asked in version N, or the nearest that it has.
pub(crate) struct Conversation {
    pub(crate) name: &'static str,
    /// The APIs that it is about: it is told when one of them is wanted.
    pub(crate) apis: &'static [ApiKey],
    /// First and last round.
    pub(crate) rounds: (i16, i16),
    pub(crate) lines: fn(&Names, i16) -> Vec<Line>,
}

/// One request of a conversation, or its answer.
pub(crate) struct Line {
    pub(crate) label: &'static str,
    /// Which of the side's connections.
    pub(crate) connection: usize,
    pub(crate) manner: Manner,
    pub(crate) step: Step,
}

/// How a line is asked.
#[derive(Clone, Copy)]
pub(crate) enum Manner {
    /// Asks, and compares the answers.
    Ask,
    /// Asks; the answers come later.
    Start,
    /// Compares the answers to what was started on the connection.
    Finish,
    /// Asks again and again until both answers have this in them.
    Until(&'static str),
}

impl Line {
    fn on(self, connection: usize) -> Line {
        Line { connection, ..self }
    }

    fn starts(self) -> Line {
        Line { manner: Manner::Start, ..self }
    }

    fn until(self, text: &'static str) -> Line {
        Line { manner: Manner::Until(text), ..self }
    }
}

/// All conversations.
pub(crate) fn all() -> Vec<Conversation> {
    let mut all = groups::all();
    all.extend(instances::all());
    all.extend(offsets::all());
    all.extend(transactions::all());
    all
}

/// Makes both brokers create what coordinators need, and wait until it is there.
pub(crate) fn coordinators(names: &Names) -> Vec<Line> {
    let key = |key_type: i8| json!({"CoordinatorKeys": [names.fresh], "KeyType": key_type});
    let init = json!({"TransactionalId": null, "TransactionTimeoutMs": 60000, "ProducerId": -1, "ProducerEpoch": -1});
    let described = json!({"TransactionalIds": [names.fresh]});
    vec![
        pinned("groups", ApiKey::FindCoordinator, 4, key(0)).until("error_code: 0"),
        pinned("transactions", ApiKey::FindCoordinator, 4, key(1)).until("error_code: 0"),
        pinned("loaded", ApiKey::DescribeGroups, 4, json!({"Groups": [names.fresh]}))
            .until("error_code: 0"),
        // It is not known, and that is known.
        pinned("transactions loaded", ApiKey::DescribeTransactions, 0, described)
            .until("error_code: 105"),
        pinned("producer", ApiKey::InitProducerId, 4, init).until("error_code: 0"),
    ]
}

/// A request in the version of the round.
fn ask(round: i16, label: &'static str, key: ApiKey, body: Json) -> Line {
    let api = api::find(key as i16).expect("in the table");
    pinned(label, key, round.clamp(api.min, api.max), body)
}

/// A request in one version.
fn pinned(label: &'static str, api: ApiKey, version: i16, body: Json) -> Line {
    Line { label, connection: 0, manner: Manner::Ask, step: Step { api, version, body } }
}

/// The answer to what was started on a connection.
fn finish(label: &'static str, connection: usize, of: ApiKey) -> Line {
    Line { manner: Manner::Finish, ..pinned(label, of, 0, json!({})) }.on(connection)
}
