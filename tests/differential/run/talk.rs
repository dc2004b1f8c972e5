//! Conversations: scripts of requests, each side keeping its own state.

use std::time::Duration;

use common::clock;
use protocol::{api, schema};

use super::{Run, Sent, compare, show};
use crate::{
    conversations::{self, Conversation, Line, Manner},
    side::Outcome,
    tree::Difference,
    value,
};

/// How long a state may take to come.
const PATIENCE: Duration = Duration::from_secs(10);
/// A request that waits is given this long to get where it waits, before another connection asks.
const ARRIVAL: Duration = Duration::from_millis(60);

impl Run<'_> {
    /// All of them, in each round: the first asks every API in its first version, the next in its second, and so on; an API
    /// that has no such version in its last.
    pub(super) fn conversations(&mut self) {
        for conversation in conversations::all() {
            let wanted = |key: &kafka_protocol::messages::ApiKey| {
                let api = api::find(*key as i16).expect("in the table");
                self.options.wants_api(api.name)
            };
            if !conversation.apis.iter().any(wanted) {
                continue;
            }
            self.make_coordinators();
            let (first, last) = conversation.rounds;
            for round in first..=last {
                let wanted = self.options.version.is_none_or(|version| version == round);
                // In short, only the first and the last; what has one round waits for answers that do not come.
                let is_edge = first < last && (round == first || round == last);
                let is_left_out = self.options.short && !is_edge;
                if wanted && !is_left_out && !self.is_over {
                    self.conversation(&conversation, round);
                }
            }
        }
    }

    fn conversation(&mut self, conversation: &Conversation, round: i16) {
        self.begin();
        let mut waiting = Vec::new();
        for line in (conversation.lines)(&self.names, round) {
            let name = format!("{} round {round}", conversation.name);
            if self.options.case.as_ref().is_some_and(|wanted| !name.contains(wanted)) {
                return;
            }
            if !self.line(&line, &name, &mut waiting) || self.is_over {
                // Each line after a silence would be one more.
                println!("  the rest of {name} is left out");
                self.kafka.hang_up_all();
                self.ours.hang_up_all();
                return;
            }
        }
    }

    /// One line. False where it makes no sense to go on.
    pub(super) fn line(
        &mut self,
        line: &Line,
        conversation: &str,
        waiting: &mut Vec<(usize, Sent)>,
    ) -> bool {
        for side in [&mut self.kafka, &mut self.ours] {
            side.switch(line.connection);
        }
        let step = &line.step;
        let api = api::find(step.api as i16).expect("lines are about APIs of the table");
        let schema = schema::request(api, step.version);
        let body = value::build(&schema, &step.body);
        let mut version = step.version;
        let answers = match line.manner {
            Manner::Start => {
                let sent = self.send(api, version, &schema, &body);
                waiting.push((line.connection, sent));
                std::thread::sleep(ARRIVAL);
                return true;
            }
            Manner::Finish => {
                let place =
                    waiting.iter().position(|(connection, _)| *connection == line.connection);
                let (_, sent) = waiting.remove(place.expect("what finishes has been started"));
                version = sent.version;
                self.receive(&sent)
            }
            Manner::Ask => self.ask(api, version, &schema, &body),
            Manner::Until(text) => {
                let deadline = clock::now() + PATIENCE;
                loop {
                    let answers = self.ask(api, version, &schema, &body);
                    let has = |outcome: &Outcome| show(outcome).contains(text);
                    if has(&answers.0) && has(&answers.1) || clock::now() > deadline {
                        break answers;
                    }
                    std::thread::sleep(Duration::from_millis(10));
                }
            }
        };
        let mut differences = compare(&answers.0, &answers.1);
        if let (Manner::Until(text), true) = (line.manner, differences.is_empty())
            && !show(&answers.0).contains(text)
        {
            let (kafka, ours) = (show(&answers.0), show(&answers.1));
            differences.push(Difference { path: format!("never {text}"), kafka, ours });
        }
        let went_silent = matches!(answers.0, Outcome::Silence | Outcome::Dead)
            || matches!(answers.1, Outcome::Silence | Outcome::Dead);
        let place = format!("{} v{version} {conversation}/{}", api.name, line.label);
        let request = value::show(&schema, &body);
        self.judge(api, version, &place, &request, differences, Some(answers));
        if conversation != "world" {
            *self.cases.entry((api.key as i16, version)).or_default() += 1;
        }
        !went_silent
    }
}
