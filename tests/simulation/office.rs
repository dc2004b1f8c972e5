//! The controller's office: the glue of `server/controller.rs`, `term.rs`, `channels.rs` and `requests.rs`, without tasks.
//!
//! What it reads and writes goes through the broker's own code, `controller_store`. Between a plan and its commit time passes,
//! in which other brokers act. A commit is one moment, however many writes it has.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use common::{
    error_code::ErrorCode,
    ids::{BrokerEpoch, BrokerId, ControllerEpoch},
    topic::{TopicPartition, Uuid},
};
use controller::{
    alter_partition::AlterPartition,
    answer::{Answer, Ticket},
    change::Change,
    controller::{Controller, Options},
    plan::{Applied, Plan},
    request::{Body, BrokerRequest},
};
use controller_store::{
    commit::{CommitError, commit},
    reads,
};
use zk::{
    changes::{Changes, SessionState},
    election::{self, Elected, Fence},
    paths,
    registration::Ghosts,
    store::{Expected, Op, SessionId, Watch, ZkError, ZkStore},
};

use crate::{
    bugs::Bug,
    network::{Message, Node, RequestId},
    world::{Event, Millis, World, at_once, looked},
};

/// How long a plan waits for its commit at most.
const COMMIT_DELAY_MAX: Millis = 12;
/// How long a broker is left alone after it was not reached.
const SEND_BACKOFF: Millis = 100;
/// How often leaderships are brought back to where they belong, at most.
const REBALANCE_EVERY_MAX: Millis = 4000;

/// A term of a controller.
pub struct Office {
    /// The session in which it was elected.
    pub session: SessionId,
    fence: Fence,
    controller: Controller,
    /// What it has not taken in yet.
    news: Vec<Change>,
    /// What is to be committed.
    planned: Option<Plan>,
    channels: BTreeMap<BrokerId, Channel>,
    /// Who waits for which answer.
    waiting: BTreeMap<Ticket, (Node, RequestId)>,
    last_ticket: u64,
    words_sent: u64,
}

/// The requests to one broker: one is under way.
struct Channel {
    epoch: BrokerEpoch,
    queue: VecDeque<BrokerRequest>,
    asked: Option<RequestId>,
}

/// Why a term ends.
enum Ended {
    Moved,
    Failed,
}

impl From<ZkError> for Ended {
    fn from(_: ZkError) -> Ended {
        Ended::Failed
    }
}

impl From<CommitError> for Ended {
    fn from(error: CommitError) -> Ended {
        match error {
            CommitError::Moved => Ended::Moved,
            CommitError::ZooKeeper(error) => error.into(),
        }
    }
}

impl Office {
    /// The election that it won.
    pub fn epoch(&self) -> ControllerEpoch {
        self.fence.epoch
    }

    /// Whether a plan waits for its commit.
    pub fn is_busy(&self) -> bool {
        self.planned.is_some()
    }

    fn take_ticket(&mut self, node: Node, request: RequestId) -> Ticket {
        self.last_ticket += 1;
        let ticket = Ticket(self.last_ticket);
        self.waiting.insert(ticket, (node, request));
        ticket
    }

    /// Opens channels to brokers that came, and closes those to brokers that went or registered anew.
    fn set_live(&mut self) {
        let live: BTreeMap<BrokerId, BrokerEpoch> =
            self.controller.live_brokers().map(|broker| (broker.id, broker.epoch)).collect();
        self.channels.retain(|id, channel| live.get(id) == Some(&channel.epoch));
        for (id, epoch) in live {
            let closed = || Channel { epoch, queue: VecDeque::new(), asked: None };
            self.channels.entry(id).or_insert_with(closed);
        }
    }
}

