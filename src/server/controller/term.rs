//! A controller's term, from its election until another is elected, its session ends, or it stops:
//! read what changed, plan, commit, apply, announce.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
    sync::Arc,
    time::Duration,
};

use common::{
    config::topic::TopicConfig,
    error_code::ErrorCode,
    ids::{BrokerEpoch, BrokerId, ControllerEpoch},
    topic::{TopicPartition, Uuid},
};
use controller::{
    answer::Answer,
    assignment::Assignment,
    change::Change,
    controller::{Controller, Options},
    error::ApiError,
};
use controller_store::{
    commit::{CommitError, commit},
    reads,
};
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};
use zk::{
    changes::{Changes, SessionState, ZkChanges},
    configs::{self, Entity},
    election::{self, Fence},
    error::ZnodeError,
    paths, producer_ids,
    store::{Expected, Op, SessionId, Watch, ZkError, ZkStore},
};

use super::{
    Settings,
    channels::{Channels, ToBroker},
    features,
    metrics::ControllerMetrics,
    requests::{Ask, Waiting},
    state_log,
};

pub(super) const CONTROLLER_LOG: &str = "kafka.controller.KafkaController";
/// How often the metrics are brought up to date: it takes a look at every partition.
const METRICS_INTERVAL: Duration = Duration::from_secs(1);
/// When leaderships are looked at for the first time in a term.
const FIRST_REBALANCE: Duration = Duration::from_secs(5);
/// Answers of brokers that wait for the controller; one request is under way per broker.
const ANSWERS_MAX: usize = 4096;

/// Moves that are going on.
pub(super) type Assignments = BTreeMap<TopicPartition, Assignment>;
/// A block of producer ids, or why there is none.
pub(super) type Block = Result<Range<i64>, ErrorCode>;

/// What handlers ask of the controller.
#[derive(Debug)]
pub(super) enum Command {
    /// Unclean elections were allowed, for all topics or for one.
    UncleanEnabled(Option<Arc<str>>),
    /// Something that is answered.
    Ask { ask: Ask, reply: oneshot::Sender<Answer> },
    /// Which moves are going on.
    Reassignments { only: Option<BTreeSet<TopicPartition>>, reply: oneshot::Sender<Assignments> },
    /// A block of producer ids.
    ProducerIds { broker: BrokerId, broker_epoch: BrokerEpoch, reply: oneshot::Sender<Block> },
}

/// How a term ended.
#[derive(Debug)]
pub(super) enum Ended {
    /// Another controller has been elected, or the znode is gone.
    Moved,
    /// The session has ended.
    SessionLost,
    /// The broker stops.
    Stopped,
    /// Something went wrong; the office is to be given up, so that another election follows.
    Failed(ZkError),
}

impl From<CommitError> for Ended {
    fn from(error: CommitError) -> Ended {
        match error {
            CommitError::Moved => Ended::Moved,
            CommitError::ZooKeeper(error) => error.into(),
        }
    }
}

impl From<ZkError> for Ended {
    fn from(error: ZkError) -> Ended {
        match error {
            ZkError::SessionExpired | ZkError::Closed => Ended::SessionLost,
            error => Ended::Failed(error),
        }
    }
}

/// What a term begins with.
pub(super) struct Office<'a> {
    pub(super) zk: &'a dyn ZkStore,
    pub(super) settings: &'a Settings,
    pub(super) session: SessionId,
    pub(super) fence: Fence,
    pub(super) changes: &'a mut ZkChanges,
    pub(super) commands: &'a mut mpsc::Receiver<Command>,
    pub(super) to_own: mpsc::Sender<ToBroker>,
    pub(super) told: Arc<watch::Sender<u64>>,
    pub(super) metrics: &'a ControllerMetrics,
    pub(super) stop: &'a CancellationToken,
}

