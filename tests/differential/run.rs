//! Asks both brokers the same and compares what they say.

mod talk;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use bytes::BytesMut;
use common::clock;
use kafka_protocol::messages::ApiKey;
use protocol::{
    api::{self, Api},
    schema::{self, FieldSchema},
};
use tests::deviations::Deviations;

use crate::{
    Options, conversations, edges,
    rules::{self, Asked},
    scenarios::{self, Fresh, Names, Scenario, Step},
    side::{Outcome, Side},
    tree::{self, Difference, Tree},
    value::{self, Value},
};

/// In short, this many cases of each scenario and version, evenly spread.
const SHORT_CASES: usize = 5;
/// How often each kind of difference is shown whole.
const SHOWN_MAX: usize = 2;
/// How often a reading request is repeated after a difference, in the course of a second.
const REPEATS: u32 = 20;

/// Both brokers and what was found.
pub(crate) struct Run<'a> {
    options: &'a Options,
    kafka: Side,
    ours: Side,
    names: Names,
    fresh_names: usize,
    deviations: Deviations,
    cases: BTreeMap<(i16, i16), usize>,
    /// Differences by what they are, with how often they were seen.
    found: BTreeMap<String, usize>,
    accepted: BTreeMap<String, usize>,
    missing: BTreeSet<String>,
    /// A broker that is gone: there is nothing to compare with any more.
    is_over: bool,
    /// Whether both have coordinators by now.
    has_coordinators: bool,
}

struct Case {
    name: String,
    body: Value,
}

/// A request on its way, as each side got it.
struct Sent {
    api: &'static Api,
    version: i16,
    bodies: [BytesMut; 2],
}

