//! Moves between log directories of one broker.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use client::{
    admin::{
        Admin,
        replicas::{Replica, ReplicaLogDirs},
    },
    error::ClientError,
};
use common::{clock, error_code::ErrorCode};

use super::{Failure, file::joined};
use crate::{console::say, java_order::by_replica};

/// A broker that does not have the replica yet is asked again after this time.
const PAUSE: Duration = Duration::from_millis(100);

/// How far a replica is on its way to a directory.
#[derive(Debug, PartialEq, Eq)]
enum State {
    /// No directory of the broker that is online has it.
    Missing,
    /// It is where it was to go.
    Completed,
    /// It is elsewhere, and not moving.
    NotMoving { current: String },
    /// It moves there, or to another place.
    Moving { current: String, future: String },
}

impl State {
    fn of(directories: &ReplicaLogDirs, target: &str) -> State {
        match (&directories.current, &directories.future) {
            (None, _) => State::Missing,
            (Some(current), None) if current == target => State::Completed,
            (Some(current), None) => State::NotMoving { current: current.clone() },
            (Some(current), Some(future)) => {
                State::Moving { current: current.clone(), future: future.clone() }
            }
        }
    }

    /// Whether no more will come of it by itself.
    fn is_done(&self) -> bool {
        matches!(self, State::Completed | State::NotMoving { .. })
    }

    fn tell(&self, replica: &Replica, target: &str) -> String {
        let Replica { partition, broker } = replica;
        match self {
            State::Missing => format!(
                "Partition {partition} is not found in any live log dir on broker {broker}. There is likely an offline log directory on the broker."
            ),
            State::Completed => {
                format!("Reassignment of replica {replica} completed successfully.")
            }
            State::NotMoving { current } => format!(
                "Partition {partition} on broker {broker} is not being moved from log dir {current} to {target}."
            ),
            State::Moving { future, .. } if future == target => {
                format!("Reassignment of replica {replica} is still in progress.")
            }
            State::Moving { future, .. } => format!(
                "Partition {partition} on broker {broker} is being moved to log dir {future} instead of {target}."
            ),
        }
    }
}

async fn states(
    admin: &Admin,
    targets: &BTreeMap<Replica, String>,
) -> Result<BTreeMap<Replica, State>, ClientError> {
    let replicas: BTreeSet<Replica> = targets.keys().cloned().collect();
    let found = admin.describe_replica_log_dirs(&replicas).await?;
    let state = |(replica, directories): (Replica, ReplicaLogDirs)| {
        let state = State::of(&directories, &targets[&replica]);
        (replica, state)
    };
    Ok(found.into_iter().map(state).collect())
}

/// Replicas in the order in which they are told of: by broker first.
fn by_broker<'a>(replicas: impl Iterator<Item = &'a Replica>) -> Vec<&'a Replica> {
    let mut replicas: Vec<&Replica> = replicas.collect();
    replicas.sort_by_key(|replica| (replica.broker, &replica.partition));
    replicas
}

/// Tells how far the moves are, and whether one is under way.
pub(super) async fn verify(
    admin: &Admin,
    targets: &BTreeMap<Replica, String>,
) -> Result<bool, ClientError> {
    let states = states(admin, targets).await?;
    let lines: Vec<String> = by_broker(states.keys())
        .into_iter()
        .map(|replica| states[replica].tell(replica, &targets[replica]))
        .collect();
    say(&lines.join("\n"));
    Ok(!states.values().all(State::is_done))
}

/// The directories from which replicas are being moved: moving them there ends the move.
pub(super) async fn under_way(
    admin: &Admin,
    targets: &BTreeMap<Replica, String>,
) -> Result<BTreeMap<Replica, String>, ClientError> {
    let moving = |(replica, state)| match state {
        State::Moving { current, .. } => Some((replica, current)),
        _ => None,
    };
    Ok(states(admin, targets).await?.into_iter().filter_map(moving).collect())
}

/// Begins the moves. A replica that is yet to come to its broker is waited for, up to `timeout_ms`.
pub(super) async fn execute(
    admin: &Admin,
    mut pending: BTreeMap<Replica, String>,
    timeout_ms: i64,
) -> Result<(), Failure> {
    let begun = clock::now();
    let timeout = Duration::from_millis(u64::try_from(timeout_ms).unwrap_or(0));
    loop {
        let mut begun_now = BTreeSet::new();
        let results = admin.alter_replica_log_dirs(&pending).await;
        for (replica, result) in by_replica(results.into_iter().collect(), |(name, _)| name) {
            match result {
                Ok(()) => drop(begun_now.insert(replica)),
                Err(error) if error.code() == ErrorCode::ReplicaNotAvailable => {}
                Err(error) => {
                    tracing::debug!(%replica, %error, "the broker refused");
                    return Err(Failure::Error(format!("Failed to alter dir for {replica}")));
                }
            }
        }
        for replica in by_broker(begun_now.iter()) {
            say(&format!(
                "Successfully started moving log directory to {} for replica {} with broker {} ",
                pending[replica], replica.partition, replica.broker
            ));
        }
        pending.retain(|replica, _| !begun_now.contains(replica));
        if pending.is_empty() {
            return Ok(());
        }
        if clock::now() >= begun + timeout {
            let plural = if pending.len() == 1 { "" } else { "s" };
            let names = joined(&by_broker(pending.keys()), ",");
            return Err(Failure::Terse(format!(
                "Timed out before log directory move{plural} could be started for: {names}"
            )));
        }
        tokio::time::sleep(PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use client::admin::replicas::{Replica, ReplicaLogDirs};
    use common::topic::TopicPartition;

    use super::State;

    #[test]
    fn states_are_told_in_kafkas_words() {
        let replica = Replica { partition: TopicPartition::new("t", 0), broker: 2 };
        let told = |current: &str, future: &str| {
            let path = |path: &str| (!path.is_empty()).then(|| path.to_owned());
            let directories = ReplicaLogDirs { current: path(current), future: path(future) };
            let state = State::of(&directories, "/b");
            (state.tell(&replica, "/b"), state.is_done())
        };
        assert!(told("", "").0.starts_with("Partition t-0 is not found in any live log dir"));
        assert_eq!(
            told("/b", ""),
            ("Reassignment of replica t-0-2 completed successfully.".to_owned(), true)
        );
        assert_eq!(
            told("/a", "").0,
            "Partition t-0 on broker 2 is not being moved from log dir /a to /b."
        );
        assert_eq!(
            told("/a", "/b"),
            ("Reassignment of replica t-0-2 is still in progress.".to_owned(), false)
        );
        assert_eq!(
            told("/a", "/c").0,
            "Partition t-0 on broker 2 is being moved to log dir /c instead of /b."
        );
    }
}
