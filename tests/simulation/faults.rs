//! What goes wrong, and the budget that keeps the invariants meaningful.
//!
//! A power cut takes what was not synced; so does a disk that fails. It hits a broker only where, of each of its partitions, another member of the
//! in-sync set has all that was acknowledged; and a broker that has lost records comes back once the in-sync sets are
//! without it. For in ZooKeeper mode a controller cannot know that a member that it finds registered has lost the end of its
//! log, if it did not see it go. `Options::quick_return` leaves that out. ZooKeeper learns of such a loss at once. Where
//! such a broker is left alone in sync all the same, the run says nothing and ends.

use std::time::Duration;

use common::ids::{BrokerId, Offset};
use zk::{changes::SessionState, fake::Fault, store::ZkStore};

use crate::{
    copies::Content,
    invariants::acknowledged::missing,
    network::Network,
    world::{Event, Millis, World, at_once},
};

/// When faults begin.
const FAULTS_BEGIN: Millis = 1200;
/// When they end.
pub const FAULTS_END: Millis = 9000;
/// How long the cluster has to become whole.
const RECOVERY: Millis = 9000;

impl World {
    /// Decides when things go wrong.
    pub fn begin_faults(&mut self) {
        self.network = Network::unsteady();
        let count = self.random.between(3, 14);
        for _ in 0..count {
            let at = self.random.between(FAULTS_BEGIN, FAULTS_END);
            self.after(at, Event::Fault);
        }
        self.begin_moves(FAULTS_BEGIN, FAULTS_END);
        self.begin_deletions(FAULTS_BEGIN, FAULTS_END);
        self.after(FAULTS_END, Event::Heal);
        self.after(FAULTS_END + RECOVERY, Event::End);
    }

    /// Something goes wrong.
    pub fn fault(&mut self) {
        if self.healed {
            return;
        }
        let running = self.running();
        let Some(id) = self.random.pick(&running) else { return };
        match self.random.below(17) {
            0 | 1 => {
                self.note(format_args!("FAULT broker {id} is killed"));
                self.crash(id);
                self.start_after(id, 30, 2500);
            }
            2..=4 => self.cut_power(id),
            5 => self.stop_for_a_while(id),
            6 => self.cut_network(id),
            7 => {
                self.network.lost = self.random.between(0, 80);
                self.network.repeated = self.random.between(0, 80);
                self.network.late = self.random.between(0, 150);
                let network = self.network.clone();
                self.note(format_args!("FAULT the network is bad: {network:?}"));
                self.mend_after(300, 4000);
            }
            8 => {
                let duration = self.random.between(30, 2500);
                self.note(format_args!(
                    "FAULT broker {id} does not reach ZooKeeper for {duration}"
                ));
                self.lose_zookeeper(id, duration);
            }
            9 => {
                self.note(format_args!("FAULT the session of broker {id} ends"));
                self.process(id).store.expire();
            }
            10 => {
                let faults = [
                    Fault::LostBefore,
                    Fault::LostAfter,
                    Fault::ExpiredBefore,
                    Fault::ExpiredAfter,
                ];
                let fault = self.random.pick(&faults).unwrap_or(Fault::LostAfter);
                self.note(format_args!("FAULT the next write of broker {id}: {fault:?}"));
                self.process(id).store.fail_next_write(fault);
            }
            11 => self.jump(id),
            12 | 13 => self.break_disk(id),
            14 | 15 => self.move_coordinator(),
            // A broker that is dead without the controller's knowledge, and has lost records, must not be left alone in sync.
            _ if self.brokers.values().any(|broker| !broker.has_lost.is_empty()) => {}
            _ => {
                self.note(format_args!("FAULT broker {id} stops in order"));
                self.announce_stop(id);
                let delay = self.random.between(50, 600);
                let number = self.process_number(id);
                self.after(delay, Event::Close(id, number));
            }
        }
    }

    /// Lets a broker start after a while.
    pub fn start_after(&mut self, id: BrokerId, low: Millis, high: Millis) {
        let delay = self.random.between(low, high);
        self.after(delay, Event::Start(id));
    }

    fn mend_after(&mut self, low: Millis, high: Millis) {
        let delay = self.random.between(low, high);
        self.after(delay, Event::MendNetwork);
    }

    /// Whether a controller stands still between a plan and its commit, where it hurts most.
    pub fn is_struck_while_planning(&mut self) -> bool {
        self.now > FAULTS_BEGIN && !self.healed && self.random.chance(70)
    }

    /// A process that does nothing for a while, and does not know it.
    pub fn stop_for_a_while(&mut self, id: BrokerId) {
        let duration = self.random.between(50, 2500);
        self.note(format_args!("FAULT broker {id} stands still for {duration}"));
        self.lose_zookeeper(id, duration);
        if let Some(broker) = self.brokers.get_mut(&id) {
            broker.stopped_until = self.now + duration;
        }
    }

    /// A broker does not reach some others, nor they it, or one way only.
    fn cut_network(&mut self, id: BrokerId) {
        let others: Vec<BrokerId> = self.brokers.keys().copied().filter(|one| *one != id).collect();
        for other in others {
            if self.random.chance(700) {
                self.network.cut.insert((id, other));
            }
            if self.random.chance(700) {
                self.network.cut.insert((other, id));
            }
        }
        let cut = self.network.cut.clone();
        self.note(format_args!("FAULT ways are cut: {cut:?}"));
        // It may lose ZooKeeper as well, at once or once it has noticed that it is alone.
        if self.random.chance(500) {
            let (delay, number) = (self.random.between(1, 3000), self.process_number(id));
            self.after(delay, Event::LoseZooKeeper(id, number));
        }
        self.mend_after(300, 3500);
    }

