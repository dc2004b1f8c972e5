//! Keys of the ZooKeeper client.

use crate::config::table::Effect::{JavaOnly, KRaftOnly};
use crate::config::table::Importance::{High, Low, Medium};
use crate::config::table::{ConfigKey, boolean, int, list, password, string};
use crate::config::validate::Valid::AtLeast;

pub(super) const KEYS: &[ConfigKey] = &[
    string("zookeeper.connect", High)
        .doc("ZooKeeper ensemble host:port list with optional chroot suffix; mandatory in ZK mode"),
    int("zookeeper.session.timeout.ms", High).default("18000").doc("ZooKeeper session timeout"),
    int("zookeeper.connection.timeout.ms", High)
        .doc("wait for the first ZooKeeper connection")
        .note("null falls back to zookeeper.session.timeout.ms"),
    boolean("zookeeper.set.acl", High)
        .default("false")
        .doc("create znodes with restrictive ACLs (needs an authenticated ZooKeeper client)"),
    int("zookeeper.max.in.flight.requests", High)
        .default("10")
        .valid(AtLeast(1))
        .doc("pipelined ZooKeeper requests before blocking"),
    boolean("zookeeper.ssl.client.enable", Medium).default("false").doc("talk TLS to ZooKeeper"),
    string("zookeeper.clientCnxnSocket", Medium)
        .effect(JavaOnly)
        .doc("ZooKeeper client socket class; Netty one needed for TLS"),
    string("zookeeper.ssl.keystore.location", Medium)
        .doc("keystore for the ZooKeeper TLS client certificate"),
    password("zookeeper.ssl.keystore.password", Medium)
        .doc("password of that keystore (key password must be the same)"),
    string("zookeeper.ssl.keystore.type", Medium)
        .doc("type of that keystore; null means by file extension"),
    string("zookeeper.ssl.truststore.location", Medium)
        .doc("trust store for the ZooKeeper server certificate")
        .note("needed for TLS: there is no list of authorities as Java has one"),
    password("zookeeper.ssl.truststore.password", Medium).doc("password of that trust store"),
    string("zookeeper.ssl.truststore.type", Medium)
        .doc("type of that trust store; null means by file extension"),
    string("zookeeper.ssl.protocol", Low)
        .default("TLSv1.2")
        .doc("TLS version negotiated with ZooKeeper"),
    list("zookeeper.ssl.enabled.protocols", Low)
        .doc("TLS versions allowed with ZooKeeper")
        .note("null falls back to zookeeper.ssl.protocol"),
    list("zookeeper.ssl.cipher.suites", Low).doc("cipher suites allowed with ZooKeeper"),
    string("zookeeper.ssl.endpoint.identification.algorithm", Low)
        .default("HTTPS")
        .doc("HTTPS checks the ZooKeeper host name, blank turns it off"),
    boolean("zookeeper.ssl.crl.enable", Low)
        .default("false")
        .doc("check certificate revocation lists with ZooKeeper")
        .note("true is refused: revocation is not checked"),
    boolean("zookeeper.ssl.ocsp.enable", Low)
        .default("false")
        .doc("use OCSP with ZooKeeper")
        .note("true is refused: revocation is not checked"),
    boolean("zookeeper.metadata.migration.enable", High).default("false").effect(KRaftOnly).doc(
        "put this ZK broker in KRaft-migration mode: registers with the quorum and forwards \
             admin requests; needs fixed broker.id, controller.listener.names, quorum settings and \
             IBP >= 3.4",
    ),
];