impl Office<'_> {
    fn id(&self) -> BrokerId {
        self.settings.broker
    }

    fn epoch(&self) -> ControllerEpoch {
        self.fence.epoch
    }

    /// Serves until the term ends.
    pub(super) async fn serve(mut self) -> Ended {
        match self.turns().await {
            Ok(ended) | Err(ended) => {
                info!(target: CONTROLLER_LOG, "[Controller id={}] Resigned", self.id());
                ended
            }
        }
    }

    async fn turns(&mut self) -> Result<Ended, Ended> {
        let config = &self.settings.config;
        let mut controller = Controller::new(Options {
            broker: self.id(),
            epoch: self.epoch(),
            topic_ids: self.settings.topic_ids,
            leader_recovery: self.settings.leader_recovery,
            delete_topics: config.delete_topic_enable,
        });
        let (answer, mut answers) = mpsc::channel(ANSWERS_MAX);
        let reach = self.settings.reach();
        let (to_own, told) = (self.to_own.clone(), self.told.clone());
        let mut channels = Channels::open(self.id(), reach, to_own, told, answer);
        let version = config.inter_broker_protocol_version;
        features::set_up(self.zk, version, self.id().0).await?;
        let mut news = self.read_all(&controller).await?;
        let mut first = true;
        let mut measure = tokio::time::interval(METRICS_INTERVAL);
        measure.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut waiting = Waiting::default();
        let balances = config.auto_leader_rebalance_enable;
        let seconds = u64::try_from(config.leader_imbalance_check_interval_seconds).unwrap_or(1);
        let balance_interval = Duration::from_secs(seconds.max(1));
        let mut rebalance = Box::pin(tokio::time::sleep(FIRST_REBALANCE));
        let mut changed = true;
        let mut queued = 0;
        loop {
            changed |= !news.is_empty();
            news = self.turn(&mut controller, news, &mut channels, &mut waiting).await?;
            if std::mem::take(&mut first) {
                info!(
                    target: CONTROLLER_LOG,
                    "[Controller id={}] Ready to serve as the new controller with epoch {}",
                    self.id(),
                    self.epoch()
                );
            }
            if !news.is_empty() {
                continue;
            }
            tokio::select! {
                changes = self.changes.next() => {
                    let Some(changes) = changes else { return Ok(Ended::SessionLost) };
                    self.read_changes(&controller, changes, &mut news).await?;
                }
                Some(change) = answers.recv() => news.push(change),
                Some(command) = self.commands.recv() => {
                    self.take(command, &controller, &mut waiting, &mut news).await?;
                }
                () = &mut rebalance, if balances => {
                    rebalance.set(tokio::time::sleep(balance_interval));
                    news.push(self.rebalance());
                }
                _ = measure.tick(), if changed || queued > 0 => {
                    queued = channels.waiting();
                    self.metrics.show_queued(queued);
                    if std::mem::take(&mut changed) {
                        self.metrics.show(true, controller.counts());
                    }
                }
                () = self.stop.cancelled() => return Ok(Ended::Stopped),
            }
            while let Ok(change) = answers.try_recv() {
                news.push(change);
            }
            while let Ok(command) = self.commands.try_recv() {
                self.take(command, &controller, &mut waiting, &mut news).await?;
            }
        }
    }

    /// One turn, and those that follow from it without waiting. Gives what was read on the way.
    async fn turn(
        &self,
        controller: &mut Controller,
        mut news: Vec<Change>,
        channels: &mut Channels,
        waiting: &mut Waiting,
    ) -> Result<Vec<Change>, Ended> {
        loop {
            let plan = controller.plan(news, &mut Uuid::random);
            let wanted = plan.unclean_wanted().clone();
            let outcomes = commit(self.zk, self.fence, plan.writes()).await?;
            let applied = controller.apply(plan, &outcomes);
            self.metrics.count(&applied.decided);
            state_log::decided(self.id(), self.epoch(), &applied.decided);
            state_log::sending(self.id(), self.epoch(), &applied.requests);
            for topic in &applied.deleted {
                info!(
                    target: "kafka.controller.TopicDeletionManager",
                    "[Topic Deletion Manager {}] Deletion of topic {topic} successfully completed",
                    self.id()
                );
            }
            channels.set_live(controller.live_brokers());
            channels.send(applied.requests).await;
            waiting.answer(applied.answers);
            news = Vec::new();
            self.report_failed_orders(&applied.failed_orders);
            if applied.reread_orders {
                news.push(Change::Orders(reads::orders(self.zk).await?));
            }
            for topic in wanted {
                let allowed = self.unclean_allowed(&topic).await?;
                news.push(Change::Unclean { topic, allowed });
            }
            self.reread(applied.reread, &mut news).await?;
            if !applied.more || !news.is_empty() {
                return Ok(news);
            }
        }
    }

    /// All that a new controller must know, in the order in which it wants to be told.
    async fn read_all(&self, controller: &Controller) -> Result<Vec<Change>, Ended> {
        let id = self.id();
        info!(target: CONTROLLER_LOG, "[Controller id={id}] Initializing controller context");
        self.check_office().await?;
        self.forget_notices(paths::LOG_DIR_EVENTS).await?;
        self.forget_notices(paths::ISR_CHANGES).await?;
        let brokers = reads::brokers(self.zk).await?;
        let live: Vec<String> = brokers.iter().map(|broker| broker.id.to_string()).collect();
        info!(
            target: CONTROLLER_LOG,
            "[Controller id={id}] Currently active brokers in the cluster: Set({})",
            live.join(", ")
        );
        let names = reads::names(self.zk, paths::TOPICS).await?;
        let read = self.read_topics(controller, &names).await?;
        let deletions = reads::names(self.zk, paths::DELETE_TOPICS).await?;
        let listed: Vec<&str> = deletions.iter().map(|name| &**name).collect();
        info!(
            target: CONTROLLER_LOG,
            "[Controller id={id}] List of topics to be deleted: {}",
            listed.join(",")
        );
        let mut news = vec![
            Change::Brokers(brokers),
            Change::Topics { names, read },
            Change::Deletions(deletions),
        ];
        news.push(Change::Orders(reads::orders(self.zk).await?));
        self.read_preferred(&mut news).await?;
        Ok(news)
    }

    async fn read_topics(
        &self,
        controller: &Controller,
        names: &BTreeSet<Arc<str>>,
    ) -> Result<Vec<controller::change::TopicRead>, ZkError> {
        let knows = |topic: &str, partition: i32| controller.knows(topic, partition);
        reads::topics(self.zk, controller.unknown(names), &knows).await
    }

    /// Reads what became dirty.
    async fn read_changes(
        &self,
        controller: &Controller,
        changes: Changes,
        news: &mut Vec<Change>,
    ) -> Result<(), Ended> {
        match changes.session {
            Some(SessionState::Connected(id) | SessionState::Disconnected(id))
                if id != self.session =>
            {
                return Err(Ended::SessionLost);
            }
            Some(SessionState::Expired(_) | SessionState::Closed | SessionState::Connecting) => {
                return Err(Ended::SessionLost);
            }
            _ => {}
        }
        let mut brokers = false;
        let (mut topics, mut mended) = (Vec::new(), BTreeSet::new());
        for dirty in &changes.dirty {
            match dirty.path.as_str() {
                paths::CONTROLLER => self.check_office().await?,
                paths::TOPICS => {
                    let names = reads::names(self.zk, paths::TOPICS).await?;
                    let read = self.read_topics(controller, &names).await?;
                    news.push(Change::Topics { names, read });
                }
                paths::DELETE_TOPICS => {
                    let names = reads::names(self.zk, paths::DELETE_TOPICS).await?;
                    news.push(Change::Deletions(names));
                }
                paths::LOG_DIR_EVENTS => {
                    let (failed, notices) = reads::log_dir_events(self.zk).await?;
                    news.push(Change::LogDirsFailed(failed));
                    self.delete(notices).await?;
                }
                paths::ISR_CHANGES => {
                    let (states, notices) = reads::isr_changes(self.zk).await?;
                    news.push(Change::States(states));
                    self.delete(notices).await?;
                }
                paths::REASSIGN_PARTITIONS => {
                    news.push(Change::Orders(reads::orders(self.zk).await?));
                }
                paths::PREFERRED_REPLICA_ELECTION => self.read_preferred(news).await?,
                path if path.starts_with(paths::BROKER_IDS) => brokers = true,
                path => {
                    let below = path.strip_prefix(paths::TOPICS);
                    let Some(below) = below.and_then(|rest| rest.strip_prefix('/')) else {
                        continue;
                    };
                    match below.split_once('/') {
                        None => topics.push(Arc::from(below)),
                        // The state of a partition that could not be read.
                        Some((topic, _)) => drop(mended.insert(Arc::from(topic))),
                    }
                }
            }
        }
        if brokers {
            news.push(Change::Brokers(reads::brokers(self.zk).await?));
        }
        let knows = |topic: &str, partition: i32| controller.knows(topic, partition);
        for read in reads::topics(self.zk, topics, &knows).await? {
            news.push(Change::Topic(read));
        }
        self.reread(mended, news).await
    }

    /// Whether `/controller` is still this session's; it may have been deleted, or taken by another.
    async fn check_office(&self) -> Result<(), Ended> {
        match election::controller(self.zk, Watch::Yes).await {
            Ok(Some(controller)) if controller.owner == Some(self.session) => Ok(()),
            Ok(_) => Err(Ended::Moved),
            Err(ZnodeError::ZooKeeper(error)) => Err(error.into()),
            // Whatever is there, it is not what this broker wrote.
            Err(_) => Err(Ended::Moved),
        }
    }

    /// Topics whose znodes were not as planned, with the states of all partitions.
    async fn reread(&self, names: BTreeSet<Arc<str>>, news: &mut Vec<Change>) -> Result<(), Ended> {
        if names.is_empty() {
            return Ok(());
        }
        let mut missing = names.clone();
        for read in reads::topics(self.zk, names.into_iter().collect(), &|_, _| false).await? {
            missing.remove(&read.name);
            news.push(Change::Topic(read));
        }
        news.extend(missing.into_iter().map(Change::TopicGone));
        Ok(())
    }

    async fn read_preferred(&self, news: &mut Vec<Change>) -> Result<(), Ended> {
        if let Some(partitions) = reads::preferred_elections(self.zk).await? {
            news.push(Change::PreferLeaders(partitions));
            self.delete(vec![paths::PREFERRED_REPLICA_ELECTION.to_owned()]).await?;
            // The next order is watched for from here on.
            self.zk.exists(paths::PREFERRED_REPLICA_ELECTION, Watch::Yes).await?;
        }
        Ok(())
    }

    /// Notices from before the election: whatever they say is read anyway.
    async fn forget_notices(&self, path: &str) -> Result<(), Ended> {
        let names = self.zk.children(path, Watch::Yes).await?;
        self.delete(names.iter().map(|name| format!("{path}/{name}")).collect()).await
    }

    async fn delete(&self, paths: Vec<String>) -> Result<(), Ended> {
        for path in paths {
            let ops = vec![self.fence.check(), Op::delete(path, Expected::Any)];
            match self.zk.multi(ops).await {
                Ok(_) | Err(ZkError::MayHaveHappened { .. }) => {}
                Err(ZkError::Multi { index: 0, .. }) => return Err(Ended::Moved),
                Err(error) if error.is_conflict() => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// `unclean.leader.election.enable` as it holds for the topic. What cannot be read is not allowed.
    async fn unclean_allowed(&self, topic: &str) -> Result<bool, Ended> {
        let overrides = configs::read(self.zk, &Entity::new("topics", topic)).await?;
        match TopicConfig::new(&self.settings.broker_configs.current(), &overrides) {
            Ok(config) => Ok(config.unclean_leader_election_enable),
            Err(problem) => {
                warn!(topic, problem = problem.message, "the topic's configs are not usable");
                Ok(false)
            }
        }
    }

    /// Does what a handler asks, or takes it into the next turn.
    async fn take(
        &self,
        command: Command,
        controller: &Controller,
        waiting: &mut Waiting,
        news: &mut Vec<Change>,
    ) -> Result<(), Ended> {
        match command {
            Command::UncleanEnabled(topic) => news.push(Change::UncleanEnabled(topic)),
            Command::Ask { ask, reply } => news.push(waiting.take(ask, reply)),
            Command::Reassignments { only, reply } => {
                // Who asked may be gone.
                let _ = reply.send(controller.reassignments(only.as_ref()));
            }
            Command::ProducerIds { broker, broker_epoch, reply } => {
                let block = match controller.broker_epoch(broker) {
                    None => Err(ErrorCode::BrokerIdNotRegistered),
                    Some(epoch) if epoch != broker_epoch => Err(ErrorCode::StaleBrokerEpoch),
                    Some(_) => self.producer_ids(broker).await?,
                };
                // A block that nobody takes is simply never used.
                let _ = reply.send(block);
            }
        }
        Ok(())
    }

    async fn producer_ids(&self, broker: BrokerId) -> Result<Block, Ended> {
        match producer_ids::allocate_block(self.zk, broker).await {
            Ok(block) => Ok(Ok(block)),
            Err(ZnodeError::ZooKeeper(error @ (ZkError::SessionExpired | ZkError::Closed))) => {
                Err(error.into())
            }
            Err(error) => {
                warn!(target: CONTROLLER_LOG, %error, %broker, "no block of producer ids");
                Ok(Err(ErrorCode::UnknownServerError))
            }
        }
    }

    fn rebalance(&self) -> Change {
        info!(
            target: CONTROLLER_LOG,
            "[Controller id={}] Processing automatic preferred replica leader election",
            self.id()
        );
        let percentage = self.settings.config.leader_imbalance_per_broker_percentage;
        Change::Rebalance { percentage }
    }

    fn report_failed_orders(&self, failed: &[(TopicPartition, ApiError)]) {
        for (partition, error) in failed {
            let message = error.message.as_deref().unwrap_or_default();
            warn!(
                target: CONTROLLER_LOG,
                "[Controller id={}] Failed reassignment through zk of {partition}: {} {message}",
                self.id(),
                error.code
            );
        }
    }
}