impl<'a> Run<'a> {
    pub(crate) fn new(options: &'a Options, kafka: Side, ours: Side) -> Run<'a> {
        // Names of an earlier run on the same brokers are of another second.
        let run = format!("d{}", clock::wall_clock().0 / 1000 % 1_000_000);
        let names = Names { run, fresh: String::new() };
        Run {
            options,
            kafka,
            ours,
            names,
            fresh_names: 0,
            deviations: Deviations::load(),
            cases: BTreeMap::new(),
            found: BTreeMap::new(),
            accepted: BTreeMap::new(),
            missing: BTreeSet::new(),
            is_over: false,
            has_coordinators: false,
        }
    }

    /// Everything. False where a difference was found, or a place has no cases.
    pub(crate) fn all(&mut self) -> bool {
        self.make_world();
        let scenarios = scenarios::all();
        let mut keys: Vec<ApiKey> = Vec::new();
        for scenario in &scenarios {
            if !keys.contains(&scenario.api) {
                keys.push(scenario.api);
            }
        }
        for key in keys {
            let api = api::find(key as i16).expect("scenarios are about APIs of the table");
            if !self.options.wants_api(api.name) {
                continue;
            }
            if scenarios::needs_coordinators(key) {
                self.make_coordinators();
            }
            let of_api: Vec<&Scenario> = scenarios.iter().filter(|one| one.api == key).collect();
            for version in api.min..=api.max {
                if self.options.version.is_none_or(|wanted| wanted == version) {
                    self.version(api, version, &of_api);
                }
            }
            if self.options.version.is_none() {
                self.unknown_versions(api);
            }
        }
        self.conversations();
        self.report()
    }

    /// Begins a case with names of its own.
    fn begin(&mut self) {
        self.fresh_names += 1;
        self.names.fresh = format!("{}-t{}", self.names.run, self.fresh_names);
        self.kafka.begin(&self.names.fresh);
        self.ours.begin(&self.names.fresh);
    }

    fn make_world(&mut self) {
        for side in [&mut self.kafka, &mut self.ours] {
            let api = api::find(ApiKey::Metadata as i16).expect("in the table");
            side.send(api, 4, &[0, 0, 0, 0, 0], false);
            // It learns the cluster's id.
            let _ = side.receive(api, 4, false);
            learn_texts(side);
        }
        for step in scenarios::world(&self.names) {
            self.step(&step, "world");
        }
    }

    fn version(&mut self, api: &'static Api, version: i16, scenarios: &[&Scenario]) {
        let schema = schema::request(api, version);
        let mut leaves = Vec::new();
        edges::leaves(&schema, "", &mut leaves);
        let mut left: BTreeSet<String> = leaves.into_iter().collect();
        for scenario in scenarios {
            let versions = scenario.versions.0..=scenario.versions.1;
            if versions.contains(&version) {
                self.scenario(api, version, &schema, scenario, &mut left);
            }
        }
        let all_wanted = self.options.case.is_none();
        for field in left.into_iter().filter(|_| all_wanted) {
            self.missing.insert(format!("{} v{version}: nothing is tried in {field}", api.name));
        }
    }

    fn scenario(
        &mut self,
        api: &'static Api,
        version: i16,
        schema: &[FieldSchema],
        scenario: &Scenario,
        left: &mut BTreeSet<String>,
    ) {
        let label = format!("{} v{version} {}", api.name, scenario.name);
        let mut is_fresh = false;
        let mut number = 0;
        let mut cases = self.cases(api, version, schema, scenario, left);
        for index in self.chosen(cases.len()) {
            if self.is_over {
                return;
            }
            let renews = scenario.fresh == Fresh::PerCase || !is_fresh;
            if renews {
                self.begin();
                // The bodies name the topic.
                cases = self.cases(api, version, schema, scenario, &mut BTreeSet::new());
            }
            let case = &cases[index];
            let place = format!("{label}/{}", case.name);
            if self.options.case.as_ref().is_some_and(|wanted| !place.contains(wanted)) {
                continue;
            }
            if renews {
                for step in (scenario.before)(&self.names, version) {
                    self.step(&step, &place);
                }
            }
            number += 1;
            let mut equal = self.case(api, version, schema, scenario, case, &place);
            for step in (scenario.after)(&self.names, version) {
                equal &= self.step(&step, &format!("{place} and then"));
            }
            is_fresh = equal;
        }
        *self.cases.entry((api.key as i16, version)).or_default() += number;
    }

    /// Which of the cases are run.
    fn chosen(&self, count: usize) -> Vec<usize> {
        let step = if self.options.short { (count / SHORT_CASES).max(1) } else { 1 };
        (0..count).step_by(step).collect()
    }

    fn cases(
        &self,
        api: &Api,
        version: i16,
        schema: &[FieldSchema],
        scenario: &Scenario,
        left: &mut BTreeSet<String>,
    ) -> Vec<Case> {
        let base = value::build(schema, &(scenario.body)(&self.names, version));
        let mut cases = vec![Case { name: "base".to_owned(), body: base.clone() }];
        if scenario.mutates {
            let extras = (scenario.extras)(&self.names, version);
            let is_flexible = api.is_flexible(version);
            let skip = scenario.skip;
            for mutant in edges::mutants(schema, &base, is_flexible, &extras, &skip) {
                left.remove(&mutant.field);
                cases.push(Case { name: mutant.name, body: mutant.body });
            }
        }
        for (name, json) in (scenario.more)(&self.names, version) {
            cases.push(Case { name, body: value::build(schema, &json) });
        }
        cases
    }

    fn case(
        &mut self,
        api: &'static Api,
        version: i16,
        schema: &[FieldSchema],
        scenario: &Scenario,
        case: &Case,
        place: &str,
    ) -> bool {
        let request = value::show(schema, &case.body);
        let mut differences = Vec::new();
        let mut outcomes = None;
        for repeat in 0..=REPEATS {
            let (kafka, ours) = self.ask(api, version, schema, &case.body);
            differences = compare(&kafka, &ours);
            outcomes = Some((kafka, ours));
            let is_silent = |side: &Outcome| *side == Outcome::Silence;
            let silent = outcomes.as_ref().is_some_and(|(k, o)| is_silent(k) || is_silent(o));
            if differences.is_empty() || !scenario.is_read || silent || repeat == REPEATS {
                break;
            }
            let asked = Asked { api: api.name, name: place, request: &request };
            let is_deliberate =
                |one: &Difference| rules::accepted(&self.deviations, &asked, one).is_some();
            if differences.iter().all(is_deliberate) {
                break;
            }
            pause(repeat);
        }
        self.judge(api, version, place, &request, differences, outcomes)
    }

    /// Makes both create the topics of their coordinators, and waits until these have loaded.
    fn make_coordinators(&mut self) {
        if std::mem::replace(&mut self.has_coordinators, true) {
            return;
        }
        self.begin();
        for line in conversations::coordinators(&self.names) {
            self.line(&line, "world", &mut Vec::new());
        }
    }

    /// Asks both, and compares; no case of its own.
    fn step(&mut self, step: &Step, place: &str) -> bool {
        let api = api::find(step.api as i16).expect("steps are of APIs of the table");
        let schema = schema::request(api, step.version);
        let body = value::build(&schema, &step.body);
        let request = value::show(&schema, &body);
        // What one broker does at once, the other may do soon.
        let is_read =
            matches!(step.api, ApiKey::Metadata | ApiKey::DescribeConfigs | ApiKey::Fetch)
                && !request.contains("session");
        let mut result = (Vec::new(), None);
        for repeat in 0..=REPEATS {
            let (kafka, ours) = self.ask(api, step.version, &schema, &body);
            result = (compare(&kafka, &ours), Some((kafka, ours)));
            if result.0.is_empty() || !is_read {
                break;
            }
            pause(repeat);
        }
        self.judge(api, step.version, place, &request, result.0, result.1)
    }

    fn ask(
        &mut self,
        api: &'static Api,
        version: i16,
        schema: &[FieldSchema],
        body: &Value,
    ) -> (Outcome, Outcome) {
        // A produce without acks has no answer: another request tells whether the connection lives.
        let sent = self.send(api, version, schema, body);
        self.receive(&sent)
    }

    fn send(
        &mut self,
        api: &'static Api,
        version: i16,
        schema: &[FieldSchema],
        body: &Value,
    ) -> Sent {
        let probe = api.key == ApiKey::Produce;
        let flexible = api.is_flexible(version);
        let bodies =
            [&self.kafka, &self.ours].map(|side| value::encode(schema, body, flexible, side));
        self.kafka.send(api, version, &bodies[0], probe);
        self.ours.send(api, version, &bodies[1], probe);
        Sent { api, version, bodies }
    }

    /// The answers to the request that was sent last on this connection.
    fn receive(&mut self, sent: &Sent) -> (Outcome, Outcome) {
        let Sent { api, version, bodies } = sent;
        let (api, version) = (*api, *version);
        let probe = api.key == ApiKey::Produce;
        let receive = |side: &mut Side, body: &[u8]| match side.receive(api, version, probe) {
            Outcome::Answer(mut tree) => {
                let is_null: &[u8] = if api.is_flexible(version) { &[0] } else { &[0xff, 0xff] };
                if api.key == ApiKey::InitProducerId && !body.starts_with(is_null) {
                    side.learn_producer(&tree);
                }
                rules::mask((api.key, version), side, &value::hex(body), &mut tree);
                Outcome::Answer(tree)
            }
            other => other,
        };
        let kafka = receive(&mut self.kafka, &bodies[0]);
        let ours = receive(&mut self.ours, &bodies[1]);
        for (side, outcome) in [("Kafka", &kafka), ("our broker", &ours)] {
            if *outcome == Outcome::Dead && !self.is_over {
                println!("OVER: {side} does not listen any more");
                self.is_over = true;
            }
        }
        (kafka, ours)
    }

    /// Accepts what is deliberate and notes the rest. True where there was nothing to accept either: after a deliberate
    /// difference the two are not in the same state.
    fn judge(
        &mut self,
        api: &Api,
        version: i16,
        place: &str,
        request: &str,
        differences: Vec<Difference>,
        outcomes: Option<(Outcome, Outcome)>,
    ) -> bool {
        // A step stands for its case.
        let api_name = place.split(' ').next().unwrap_or_default();
        let asked = Asked { api: api_name, name: place, request };
        let equal = differences.is_empty();
        if let (true, Some((kafka, _))) = (self.options.show, &outcomes) {
            println!("CASE {place}\n  request v{version} {request}\n  kafka   {}", show(kafka));
        }
        let mut shown = false;
        for difference in differences {
            if let Some(name) = rules::accepted(&self.deviations, &asked, &difference) {
                *self.accepted.entry(name).or_default() += 1;
                continue;
            }
            let shorten = |text: &str| {
                let end = text.char_indices().nth(150).map_or(text.len(), |(index, _)| index);
                text[..end].to_owned()
            };
            let kind = format!(
                "{} {}: kafka {} ours {}",
                api.name,
                difference.path,
                shorten(&difference.kafka),
                shorten(&difference.ours)
            );
            let count = self.found.entry(kind.clone()).or_default();
            *count += 1;
            if *count <= SHOWN_MAX || self.options.all {
                println!("DIFFERENCE {place}\n  {kind}");
                if let Some((kafka, ours)) = outcomes.as_ref().filter(|_| !shown) {
                    println!("  request v{version} {request}");
                    println!("  kafka   {}\n  ours    {}", show(kafka), show(ours));
                    shown = true;
                }
            }
        }
        equal
    }

    fn unknown_versions(&mut self, api: &'static Api) {
        for version in [-1, api.max + 1, i16::MAX] {
            let place = format!("{} v{version} unknown version", api.name);
            if self.options.case.as_ref().is_some_and(|wanted| !place.contains(wanted)) {
                continue;
            }
            let (kafka, ours) = self.ask(api, version, &[], &Value::Verbatim(Vec::new()));
            let differences = compare(&kafka, &ours);
            self.judge(api, version, &place, "{}", differences, Some((kafka, ours)));
        }
    }

    fn report(&mut self) -> bool {
        println!("\ncases per API and version");
        let mut total = 0;
        let mut is_whole = true;
        for api in api::built().filter(|api| self.options.wants_api(api.name)) {
            let count = |version: i16| self.cases.get(&(api.key as i16, version)).copied();
            let counts: Vec<String> = (api.min..=api.max)
                .map(|version| format!("v{version}: {}", count(version).unwrap_or(0)))
                .collect();
            let sum: usize = (api.min..=api.max).filter_map(count).sum();
            total += sum;
            println!("  {:24} {sum:6}  {}", api.name, counts.join(", "));
            let is_partial = self.options.version.is_some() || self.options.case.is_some();
            for version in api.min..=api.max {
                if !is_partial && count(version).unwrap_or(0) == 0 {
                    println!("NO CASES {} v{version}", api.name);
                    is_whole = false;
                }
            }
        }
        println!("  {:24} {total:6}", "in all");
        println!("\nmasks");
        for (what, why) in rules::MASKS {
            println!("  {what}: {why}");
        }
        println!("\ndeliberate differences seen");
        for (name, count) in &self.accepted {
            println!("  {name}: {count}");
        }
        let is_partial = self.options.short || self.options.is_partial();
        for deviation in self.deviations.all().iter().filter(|_| !is_partial) {
            let only_here = deviation.places.iter().all(|place| place.starts_with("differential/"));
            if only_here && !self.accepted.contains_key(&deviation.name) {
                println!("  {}: never; is it still needed?", deviation.name);
            }
        }
        for missing in &self.missing {
            println!("NOT TRIED {missing}");
        }
        println!("\nkinds of differences: {}", self.found.len());
        for (kind, count) in &self.found {
            println!("  {count:5} x {kind}");
        }
        is_whole && !self.is_over && self.found.is_empty() && self.missing.is_empty()
    }
}

/// Longer from time to time.
fn pause(repeat: u32) {
    std::thread::sleep(Duration::from_millis(5) * repeat);
}

fn show(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Answer(tree) => tree.to_string(),
        other => format!("{other:?}"),
    }
}