impl World {
    /// Takes part in the election of a controller.
    pub fn run_for_office(&mut self, id: BrokerId) {
        let now = self.wall_clock_of(id);
        let sessions = self.brokers[&id].sessions.clone();
        let is_ours = |session| sessions.contains(&session);
        let ghosts = Ghosts { is_ours: &is_ours, wait_at_most: Duration::ZERO };
        let process = self.process(id);
        let (store, registered) = (process.store.clone(), process.registered);
        let elected = at_once(election::elect(&*store, id, now, &ghosts));
        match elected {
            Some(Ok(Elected::Us(fence))) => {
                let Some(session) = registered else { return };
                self.note(format_args!("broker {id} is the controller of epoch {}", fence.epoch));
                self.take_office(id, session, fence);
            }
            Some(Ok(Elected::Other(_))) => {}
            Some(Err(_)) | None => self.process(id).is_candidate = false,
        }
    }

    fn take_office(&mut self, id: BrokerId, session: SessionId, fence: Fence) {
        let controller = Controller::new(Options {
            broker: id,
            epoch: fence.epoch,
            topic_ids: true,
            leader_recovery: true,
            delete_topics: true,
        });
        let (number, delay) =
            (self.process_number(id), self.random.between(500, REBALANCE_EVERY_MAX));
        self.after(delay, Event::Rebalance(id, number, fence.epoch));
        let process = self.process(id);
        process.office = Some(Office {
            session,
            fence,
            controller,
            news: Vec::new(),
            planned: None,
            channels: BTreeMap::new(),
            waiting: BTreeMap::new(),
            last_ticket: 0,
            words_sent: 0,
        });
        let read = self.read_all(id);
        match read {
            Ok(news) => self.tell_controller(id, news),
            Err(ended) => self.end_term(id, &ended),
        }
    }

    /// All that a new controller must know.
    fn read_all(&mut self, id: BrokerId) -> Result<Vec<Change>, Ended> {
        self.check_office(id)?;
        let store = self.process(id).store.clone();
        self.take_notices(id)?;
        let read = async {
            let brokers = reads::brokers(&*store).await?;
            let names = reads::names(&*store, paths::TOPICS).await?;
            let topics = names.iter().cloned().collect();
            let read = reads::topics(&*store, topics, &|_, _| false).await?;
            let deletions = reads::names(&*store, paths::DELETE_TOPICS).await?;
            Ok::<_, ZkError>(vec![
                Change::Brokers(brokers),
                Change::Topics { names, read },
                Change::Deletions(deletions),
            ])
        };
        Ok(at_once(read).unwrap_or(Err(ZkError::SessionExpired))?)
    }

    /// The brokers that have lost a log directory; what says so is deleted.
    fn take_notices(&mut self, id: BrokerId) -> Result<BTreeSet<BrokerId>, Ended> {
        let process = self.process(id);
        let fence = process.office.as_ref().map(|office| office.fence);
        let (store, Some(fence)) = (process.store.clone(), fence) else {
            return Ok(BTreeSet::new());
        };
        let taken = async {
            let (failed, notices) = reads::log_dir_events(&*store).await?;
            for path in notices {
                let ops = vec![fence.check(), Op::delete(path, Expected::Any)];
                match store.multi(ops).await {
                    Ok(_) | Err(ZkError::MayHaveHappened { .. }) => {}
                    Err(ZkError::Multi { index: 0, .. }) => return Err(Ended::Moved),
                    Err(error) if error.is_conflict() => {}
                    Err(error) => return Err(error.into()),
                }
            }
            Ok(failed)
        };
        at_once(taken).unwrap_or(Err(Ended::Failed))
    }

    /// Whether `/controller` is still this session's.
    fn check_office(&mut self, id: BrokerId) -> Result<(), Ended> {
        let process = self.process(id);
        let session = process.office.as_ref().map(|office| office.session);
        let store = process.store.clone();
        match at_once(election::controller(&*store, Watch::Yes)) {
            Some(Ok(Some(controller))) if controller.owner == session => Ok(()),
            Some(Ok(_)) => Err(Ended::Moved),
            Some(Err(_)) | None => Err(Ended::Failed),
        }
    }

