//! Keys of listeners and connections.

use crate::config::table::Effect::{Moot, NotYet};
use crate::config::table::Importance::{High, Low, Medium};
use crate::config::table::Update::{ClusterWide, PerBroker};
use crate::config::table::{ConfigKey, int, long, string};
use crate::config::validate::Valid::AtLeast;

pub(super) const KEYS: &[ConfigKey] = &[
    string("listeners", High)
        .default("PLAINTEXT://:9092")
        .update(PerBroker)
        .doc(
            "addresses to bind, NAME://host:port; empty host means default interface, 0.0.0.0 \
             all",
        )
        .note(
            "new listeners may be added or removed at run time; existing ones keep their \
             security protocol",
        ),
    string("advertised.listeners", High)
        .update(PerBroker)
        .doc("addresses published in ZooKeeper for clients; 0.0.0.0 not allowed")
        .note("null falls back to listeners; names must be a subset of listeners"),
    string("listener.security.protocol.map", Low)
        .default("SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT")
        .update(PerBroker)
        .doc("listener name to security protocol map"),
    string("control.plane.listener.name", High).doc(
        "separate listener for controller-to-broker requests; must differ from the \
             inter-broker listener",
    ),
    int("socket.send.buffer.bytes", High)
        .default("102400")
        .doc("SO_SNDBUF of server sockets, -1 means system default"),
    int("socket.receive.buffer.bytes", High)
        .default("102400")
        .doc(
            "SO_RCVBUF of server sockets, -1 means system default; from the default on it is left to the system where \
             that may grow as far",
        ),
    int("socket.request.max.bytes", High)
        .default("104857600")
        .valid(AtLeast(1))
        .doc("largest accepted request frame"),
    int("socket.listen.backlog.size", Medium)
        .default("50")
        .valid(AtLeast(1))
        .doc("TCP accept backlog"),
    int("max.connections.per.ip", Medium)
        .default("2147483647")
        .valid(AtLeast(0))
        .update(ClusterWide)
        .doc("connections allowed from one address; 0 only together with overrides"),
    string("max.connections.per.ip.overrides", Medium)
        .default("")
        .update(ClusterWide)
        .doc("per address or host exceptions, host:count list")
        .note("overrides max.connections.per.ip for that host"),
    int("max.connections", Medium)
        .default("2147483647")
        .valid(AtLeast(0))
        .update(ClusterWide)
        .doc("connections allowed on the broker")
        .note("listener.name.NAME. prefix sets a per-listener limit, applied in addition"),
    int("max.connection.creation.rate", Medium)
        .default("2147483647")
        .valid(AtLeast(0))
        .update(ClusterWide)
        .doc("new connections per second allowed on the broker")
        .note("listener.name.NAME. prefix sets a per-listener limit"),
    long("connections.max.idle.ms", Medium)
        .default("600000")
        .doc("close connections idle this long"),
    int("connection.failed.authentication.delay.ms", Low)
        .default("100")
        .valid(AtLeast(0))
        .effect(NotYet)
        .doc(
            "delay before closing a connection that failed authentication; must be below \
             connections.max.idle.ms",
        ),
    int("queued.max.requests", High)
        .default("500")
        .valid(AtLeast(1))
        .effect(Moot)
        .doc("requests queued for handlers before network threads block"),
    long("queued.max.request.bytes", Medium).default("-1").doc(
        "bytes queued before reads stop; <= 0 is unlimited, otherwise at least \
             socket.request.max.bytes",
    ),
    int("num.network.threads", High)
        .default("3")
        .valid(AtLeast(1))
        .update(ClusterWide)
        .effect(Moot)
        .doc("network threads per listener")
        .note(
            "listener.name.NAME. prefix sets it per listener; dynamic change limited to \
             half..double",
        ),
    long("socket.connection.setup.timeout.ms", Medium)
        .default("10000")
        .doc("first timeout for outgoing TCP connects"),
    long("socket.connection.setup.timeout.max.ms", Medium)
        .default("30000")
        .effect(NotYet)
        .doc("cap for the exponentially growing connect timeout"),
];