fn compare(kafka: &Outcome, ours: &Outcome) -> Vec<Difference> {
    match (kafka, ours) {
        (Outcome::Answer(kafka), Outcome::Answer(ours)) => tree::compare(kafka, ours),
        (kafka, ours) if kafka == ours => Vec::new(),
        (kafka, ours) => {
            vec![Difference { path: "outcome".to_owned(), kafka: show(kafka), ours: show(ours) }]
        }
    }
}

/// Asks a broker for the settings that it alone can have.
fn learn_texts(side: &mut Side) {
    let api = api::find(ApiKey::DescribeConfigs as i16).expect("in the table");
    let keys = ["log.dirs", "log.dir", "zookeeper.connect"];
    let body = serde_json::json!({
        "Resources": [{"ResourceType": 4, "ResourceName": "1", "ConfigurationKeys": keys}],
        "IncludeSynonyms": false, "IncludeDocumentation": false,
    });
    let schema = schema::request(api, 4);
    let body = value::encode(&schema, &value::build(&schema, &body), true, side);
    side.send(api, 4, &body, false);
    let Outcome::Answer(answer) = side.receive(api, 4, false) else { return };
    let results = answer.get("results").map(Tree::items).unwrap_or_default();
    let configs = results.iter().filter_map(|result| result.get("configs")).flat_map(Tree::items);
    for config in configs {
        let (name, value) = (config.get("name"), config.get("value"));
        let is_directory = name.is_some_and(|name| name.as_text().starts_with("log"));
        let value = value.map(Tree::as_text).unwrap_or_default().to_owned();
        // The default directory is the same on both.
        if !value.is_empty() && value != "/tmp/kafka-logs" {
            side.texts.push((value, if is_directory { "<directory>" } else { "<zookeeper>" }));
        }
    }
}
