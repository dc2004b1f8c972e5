//! Transactions are not torn: readers of committed records never see those of one that goes on or was aborted, and in the
//! end they see all of those that were committed.

use std::collections::BTreeSet;

use common::{ids::Offset, topic::Uuid};
use record::control::TransactionResult;

use crate::{clients::without_aborted, copies::parse, network::Consume, world::World};

const NAME: &str = "transactions";
const COMMITTED: Option<TransactionResult> = Some(TransactionResult::Commit);

impl World {
    /// A reader of committed records sees values.
    pub fn check_committed(&mut self, client: usize, partition: i32, visible: &[(Offset, u64)]) {
        for (offset, value) in visible {
            let transactions = &self.clients.transactions;
            let number = transactions.iter().position(|one| one.values.contains(value));
            let Some(number) = number else { continue };
            let result = transactions[number].result;
            if result != COMMITTED {
                let what = format!(
                    "client {client} sees {value} at {offset} of {partition}, of transaction {number}: {result:?}"
                );
                return self.violate(NAME, what);
            }
        }
    }

    /// Everything is whole again.
    pub fn check_transactions_at_the_end(&mut self) {
        let Some(topic_id) = self.topic_in_office() else { return };
        for partition in self.partitions.clone() {
            let visible = match self.read_committed(topic_id, partition) {
                Ok(visible) => visible,
                Err(what) => return self.violate(NAME, what),
            };
            let clients = usize::MAX;
            self.check_committed(clients, partition, &visible);
            let visible: BTreeSet<u64> = visible.into_iter().map(|(_, value)| value).collect();
            let complete = self.clients.transactions.iter().enumerate();
            // What went to a former topic is gone with it.
            let complete = complete.filter(|(_, one)| one.topic_id == Some(topic_id));
            let complete = complete.filter(|(_, one)| one.result == COMMITTED && one.is_complete);
            let mut missing = complete.flat_map(|(number, one)| {
                let values = one.partitions.get(&partition).into_iter().flatten();
                values.filter(|value| !visible.contains(value)).map(move |value| (number, *value))
            });
            if let Some((number, value)) = missing.next() {
                let what =
                    format!("{value} of transaction {number} is not to be seen in {partition}");
                return self.violate(NAME, what);
            }
        }
    }

    /// What the leader gives to a reader of committed records.
    fn read_committed(
        &mut self,
        topic_id: Uuid,
        partition: i32,
    ) -> Result<Vec<(Offset, u64)>, String> {
        let leader = self.invariants.states.states.get(&partition).map(|(state, _)| state.leader);
        let leader = leader.ok_or("there is no leader")?;
        let mut visible = Vec::new();
        let mut offset = Offset::ZERO;
        loop {
            let consume = Consume { topic_id, partition, offset, committed: true };
            let consumed = self.consume(leader, consume);
            let consumed = consumed.map_err(|error| format!("{leader} answers {error}"))?;
            let mut records = parse(&consumed.records);
            records.retain(|(at, _)| *at >= offset);
            let Some((last, _)) = records.last() else { return Ok(visible) };
            offset = last.plus(1);
            visible.extend(without_aborted(&records, &consumed.aborted));
        }
    }
}
