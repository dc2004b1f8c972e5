//! What a listener counts, under the names of Kafka's `socket-server-metrics`.

use std::sync::Arc;

use common::counters::{Gauge, Meter, MetricName, Registry};

/// The counters of one listener; bumped once for what came or went together.
pub(crate) struct Traffic {
    connections: Arc<Gauge>,
    created: Arc<Meter>,
    closed: Arc<Meter>,
    pub(crate) bytes_in: Arc<Meter>,
    pub(crate) bytes_out: Arc<Meter>,
    pub(crate) requests: Arc<Meter>,
    pub(crate) responses: Arc<Meter>,
}

impl Traffic {
    pub(crate) fn new(registry: &Registry, listener: &str) -> Arc<Traffic> {
        let name = |name| {
            MetricName::new("kafka.server", "socket-server-metrics", name).tag("listener", listener)
        };
        Arc::new(Traffic {
            connections: registry.gauge(name("connection-count")),
            created: registry.meter(name("connection-creation-total")),
            closed: registry.meter(name("connection-close-total")),
            bytes_in: registry.meter(name("incoming-byte-total")),
            bytes_out: registry.meter(name("outgoing-byte-total")),
            requests: registry.meter(name("request-total")),
            responses: registry.meter(name("response-total")),
        })
    }
}

/// A connection that is counted until it is dropped.
pub(crate) struct Counted(pub(crate) Arc<Traffic>);

impl Counted {
    pub(crate) fn new(traffic: Arc<Traffic>) -> Counted {
        traffic.connections.add(1);
        traffic.created.mark(1);
        Counted(traffic)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.connections.add(-1);
        self.0.closed.mark(1);
    }
}
