//! Before the first batch of a transaction is appended to a partition, the transaction's coordinator is asked whether it
//! knows of the partition; else no marker would ever come for it. Source: KIP-890 (part 1), `ReplicaManager.handleProduceAppend`.

use common::{
    error_code::ErrorCode,
    ids::{ProducerEpoch, ProducerId},
    topic::TopicPartition,
};
use kafka_protocol::messages::{ProduceRequest, TopicName, produce_request::PartitionProduceData};
use record::{
    batch::{Batch, Batches},
    produce_version,
};
use storage::verification::VerificationGuard;

use crate::{
    broker::Broker,
    errors::{self, Refusal},
    request_context::RequestContext,
};

/// First version whose clients know TRANSACTION_ABORTABLE.
const ABORTABLE: i16 = 11;

/// What becomes of a partition of a produce.
#[derive(Clone, Debug)]
pub(crate) enum Verdict {
    /// Its records are not looked at.
    Refused(Refusal),
    /// They are checked and appended, with the guard of the verification where one has begun.
    Append(Option<VerificationGuard>),
}

/// What the transaction's coordinator has to be asked.
#[derive(Debug)]
pub(crate) struct Question {
    transactional_id: String,
    producer: Producer,
    /// With the place of each in the request.
    partitions: Vec<(usize, TopicPartition)>,
    knows_abortable: bool,
}

type Producer = (ProducerId, ProducerEpoch);

/// Begins the verifications that a produce needs: a verdict for each of its partitions, and what to ask. An error refuses
/// them all.
pub(crate) fn begin(
    broker: &Broker,
    ctx: &RequestContext,
    request: &ProduceRequest,
    names: &[TopicName],
    named: &[(usize, &PartitionProduceData)],
) -> Result<(Vec<Verdict>, Option<Question>), Refusal> {
    let mut verdicts = vec![Verdict::Append(None); named.len()];
    let Some(transactional_id) = &request.transactional_id else { return Ok((verdicts, None)) };
    let Some(opening) = transactional(broker, ctx, names, named)? else {
        return Ok((verdicts, None));
    };
    if !broker.configs.current().transaction_partition_verification_enable {
        return Ok((verdicts, None));
    }
    let producer = opening.producer;
    let mut partitions = Vec::new();
    for (place, first_sequence) in opening.partitions {
        let (topic, data) = named[place];
        let hosted = broker.hosted_partition(&names[topic], data.index);
        let started = hosted.and_then(|partition| {
            let guard = partition.start_verification(producer, first_sequence);
            Ok((guard.map_err(errors::of_access)?, partition))
        });
        verdicts[place] = match started {
            Ok((None, _)) => continue,
            Ok((Some(guard), partition)) => {
                partitions.push((place, partition.topic_partition().clone()));
                Verdict::Append(Some(guard))
            }
            Err(error) => Verdict::Refused(errors::of_produce_verification(error)),
        };
    }
    let question = (!partitions.is_empty()).then(|| Question {
        transactional_id: transactional_id.to_string(),
        producer,
        partitions,
        knows_abortable: ctx.api_version >= ABORTABLE,
    });
    Ok((verdicts, question))
}

/// Takes the partitions that the coordinator does not vouch for out of a produce.
pub(crate) fn refuse(verdicts: &mut [Verdict], refused: Vec<(usize, Refusal)>) {
    for (place, refusal) in refused {
        verdicts[place] = Verdict::Refused(refusal);
    }
}

impl Question {
    /// Asks; gives what is refused, by place.
    pub(crate) async fn ask(self, broker: &Broker) -> Vec<(usize, Refusal)> {
        let (places, asked): (Vec<usize>, Vec<TopicPartition>) =
            self.partitions.into_iter().unzip();
        let transactions = &broker.transactions;
        let codes = transactions.verify(&self.transactional_id, self.producer, asked).await;
        let refused = places.into_iter().zip(codes).filter_map(|(place, code)| {
            let code = match self.knows_abortable {
                true => errors::of_verification(code),
                false => errors::without_abortable(errors::of_verification(code)),
            };
            (!code.is_none()).then(|| (place, errors::of_produce_verification(code)))
        });
        refused.collect()
    }
}

/// The transactional part of a produce.
struct Transactional {
    producer: Producer,
    /// Places in the request, with the first sequence of each.
    partitions: Vec<(usize, i32)>,
}

/// Finds the partitions whose records are part of a transaction, of those that are not refused before that matters.
fn transactional(
    broker: &Broker,
    ctx: &RequestContext,
    names: &[TopicName],
    named: &[(usize, &PartitionProduceData)],
) -> Result<Option<Transactional>, Refusal> {
    let snapshot = broker.metadata.load();
    let mut found: Option<Transactional> = None;
    for (place, (topic, data)) in named.iter().enumerate() {
        let records = data.records.as_deref().unwrap_or_default();
        if snapshot.partition(&names[*topic], data.index).is_none()
            || produce_version::check(ctx.api_version, records).is_err()
        {
            continue;
        }
        let is_part = |batch: &Batch| batch.header.is_transactional && batch.header.has_producer();
        let mut has_part = false;
        for batch in Batches::new(records).flatten().filter(is_part) {
            has_part = true;
            let producer = (batch.header.producer_id, batch.header.producer_epoch);
            let known = found.get_or_insert(Transactional { producer, partitions: Vec::new() });
            if known.producer != producer {
                return Err(Refusal::of(ErrorCode::InvalidProducerIdMapping));
            }
        }
        if let (true, Some(found)) = (has_part, &mut found) {
            let first = Batches::new(records).flatten().next();
            let first_sequence = first.map_or(-1, |batch| batch.header.base_sequence);
            found.partitions.push((place, first_sequence));
        }
    }
    Ok(found)
}
