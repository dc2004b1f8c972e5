//! Random lives of small clusters: whatever happens, each partition is led by a live member of its ISR
//! if there is one, epochs only grow, and once all brokers are there every deletion is done.

use std::collections::BTreeMap;

use common::{
    ids::{BrokerId, LeaderEpoch},
    topic::TopicPartition,
};

use super::world::{World, options};
use crate::{assignment::Assignment, change::Change, states::PartitionState};

const BROKERS: [i32; 4] = [1, 2, 3, 4];
const TOPICS: [&str; 3] = ["a", "b", "c"];

/// Marsaglia's xorshift; good enough to choose with, and the same everywhere.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % u64::try_from(end).unwrap()).unwrap()
    }

    fn of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }

    fn replicas(&mut self) -> Vec<BrokerId> {
        let (first, count) = (self.below(BROKERS.len()), 1 + self.below(3));
        let at = |step: usize| BrokerId(BROKERS[(first + step) % BROKERS.len()]);
        (0..count).map(at).collect()
    }
}

fn step(world: &mut World, random: &mut Random) {
    let (broker, topic) = (BrokerId(random.of(&BROKERS)), random.of(&TOPICS));
    match random.below(11) {
        0 | 1 => {
            if world.brokers.remove(&broker).is_none() {
                world.register(broker);
            }
            world.brokers_changed();
        }
        2 => {
            world.register(broker);
            world.brokers_changed();
        }
        3 | 4 => {
            let new = !world.topics.contains_key(topic);
            let count = world.topics.get(topic).map_or(0, |node| node.partitions.len());
            let node = world.topics.entry(topic.into()).or_default();
            let index = i32::try_from(count).unwrap();
            node.partitions.insert(index, Assignment::of(random.replicas()));
            node.version += 1;
            if new {
                node.version = 0;
                world.topics_changed();
            } else {
                world.topic_changed(topic);
            }
        }
        5 if world.topics.contains_key(topic) => {
            world.deletions.insert(topic.into());
            world.deletions_changed();
        }
        6 => {
            let partition = TopicPartition::new(topic, 0);
            world.conflicts.insert(partition);
        }
        7 if world.brokers.contains_key(&broker) => {
            world.shut_down(broker);
        }
        8 => {
            world.unclean.insert(topic.into());
            world.pending.push(Change::UncleanEnabled(Some(topic.into())));
        }
        9 => {
            let partition = TopicPartition::new(topic, 0);
            world.pending.push(Change::PreferLeaders([partition].into()));
        }
        10 if !world.deaf.remove(&broker) => {
            world.deaf.insert(broker);
        }
        _ => {}
    }
}

fn check(world: &World, epochs: &mut BTreeMap<(u128, i32), LeaderEpoch>) {
    for (name, node) in &world.topics {
        let deleting = world.controller.is_queued_for_deletion(name);
        for (index, state) in &node.states {
            let id = TopicPartition::new(name.clone(), *index);
            let key = (node.id.expect("settled topics have ids").0, *index);
            let before = epochs.insert(key, state.leader_epoch).unwrap_or(LeaderEpoch(0));
            assert!(before <= state.leader_epoch, "{id} went back");
            assert!(!state.isr.is_empty(), "{id} has an empty ISR");
            if deleting {
                continue;
            }
            let known = world.controller.partition_state(&id).unwrap();
            let can_lead = |broker: &BrokerId| world.controller.online(&id, *broker);
            if state.leader == BrokerId::NONE {
                assert_eq!(known, PartitionState::Offline, "{id}");
                assert!(!state.isr.iter().any(can_lead), "{id}: {state:?} could be led");
            } else {
                assert_eq!(known, PartitionState::Online, "{id}");
                assert!(state.isr.contains(&state.leader), "{id}: {state:?}");
                assert!(world.brokers.contains_key(&state.leader), "{id}: {state:?}");
                let stays = can_lead(&state.leader) || !state.isr.iter().any(can_lead);
                assert!(stays, "{id}: {state:?} is led by a broker that shuts down");
            }
        }
    }
}

fn live(seed: u64) {
    let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let mut world = World::new(options());
    let mut epochs = BTreeMap::new();
    world.brokers_changed();
    world.topics_changed();
    world.deletions_changed();
    for _ in 0..40 {
        for _ in 0..=random.below(3) {
            step(&mut world, &mut random);
        }
        world.settle();
        check(&world, &mut epochs);
    }
    world.deaf.clear();
    for id in BROKERS {
        world.register(BrokerId(id));
    }
    world.brokers_changed();
    world.settle();
    check(&world, &mut epochs);
    assert!(world.deletions.is_empty(), "still to delete: {:?}", world.deletions);
    assert_eq!(world.controller.counts().offline_partitions, 0);
}

#[test]
fn whatever_happens_partitions_are_led_by_live_members() {
    for seed in 0..300 {
        if let Err(panic) = std::panic::catch_unwind(|| live(seed)) {
            eprintln!("seed {seed}: cargo test -p controller whatever_happens");
            std::panic::resume_unwind(panic);
        }
    }
}
