//! The controller's lines in `state-change.log`, in Kafka's words.

use common::ids::{BrokerId, ControllerEpoch};
use controller::{
    plan::Decided,
    request::{Body, BrokerRequest},
    states::{Leadership, PartitionState},
};
use tracing::info;

const STATE_CHANGE_LOG: &str = "state.change.logger";

fn name(state: PartitionState) -> &'static str {
    match state {
        PartitionState::New => "NewPartition",
        PartitionState::Online => "OnlinePartition",
        PartitionState::Offline => "OfflinePartition",
        PartitionState::NonExistent => "NonExistentPartition",
    }
}

/// As `LeaderAndIsr.toString`.
fn show(leadership: &Leadership) -> String {
    let one = |broker: &BrokerId| format!("BrokerState(brokerId={broker}, brokerEpoch=-1)");
    let isr: Vec<String> = leadership.isr.iter().map(one).collect();
    let recovery = if leadership.recovering { "RECOVERING" } else { "RECOVERED" };
    format!(
        "LeaderAndIsr(leader={}, leaderEpoch={}, isrWithBrokerEpoch=List({}), \
         leaderRecoveryState={recovery}, partitionEpoch={})",
        leadership.leader,
        leadership.leader_epoch,
        isr.join(", "),
        leadership.partition_epoch
    )
}

/// Leaderships that were written.
pub(super) fn decided(id: BrokerId, epoch: ControllerEpoch, decided: &[Decided]) {
    for Decided { partition, before, after, leadership, .. } in decided {
        info!(
            target: STATE_CHANGE_LOG,
            "[Controller id={id} epoch={epoch}] Changed partition {partition} from {} to {} with state {}",
            name(*before),
            name(*after),
            show(leadership)
        );
    }
}

/// Requests that are about to be sent.
pub(super) fn sending(id: BrokerId, epoch: ControllerEpoch, requests: &[BrokerRequest]) {
    for request in requests {
        let broker = request.broker;
        match &request.body {
            Body::LeaderAndIsr(content) => {
                let all = || content.topics.iter().flat_map(|topic| &topic.partitions);
                let total = all().count();
                let leads = all().filter(|one| one.leadership.leader == broker).count();
                info!(
                    target: STATE_CHANGE_LOG,
                    "[Controller id={id} epoch={epoch}] Sending LeaderAndIsr request to broker {broker} \
                     with {leads} become-leader and {} become-follower partitions",
                    total - leads
                );
            }
            Body::UpdateMetadata(update) => {
                let count: usize = update.topics.iter().map(|topic| topic.partitions.len()).sum();
                info!(
                    target: STATE_CHANGE_LOG,
                    "[Controller id={id} epoch={epoch}] Sending UpdateMetadata request to brokers \
                     HashSet({broker}) for {count} partitions"
                );
            }
            Body::StopReplica(stop) => {
                let count: usize = stop.topics.iter().map(|topic| topic.partitions.len()).sum();
                info!(
                    target: STATE_CHANGE_LOG,
                    "[Controller id={id} epoch={epoch}] Sending StopReplica request for {count} \
                     replicas to broker {broker}"
                );
            }
        }
    }
}
