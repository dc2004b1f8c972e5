//! Before it stops, a broker has the controller move what it leads. Source: `KafkaServer.controlledShutdown`.

use std::{
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use common::{
    clock,
    error_code::ErrorCode,
    ids::{BrokerEpoch, BrokerId},
};
use kafka_protocol::messages::{BrokerId as WireBrokerId, ControlledShutdownRequest};
use tracing::{info, warn};
use zk::changes::SessionState;

use crate::{
    broker::Broker,
    peers::{PeerError, Purpose},
};

const SERVER_LOG: &str = "kafka.server.KafkaServer";

/// How long new leaders have to take over what this broker led. A broker of Kafka does not.
pub(crate) const TAKEN_OVER_AT_MOST: Duration = Duration::from_secs(1);
/// How often to look whether they have.
pub(crate) const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// What came of one attempt.
enum Attempt {
    /// The broker leads nothing that others hold too.
    Moved,
    /// There is nobody to ask, and there will not be soon.
    InVain,
    /// Another attempt may help.
    Failed,
}

/// Asks until nothing is left to move, or the attempts of the configuration are used up.
pub(crate) async fn run(broker: &Broker) {
    let id = broker.id;
    info!(target: SERVER_LOG, "[KafkaServer id={id}] Starting controlled shutdown");
    let backoff_ms = u64::try_from(broker.config.controlled_shutdown_retry_backoff_ms).unwrap_or(0);
    let mut left = broker.config.controlled_shutdown_max_retries;
    while left > 0 {
        left -= 1;
        match attempt(broker).await {
            Attempt::Moved => return wait_until_taken_over(broker).await,
            Attempt::InVain => break,
            Attempt::Failed if left == 0 => break,
            Attempt::Failed => {}
        }
        tokio::time::sleep(Duration::from_millis(backoff_ms)).await;
        info!(target: SERVER_LOG, "[KafkaServer id={id}] Retrying controlled shutdown ({left} retries remaining)");
    }
    warn!(
        target: SERVER_LOG,
        "[KafkaServer id={id}] Proceeding to do an unclean shutdown as all the controlled shutdown attempts failed"
    );
}

/// Stays until the new leaders have what this one took last: see `replication::takeover`.
async fn wait_until_taken_over(broker: &Broker) {
    let id = broker.id;
    let deadline = clock::now() + TAKEN_OVER_AT_MOST;
    loop {
        let left = broker.replicas.left_to_move();
        if left == 0 {
            return;
        }
        if clock::now() >= deadline {
            info!(target: SERVER_LOG, "[KafkaServer id={id}] {left} partitions were not taken over in time");
            return;
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

async fn attempt(broker: &Broker) -> Attempt {
    let id = broker.id;
    let connected = matches!(broker.zk.session(), SessionState::Connected(_));
    let controller = broker.metadata.load().controller();
    if !connected && controller.is_none_or(|controller| controller == id) {
        // It cannot write what it decides, and whoever follows it in office will find this broker gone.
        info!(target: SERVER_LOG, "[KafkaServer id={id}] Nobody can move what this broker leads while ZooKeeper is away");
        return Attempt::InVain;
    }
    let Some(controller) = controller else {
        info!(target: SERVER_LOG, "[KafkaServer id={id}] No zk controller present in the metadata cache");
        return Attempt::Failed;
    };
    let began = clock::now();
    let answered = match controller == id {
        true => ask_own(broker).await,
        false => ask(broker, controller).await,
    };
    judge(id, began, answered)
}

fn judge(
    id: BrokerId,
    began: Instant,
    answered: Result<Result<usize, ErrorCode>, PeerError>,
) -> Attempt {
    let after = began.elapsed().as_millis();
    match answered {
        Ok(Ok(0)) => {
            info!(
                target: SERVER_LOG,
                "[KafkaServer id={id}] Controlled shutdown request returned successfully after {after}ms"
            );
            return Attempt::Moved;
        }
        Ok(Ok(remaining)) => info!(
            target: SERVER_LOG,
            "[KafkaServer id={id}] Controlled shutdown request returned after {after}ms with {remaining} partitions remaining to move"
        ),
        Ok(Err(error)) => info!(
            target: SERVER_LOG,
            "[KafkaServer id={id}] Controlled shutdown request returned after {after}ms with error {error}"
        ),
        Err(problem) => warn!(
            target: SERVER_LOG,
            problem = &problem as &dyn std::error::Error,
            "[KafkaServer id={id}] Error during controlled shutdown, possibly because leader movement took longer than the configured controller.socket.timeout.ms and/or request.timeout.ms"
        ),
    }
    Attempt::Failed
}

fn timeout(broker: &Broker) -> Duration {
    Duration::from_millis(u64::try_from(broker.config.request_timeout_ms).unwrap_or(0))
}

fn epoch(broker: &Broker) -> BrokerEpoch {
    BrokerEpoch(broker.epoch.load(Ordering::Acquire))
}

/// The controller is this broker.
async fn ask_own(broker: &Broker) -> Result<Result<usize, ErrorCode>, PeerError> {
    let asked = broker.controller.controlled_shutdown(broker.id, epoch(broker));
    let answered = tokio::time::timeout(timeout(broker), asked).await;
    Ok(answered.unwrap_or(Err(ErrorCode::RequestTimedOut)).map(|led| led.len()))
}

/// The number of partitions that are left, or the controller's refusal.
async fn ask(broker: &Broker, controller: BrokerId) -> Result<Result<usize, ErrorCode>, PeerError> {
    let request = ControlledShutdownRequest::default()
        .with_broker_id(WireBrokerId(broker.id.0))
        .with_broker_epoch(epoch(broker).0);
    let limit = timeout(broker);
    let asked = broker.peers.call(controller, Purpose::Controller, &request, 0..=3, limit);
    let (response, _) = asked.await?;
    let error = ErrorCode::from_code(response.error_code);
    Ok(if error.is_none() { Ok(response.remaining_partitions.len()) } else { Err(error) })
}