    /// The controller's term is over.
    fn end_term(&mut self, id: BrokerId, ended: &Ended) {
        let process = self.process(id);
        let Some(office) = process.office.take() else { return };
        process.is_candidate = false;
        let store = process.store.clone();
        if matches!(ended, Ended::Failed) && matches!(store.session(), SessionState::Connected(_)) {
            // Where it does not succeed the office goes with the session.
            let _ = at_once(election::resign(&*store, office.fence));
        }
        self.note(format_args!("broker {id} ends its term of epoch {}", office.epoch()));
    }

    /// Reads what has become dirty.
    pub fn read_changes(&mut self, id: BrokerId, changes: &Changes) {
        let mut news = Vec::new();
        if changes.node_is_dirty(paths::CONTROLLER)
            && let Err(ended) = self.check_office(id)
        {
            return self.end_term(id, &ended);
        }
        if changes.children_are_dirty(paths::LOG_DIR_EVENTS) {
            match self.take_notices(id) {
                Ok(failed) => news.push(Change::LogDirsFailed(failed)),
                Err(ended) => return self.end_term(id, &ended),
            }
        }
        let store = self.process(id).store.clone();
        let Some(office) = &self.process(id).office else { return };
        let controller = &office.controller;
        let is_of = |root: &str| changes.dirty.iter().any(|dirty| dirty.path.starts_with(root));
        let read = async {
            if is_of(paths::BROKER_IDS) {
                news.push(Change::Brokers(reads::brokers(&*store).await?));
            }
            if changes.children_are_dirty(paths::DELETE_TOPICS) {
                let names = reads::names(&*store, paths::DELETE_TOPICS).await?;
                news.push(Change::Deletions(names));
            }
            if changes.children_are_dirty(paths::TOPICS) {
                let names = reads::names(&*store, paths::TOPICS).await?;
                let knows = |topic: &str, partition: i32| controller.knows(topic, partition);
                let read = reads::topics(&*store, controller.unknown(&names), &knows).await?;
                news.push(Change::Topics { names, read });
            }
            let topics: Vec<Arc<str>> = changes
                .dirty
                .iter()
                .filter_map(|dirty| dirty.path.strip_prefix(paths::TOPICS)?.strip_prefix('/'))
                .filter(|name| !name.contains('/'))
                .map(Arc::from)
                .collect();
            let knows = |topic: &str, partition: i32| controller.knows(topic, partition);
            for read in reads::topics(&*store, topics, &knows).await? {
                news.push(Change::Topic(read));
            }
            Ok::<_, ZkError>(())
        };
        match at_once(read) {
            Some(Ok(())) => self.tell_controller(id, news),
            Some(Err(_)) | None => self.end_term(id, &Ended::Failed),
        }
    }

    /// Gives the controller news, and lets it plan.
    pub fn tell_controller(&mut self, id: BrokerId, news: Vec<Change>) {
        if let Some(office) = &mut self.process(id).office {
            office.news.extend(news);
            if !office.news.is_empty() {
                self.plan(id);
            }
        }
    }

    fn plan(&mut self, id: BrokerId) {
        let Some(office) = &mut self.process(id).office else { return };
        if office.planned.is_some() {
            return;
        }
        let news = std::mem::take(&mut office.news);
        let mut new_id = || -> Uuid { panic!("all topics have ids") };
        let plan = office.controller.plan(news, &mut new_id);
        let has_writes = !plan.writes().is_empty();
        office.planned = Some(plan);
        let epoch = office.epoch();
        let (number, delay) = (self.process_number(id), self.random.between(1, COMMIT_DELAY_MAX));
        self.after(delay, Event::Commit(id, number, epoch));
        if has_writes && self.is_struck_while_planning() {
            self.stop_for_a_while(id);
        }
    }

