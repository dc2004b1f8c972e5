//! While nothing else goes wrong, no partition is led for long by a broker whose log directory of it has failed, unless the
//! topic is about to be deleted.

use common::ids::BrokerId;

use crate::world::World;

impl World {
    /// A disk is about to be repaired.
    pub fn check_directories(&mut self, id: BrokerId) {
        if !self.healed || !self.must_be_kept() {
            return;
        }
        for partition in self.partitions.clone() {
            let broker = &self.brokers[&id];
            let has_failed = broker.broken.contains(&broker.directory_of(partition));
            if has_failed && self.leader_in_office(partition) == Some(id) {
                let what = format!("{partition} is led by {id}, whose log directory has failed");
                self.violate("directories", what);
            }
        }
    }
}
