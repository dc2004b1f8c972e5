//! How a group's leader shares out the partitions. Sources: `RangeAssignor`, `RoundRobinAssignor`, without racks.

use std::collections::{BTreeMap, BTreeSet};

use common::topic::TopicPartition;

/// A way to share out partitions, among those of `partition.assignment.strategy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Assignor {
    /// Of each topic a run of partitions to each member.
    Range,
    /// All partitions of all topics, one after the other, to the members in turn.
    RoundRobin,
}

/// A member and what it wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Subscriber {
    pub(crate) member: String,
    pub(crate) instance: Option<String>,
    pub(crate) topics: BTreeSet<String>,
}

/// Partitions by member id; a member without any is there as well.
pub(crate) type Assignments = BTreeMap<String, Vec<TopicPartition>>;

impl Assignor {
    /// The assignor of that Java class, or of that name.
    pub fn named(name: &str) -> Option<Assignor> {
        match name {
            "range" | "org.apache.kafka.clients.consumer.RangeAssignor" => Some(Assignor::Range),
            "roundrobin" | "org.apache.kafka.clients.consumer.RoundRobinAssignor" => {
                Some(Assignor::RoundRobin)
            }
            _ => None,
        }
    }

    /// Its name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Assignor::Range => "range",
            Assignor::RoundRobin => "roundrobin",
        }
    }

    /// Shares out the partitions of the topics whose number of partitions is known.
    pub(crate) fn assign(
        self,
        counts: &BTreeMap<String, i32>,
        mut subscribers: Vec<Subscriber>,
    ) -> Assignments {
        // Static members come first, by their own name, so that a restart changes nothing.
        subscribers.sort_by(|one, other| {
            let key = |subscriber: &Subscriber| {
                let name = subscriber.instance.as_ref().unwrap_or(&subscriber.member);
                (subscriber.instance.is_none(), name.clone())
            };
            key(one).cmp(&key(other))
        });
        match self {
            Assignor::Range => range(counts, &subscribers),
            Assignor::RoundRobin => round_robin(counts, &subscribers),
        }
    }
}

fn empty(subscribers: &[Subscriber]) -> Assignments {
    subscribers.iter().map(|subscriber| (subscriber.member.clone(), Vec::new())).collect()
}

fn range(counts: &BTreeMap<String, i32>, subscribers: &[Subscriber]) -> Assignments {
    let mut assignments = empty(subscribers);
    for (topic, count) in counts {
        let takers: Vec<&Subscriber> =
            subscribers.iter().filter(|subscriber| subscriber.topics.contains(topic)).collect();
        let taker_count = i32::try_from(takers.len()).unwrap_or(i32::MAX);
        let Some(each) = count.checked_div(taker_count) else { continue };
        // The first members take what does not come out even, one each.
        let mut extra = count % taker_count;
        let mut next = 0;
        for taker in takers {
            let end = next + each + i32::from(extra > 0);
            extra -= 1;
            let share = (next..end).map(|index| TopicPartition::new(topic.as_str(), index));
            assignments.entry(taker.member.clone()).or_default().extend(share);
            next = end;
        }
    }
    assignments
}

fn round_robin(counts: &BTreeMap<String, i32>, subscribers: &[Subscriber]) -> Assignments {
    let mut assignments = empty(subscribers);
    let mut turn = subscribers.iter().cycle();
    for (topic, count) in counts {
        if !subscribers.iter().any(|subscriber| subscriber.topics.contains(topic)) {
            continue;
        }
        for index in 0..*count {
            let taker = turn.find(|subscriber| subscriber.topics.contains(topic));
            let taker = taker.expect("somebody wants the topic, and the turn does not end");
            let partition = TopicPartition::new(topic.as_str(), index);
            assignments.entry(taker.member.clone()).or_default().push(partition);
        }
    }
    assignments
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{Assignor, Subscriber};

    /// Members as `name:topic,topic` or `name/instance:topic`; topics as `name=partitions`.
    fn assign(assignor: Assignor, topics: &str, members: &str) -> String {
        let counts: BTreeMap<String, i32> = topics
            .split_whitespace()
            .map(|word| word.split_once('=').unwrap())
            .map(|(name, count)| (name.to_owned(), count.parse().unwrap()))
            .collect();
        let subscribers = members.split_whitespace().map(|word| {
            let (name, topics) = word.split_once(':').unwrap();
            let (member, instance) = match name.split_once('/') {
                Some((member, instance)) => (member, Some(instance.to_owned())),
                None => (name, None),
            };
            let topics = topics.split(',').map(str::to_owned).collect();
            Subscriber { member: member.to_owned(), instance, topics }
        });
        let shares = assignor.assign(&counts, subscribers.collect()).into_iter();
        let shown = shares.map(|(member, partitions)| {
            let names: Vec<String> = partitions.iter().map(ToString::to_string).collect();
            format!("{member}:{}", names.join(","))
        });
        shown.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn range_gives_runs_of_each_topic() {
        let range = |topics, members| assign(Assignor::Range, topics, members);
        assert_eq!(range("t=3 u=3", "a:t,u b:t,u"), "a:t-0,t-1,u-0,u-1 b:t-2,u-2");
        assert_eq!(range("t=1", "a:t b:t c:x"), "a:t-0 b: c:");
        // The static member comes first though its id is the last.
        assert_eq!(range("t=1", "a:t z/1:t"), "a: z:t-0");
    }

    #[test]
    fn round_robin_goes_around_over_all_topics() {
        let robin = |topics, members| assign(Assignor::RoundRobin, topics, members);
        assert_eq!(robin("t=3 u=3", "a:t,u b:t,u"), "a:t-0,t-2,u-1 b:t-1,u-0,u-2");
        assert_eq!(robin("t=2 u=2", "a:t b:t,u c:u"), "a:t-0 b:t-1,u-1 c:u-0");
    }
}