    /// Makes the planned writes, and does what follows from them.
    pub fn commit(&mut self, id: BrokerId, epoch: ControllerEpoch) {
        let bug = self.options.bug;
        let store = self.process(id).store.clone();
        let number = self.process_number(id);
        if !matches!(store.session(), SessionState::Connected(_)) {
            return self.after(20, Event::Commit(id, number, epoch));
        }
        let version = looked(self.looker.get(paths::CONTROLLER_EPOCH, Watch::No));
        let Some(office) = &mut self.process(id).office else { return };
        if office.epoch() != epoch {
            return;
        }
        let Some(plan) = office.planned.take() else { return };
        let mut fence = office.fence;
        if let (Some(Bug::WritesWithoutTheFence), Some(node)) = (bug, version) {
            fence.version = node.stat.version;
        }
        let wanted = plan.unclean_wanted().clone();
        let committed = at_once(commit(&*store, fence, plan.writes()));
        let outcomes = match committed {
            Some(Ok(outcomes)) => outcomes,
            Some(Err(error)) => return self.end_term(id, &error.into()),
            None => return self.end_term(id, &Ended::Failed),
        };
        let applied = office.controller.apply(plan, &outcomes);
        office.set_live();
        let unclean = |topic| Change::Unclean { topic, allowed: false };
        let news: Vec<Change> = wanted.into_iter().map(unclean).collect();
        self.announce(id, applied, news);
    }

    fn announce(&mut self, id: BrokerId, applied: Applied, mut news: Vec<Change>) {
        for decided in &applied.decided {
            let known = &decided.leadership;
            self.note(format_args!(
                "controller {id} decides {}: leader {} epoch {} isr {:?}",
                decided.partition, known.leader, known.leader_epoch, known.isr
            ));
        }
        let Some(office) = &mut self.process(id).office else { return };
        for request in applied.requests {
            if let Some(channel) = office.channels.get_mut(&request.broker) {
                channel.queue.push_back(request);
            }
        }
        let mut answers = Vec::new();
        for (ticket, answer) in applied.answers {
            let asker = office.waiting.remove(&ticket);
            if let (Some((node, request)), Answer::AlterPartition(altered)) = (asker, answer) {
                answers.push((node, request, altered));
            }
        }
        for (node, request, altered) in answers {
            self.send(Node::Broker(id), node, request, Message::Altered(altered));
        }
        self.send_words(id);
        match self.reread(id, applied.reread) {
            Ok(read) => news.extend(read),
            Err(ended) => return self.end_term(id, &ended),
        }
        let Some(office) = &mut self.process(id).office else { return };
        office.news.extend(news);
        if applied.more || !office.news.is_empty() {
            self.plan(id);
        }
    }

    /// Topics whose znodes were not as planned, with the states of all partitions.
    fn reread(&mut self, id: BrokerId, names: BTreeSet<Arc<str>>) -> Result<Vec<Change>, Ended> {
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let store = self.process(id).store.clone();
        let mut missing = names.clone();
        let mut news = Vec::new();
        let read = at_once(reads::topics(&*store, names.into_iter().collect(), &|_, _| false));
        for read in read.unwrap_or(Err(ZkError::SessionExpired))? {
            missing.remove(&read.name);
            news.push(Change::Topic(read));
        }
        news.extend(missing.into_iter().map(Change::TopicGone));
        Ok(news)
    }

    /// Sends what waits for brokers to which nothing is under way.
    fn send_words(&mut self, id: BrokerId) {
        let Some(office) = &mut self.process(id).office else { return };
        let waits = |(to, channel): (&BrokerId, &Channel)| {
            let front = channel.queue.front().filter(|_| channel.asked.is_none())?;
            Some((*to, front.clone()))
        };
        let waiting: Vec<(BrokerId, BrokerRequest)> =
            office.channels.iter().filter_map(waits).collect();
        let sent = office.words_sent;
        office.words_sent += waiting.len() as u64;
        for ((to, request), order) in waiting.into_iter().zip(sent..) {
            let message = Message::Control(Box::new(request), order);
            let asked = self.ask(Node::Broker(id), Node::Broker(to), message);
            if let Some(office) = &mut self.process(id).office
                && let Some(channel) = office.channels.get_mut(&to)
            {
                channel.asked = Some(asked);
            }
        }
    }