    fn jump(&mut self, id: BrokerId) {
        let ahead = self.random.between(300, 4000);
        let wall = i64::try_from(self.random.between(0, 7_200_000)).unwrap_or(0) - 3_600_000;
        self.note(format_args!("FAULT clocks of broker {id} jump by {ahead} and {wall}"));
        if let Some(broker) = self.brokers.get_mut(&id) {
            broker.clock_is_ahead += Duration::from_millis(ahead);
            broker.wall_clock_is_ahead += wall;
        }
    }

    /// The network is as it should be.
    pub fn mend_network(&mut self) {
        self.note(format_args!("the network is mended"));
        self.network = if self.healed { Network::default() } else { Network::unsteady() };
    }

    /// Nothing goes wrong from now on.
    pub fn heal(&mut self) {
        self.note(format_args!("nothing goes wrong from now on"));
        self.healed = true;
        self.network = Network::default();
        self.history.work_at_heal = self.work_done();
        self.heal_disks();
        let ids: Vec<BrokerId> = self.brokers.keys().copied().collect();
        for id in ids {
            self.start_after(id, 1, 300);
        }
    }

    /// A broker's process ends in order.
    pub fn close(&mut self, id: BrokerId) {
        let Some(broker) = self.brokers.get_mut(&id) else { return };
        let Some(process) = &broker.process else { return };
        for partition in &self.partitions {
            if let Some(log) = process.log(*partition)
                && !log.log_directory().is_offline()
                && log.flush().is_ok()
            {
                let disk = broker.disk.entry(*partition).or_default();
                disk.synced = crate::broker::segment_sizes(&log.path());
            }
        }
        process.logs.checkpoint_high_watermarks();
        process.logs.checkpoint_recovery_points();
        // Who does not reach ZooKeeper cannot end its session: it expires, as after a crash.
        if matches!(process.store.session(), SessionState::Connected(_)) {
            let closed = at_once(process.store.close());
            closed.expect("at once").expect("a fake can be closed");
        }
        self.crash(id);
        self.start_after(id, 30, 1500);
    }

    /// Whether it is within the budget that a broker loses records of these partitions: what was acknowledged is also
    /// elsewhere.
    pub fn may_lose(&mut self, id: BrokerId, partitions: &[i32]) -> bool {
        let ids: Vec<BrokerId> = self.brokers.keys().copied().collect();
        let topic_id = self.topic_in_office().filter(|_| self.must_be_kept());
        let Some(topic_id) = topic_id else { return true };
        for partition in partitions.iter().copied() {
            if !self.brokers[&id].disk.contains_key(&partition) {
                continue;
            }
            for id in &ids {
                self.read_copy(*id, partition);
            }
            let in_sync = self.in_sync_set(partition);
            // One that has lost records may have to wait for this one.
            let comes_back = |other: &BrokerId| !self.brokers[other].has_lost.contains(&partition);
            let mut others = in_sync.into_iter().filter(|other| *other != id && comes_back(other));
            let has_all =
                |other| missing(self, topic_id, partition, self.copy(other, partition)).is_none();
            if !others.any(has_all) {
                return false;
            }
        }
        true
    }

    /// A machine loses its power: what was not synced is cut at some byte.
    fn cut_power(&mut self, id: BrokerId) {
        let partitions = self.partitions.clone();
        if !self.may_lose(id, &partitions) {
            return;
        }
        self.note(format_args!("FAULT broker {id} loses its power"));
        for partition in &partitions {
            self.read_copy(id, *partition);
        }
        let session = self.process(id).store.session().session_id();
        self.crash(id);
        if let Some(broker) = self.brokers.get_mut(&id) {
            broker.sessions.clear();
        }
        self.lose_unsynced(id, &partitions);
        if let Some(session) = session.filter(|_| !self.brokers[&id].has_lost.is_empty()) {
            self.zookeeper.expire_session(session);
        }
        self.start_after(id, 30, 2500);
    }

    /// Of a broker's replica only the first records are left.
    pub fn copies_are_lost(&mut self, id: BrokerId, partition: i32, count: usize) {
        let lost: Vec<u64> = self
            .copy(id, partition)
            .iter()
            .skip(count)
            .filter_map(|stored| match stored.content {
                Content::Value(value) => Some(value),
                Content::Marker(..) => None,
            })
            .collect();
        let had = self.copy(id, partition).len();
        if had > count {
            self.note(format_args!("broker {id} keeps {count} of {had} records of {partition}"));
            if let Some(broker) = self.brokers.get_mut(&id) {
                broker.has_lost.insert(partition);
            }
        }
        for value in lost {
            *self.history.lost_copies.entry(value).or_default() += 1;
        }
        let end = Offset(i64::try_from(count).unwrap_or(0));
        self.forget_from(id, partition, end);
    }

    /// Whether a broker that has lost records must not start yet.
    pub fn must_stay_away(&mut self, id: BrokerId) -> bool {
        if self.options.quick_return || !self.must_be_kept() {
            return false;
        }
        let in_sync: Vec<i32> = self.brokers[&id]
            .has_lost
            .iter()
            .copied()
            .filter(|partition| self.in_sync_set(*partition).contains(&id))
            .collect();
        // The others failed before ZooKeeper knew of this one: too much was lost at once.
        if in_sync.iter().any(|partition| self.in_sync_set(*partition) == [id]) {
            self.note(format_args!("broker {id} has lost records and is alone in sync"));
            self.is_void = true;
        }
        if in_sync.is_empty()
            && let Some(broker) = self.brokers.get_mut(&id)
        {
            broker.has_lost.clear();
        }
        !in_sync.is_empty()
    }
}
