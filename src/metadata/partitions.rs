//! A topic's partitions by number, shared between snapshots: a change copies the few neighbours of what it changes.

use std::sync::Arc;

use rpds::RedBlackTreeMapSync;

use crate::snapshot::Partition;

/// Partitions whose numbers differ in the last bits alone lie together, for a tree has some hundred bytes for each entry.
const CHUNK_BITS: u32 = 4;

/// A run of neighbours, in the order of their numbers; never empty.
type Chunk = Arc<[(i32, Arc<Partition>)]>;

/// The partitions of one topic.
#[derive(Clone, Debug, Default)]
pub(crate) struct Partitions {
    chunks: RedBlackTreeMapSync<i32, Chunk>,
    count: usize,
}

impl Partitions {
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    pub(crate) fn get(&self, index: i32) -> Option<&Arc<Partition>> {
        let chunk = self.chunks.get(&(index >> CHUNK_BITS))?;
        let place = chunk.binary_search_by_key(&index, |(index, _)| *index).ok()?;
        Some(&chunk[place].1)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (i32, &Arc<Partition>)> {
        let all = self.chunks.values().flat_map(|chunk| chunk.iter());
        all.map(|(index, partition)| (*index, partition))
    }

    /// Makes many changes; `None` removes a partition. Neighbours that come together are copied once.
    pub(crate) fn change(&mut self, changes: impl Iterator<Item = (i32, Option<Partition>)>) {
        let mut changes = changes.peekable();
        while let Some((first, _)) = changes.peek() {
            let number = first >> CHUNK_BITS;
            let mut entries = self.chunks.get(&number).map_or(Vec::new(), |chunk| chunk.to_vec());
            self.count -= entries.len();
            let is_here = |(index, _): &(i32, Option<Partition>)| index >> CHUNK_BITS == number;
            while let Some((index, partition)) = changes.next_if(is_here) {
                let partition = partition.map(Arc::new);
                let place = entries.binary_search_by_key(&index, |(index, _)| *index);
                match (place, partition) {
                    (Ok(place), Some(partition)) => entries[place].1 = partition,
                    (Err(place), Some(partition)) => entries.insert(place, (index, partition)),
                    (Ok(place), None) => drop(entries.remove(place)),
                    (Err(_), None) => {}
                }
            }
            self.count += entries.len();
            match entries.is_empty() {
                true => drop(self.chunks.remove_mut(&number)),
                false => self.chunks.insert_mut(number, entries.into()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn partition(leader: i32) -> Partition {
        Partition {
            leader: common::ids::BrokerId(leader),
            leader_epoch: common::ids::LeaderEpoch(0),
            isr: Box::default(),
            replicas: Box::default(),
            offline_replicas: Box::default(),
            partition_epoch: common::ids::PartitionEpoch(0),
            controller_epoch: common::ids::ControllerEpoch(0),
        }
    }

    #[test]
    fn they_are_what_a_map_would_be() {
        let (mut partitions, mut map) = (Partitions::default(), BTreeMap::new());
        let mut state = 7_u32;
        let mut random = |below: u32| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) % below
        };
        for round in 0..300 {
            let changes = (0..random(20)).map(|_| {
                let leader = (random(3) > 0).then_some(round);
                (random(70) as i32 - 5, leader)
            });
            // Not in order, and some numbers twice: the last one counts.
            let changes: Vec<(i32, Option<i32>)> = changes.collect();
            partitions
                .change(changes.iter().map(|(index, leader)| (*index, leader.map(partition))));
            for (index, leader) in changes {
                match leader {
                    Some(leader) => drop(map.insert(index, leader)),
                    None => drop(map.remove(&index)),
                }
            }
            let found: Vec<(i32, i32)> =
                partitions.iter().map(|(index, partition)| (index, partition.leader.0)).collect();
            assert_eq!(
                found,
                map.iter().map(|(index, leader)| (*index, *leader)).collect::<Vec<_>>()
            );
            assert_eq!(partitions.len(), map.len());
            for index in -6..70 {
                let leader = partitions.get(index).map(|partition| partition.leader.0);
                assert_eq!(leader, map.get(&index).copied());
            }
        }
    }
}