    /// A broker has answered.
    pub fn word_was_taken(
        &mut self,
        id: BrokerId,
        request: RequestId,
        error: ErrorCode,
        partitions: Vec<(TopicPartition, ErrorCode)>,
    ) {
        let Some(office) = &mut self.process(id).office else { return };
        let mut news = Vec::new();
        for (to, channel) in &mut office.channels {
            if channel.asked != Some(request) {
                continue;
            }
            channel.asked = None;
            let word = channel.queue.pop_front();
            let (broker, broker_epoch, errors) = (*to, channel.epoch, partitions);
            match word.map(|word| word.body) {
                Some(Body::LeaderAndIsr(_)) if error.is_none() => {
                    news.push(Change::Led { broker, broker_epoch, errors });
                }
                Some(Body::StopReplica(_)) if error.is_none() => {
                    news.push(Change::Stopped { broker, broker_epoch, errors });
                }
                _ => {}
            }
            break;
        }
        self.send_words(id);
        self.tell_controller(id, news);
    }

    /// A broker has not answered: it is asked again. Whether the request was the controller's.
    pub fn word_was_lost(&mut self, id: BrokerId, request: RequestId) -> bool {
        let number = self.process_number(id);
        let Some(office) = &mut self.process(id).office else { return false };
        let epoch = office.epoch();
        let mut channels = office.channels.iter();
        let asked = channels.find(|(_, channel)| channel.asked == Some(request));
        let Some(to) = asked.map(|(to, _)| *to) else { return false };
        self.after(SEND_BACKOFF, Event::SendAgain(id, number, epoch, to));
        true
    }

    /// Sends a broker once more what it has not answered.
    pub fn send_again(&mut self, id: BrokerId, epoch: ControllerEpoch, to: BrokerId) {
        let Some(office) = &mut self.process(id).office else { return };
        if office.epoch() == epoch
            && let Some(channel) = office.channels.get_mut(&to)
        {
            channel.asked = None;
        }
        self.send_words(id);
    }

    /// A leader wants other in-sync sets.
    pub fn take_alteration(
        &mut self,
        id: BrokerId,
        from: Node,
        request: RequestId,
        wanted: AlterPartition,
    ) {
        let Some(office) = &mut self.process(id).office else {
            let answer = Message::Altered(Err(ErrorCode::NotController));
            return self.send(Node::Broker(id), from, request, answer);
        };
        let ticket = office.take_ticket(from, request);
        self.tell_controller(id, vec![Change::AlterPartition { ticket, request: wanted }]);
    }

    /// It is time to look whether leaderships are where they belong.
    pub fn rebalance(&mut self, id: BrokerId, epoch: ControllerEpoch) {
        let Some(office) = &self.process(id).office else { return };
        if office.epoch() != epoch {
            return;
        }
        let (number, delay) =
            (self.process_number(id), self.random.between(500, REBALANCE_EVERY_MAX));
        self.after(delay, Event::Rebalance(id, number, epoch));
        self.tell_controller(id, vec![Change::Rebalance { percentage: 0 }]);
    }

    /// Tells whoever is the controller that a broker is about to stop.
    pub fn announce_stop(&mut self, broker: BrokerId) {
        let broker_epoch = self.process(broker).broker_epoch;
        // Nobody waits for the answer.
        self.tell_controllers(&mut |ticket| Change::ControlledShutdown {
            ticket,
            broker,
            broker_epoch,
        });
    }

    /// Tells whoever believes to be the controller.
    pub fn tell_controllers(&mut self, change: &mut dyn FnMut(Ticket) -> Change) {
        for id in self.brokers.keys().copied().collect::<Vec<_>>() {
            let Some(process) = self.brokers.get_mut(&id).and_then(|one| one.process.as_mut())
            else {
                continue;
            };
            if let Some(office) = &mut process.office {
                let ticket = office.take_ticket(Node::Broker(id), 0);
                self.tell_controller(id, vec![change(ticket)]);
            }
        }
    }
}
