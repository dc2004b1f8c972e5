//! A topic serves no record of a former one of its name: whatever is read of it, a leader of it has appended.

use common::{ids::Offset, topic::Uuid};

use crate::{
    copies::{Content, Stored},
    network::Node,
    world::World,
};

const NAME: &str = "incarnations";

impl World {
    /// A consumer sees records of a topic, given by a broker.
    pub fn check_incarnation(
        &mut self,
        (client, from): (usize, Node),
        (topic_id, partition): (Uuid, i32),
        records: &[(Offset, Stored)],
    ) {
        for (offset, stored) in records {
            let Content::Value(value) = stored.content else { continue };
            let appended = self.history.appended.get(&value);
            if !appended.is_some_and(|topics| topics.contains(&topic_id)) {
                let former: Vec<u128> =
                    appended.into_iter().flatten().map(|topic| topic.0).collect();
                let topic = topic_id.0;
                let what = format!(
                    "client {client} gets {value} at {offset} of {partition} of topic {topic} from {from:?}: it is of {former:?}"
                );
                return self.violate(NAME, what);
            }
        }
    }
}
