//! Keys of principals, TLS, authorization, tokens and stored passwords.

use crate::config::table::Effect::{JavaOnly, NotYet};
use crate::config::table::Importance::{Low, Medium};
use crate::config::table::Update::PerBroker;
use crate::config::table::{ConfigKey, boolean, class, int, list, long, password, string};
use crate::config::validate::Valid::{AtLeast, NonNull, OneOf};

pub(super) const KEYS: &[ConfigKey] = &[
    long("connections.max.reauth.ms", Medium)
        .default("0")
        .effect(NotYet)
        .doc("positive value forces SASL sessions to re-authenticate within this time")
        .note("listener.name.NAME.MECHANISM. prefix allowed"),
    string("security.providers", Low)
        .effect(JavaOnly)
        .doc("JVM security provider classes to install"),
    class("principal.builder.class", Medium)
        .default("org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder")
        .update(PerBroker)
        .effect(JavaOnly)
        .doc("plug-in turning an authenticated peer into a principal; must also serialise it"),
    string("ssl.client.auth", Medium)
        .default("none")
        .valid(OneOf(&["required", "requested", "none"]))
        .update(PerBroker)
        .effect(NotYet)
        .doc("demand client certificates"),
    string("ssl.principal.mapping.rules", Low)
        .default("DEFAULT")
        .effect(NotYet)
        .doc("rules from certificate DN to short name"),
    boolean("ssl.allow.dn.changes", Low)
        .default("false")
        .effect(NotYet)
        .doc("allow a reloaded certificate to have another DN"),
    boolean("ssl.allow.san.changes", Low)
        .default("false")
        .effect(NotYet)
        .doc("allow a reloaded certificate to have other alternative names"),
    string("ssl.protocol", Medium)
        .default("TLSv1.3")
        .update(PerBroker)
        .effect(NotYet)
        .doc("TLS version preferred (TLSv1.2 on Java 8)"),
    string("ssl.provider", Medium).update(PerBroker).effect(JavaOnly).doc("JVM TLS provider name"),
    list("ssl.enabled.protocols", Medium)
        .default("TLSv1.2,TLSv1.3")
        .update(PerBroker)
        .effect(NotYet)
        .doc("TLS versions accepted (TLSv1.2 on Java 8)"),
    string("ssl.keystore.type", Medium)
        .default("JKS")
        .update(PerBroker)
        .effect(NotYet)
        .doc("JKS, PKCS12 or PEM")
        .note("dynamic only with listener.name.NAME. prefix"),
    string("ssl.keystore.location", Medium)
        .update(PerBroker)
        .effect(NotYet)
        .doc("keystore path")
        .note("dynamic only with listener.name.NAME. prefix"),
    password("ssl.keystore.password", Medium)
        .update(PerBroker)
        .effect(NotYet)
        .doc("keystore password")
        .note("dynamic only with listener.name.NAME. prefix"),
    password("ssl.key.password", Medium)
        .update(PerBroker)
        .effect(NotYet)
        .doc("private key password")
        .note("dynamic only with listener.name.NAME. prefix"),
    password("ssl.keystore.key", Medium)
        .update(PerBroker)
        .effect(NotYet)
        .doc("inline PEM private key")
        .note("dynamic only with listener.name.NAME. prefix"),
    password("ssl.keystore.certificate.chain", Medium)
        .update(PerBroker)
        .effect(NotYet)
        .doc("inline PEM certificate chain")
        .note("dynamic only with listener.name.NAME. prefix"),
    string("ssl.truststore.type", Medium)
        .default("JKS")
        .update(PerBroker)
        .effect(NotYet)
        .doc("JKS, PKCS12 or PEM")
        .note("dynamic only with listener.name.NAME. prefix"),
    string("ssl.truststore.location", Medium)
        .update(PerBroker)
        .effect(NotYet)
        .doc("trust store path")
        .note("dynamic only with listener.name.NAME. prefix"),
    password("ssl.truststore.password", Medium)
        .update(PerBroker)
        .effect(NotYet)
        .doc("trust store password")
        .note("dynamic only with listener.name.NAME. prefix"),
    password("ssl.truststore.certificates", Medium)
        .update(PerBroker)
        .effect(NotYet)
        .doc("inline PEM trusted certificates")
        .note("dynamic only with listener.name.NAME. prefix"),
    string("ssl.keymanager.algorithm", Medium)
        .default("SunX509")
        .update(PerBroker)
        .effect(JavaOnly)
        .doc("JVM key manager algorithm"),
    string("ssl.trustmanager.algorithm", Medium)
        .default("PKIX")
        .update(PerBroker)
        .effect(JavaOnly)
        .doc("JVM trust manager algorithm"),
    string("ssl.endpoint.identification.algorithm", Low)
        .default("https")
        .update(PerBroker)
        .effect(NotYet)
        .doc("host name check for outgoing TLS; empty turns it off"),
    string("ssl.secure.random.implementation", Low)
        .update(PerBroker)
        .effect(JavaOnly)
        .doc("JVM random source"),
    list("ssl.cipher.suites", Medium)
        .default("")
        .update(PerBroker)
        .effect(NotYet)
        .doc("accepted cipher suites; empty means JVM default"),
    class("ssl.engine.factory.class", Low)
        .update(PerBroker)
        .effect(JavaOnly)
        .doc("plug-in building TLS engines"),
    string("authorizer.class.name", Low)
        .default("")
        .valid(NonNull)
        .effect(NotYet)
        .doc(
            "authorizer plug-in; empty means no authorization; \
             kafka.security.authorizer.AclAuthorizer is the ZooKeeper one",
        )
        .note("a broker that has it does not start: without it ACLs would not be enforced"),
    string("super.users", Low)
        .default("")
        .effect(NotYet)
        .undefined()
        .doc("principals allowed everything, separated by semicolons (AclAuthorizer)"),
    boolean("allow.everyone.if.no.acl.found", Low)
        .default("false")
        .effect(NotYet)
        .undefined()
        .doc("allow when a resource has no ACL (AclAuthorizer)"),
    string("authorizer.zookeeper.url", Low)
        .effect(NotYet)
        .undefined()
        .doc("other ZooKeeper ensemble for ACLs")
        .note("falls back to zookeeper.connect"),
    int("authorizer.zookeeper.connection.timeout.ms", Low)
        .effect(NotYet)
        .undefined()
        .doc("connect timeout of that client")
        .note("falls back to zookeeper.connection.timeout.ms"),
    int("authorizer.zookeeper.session.timeout.ms", Low)
        .effect(NotYet)
        .undefined()
        .doc("session timeout of that client")
        .note("falls back to zookeeper.session.timeout.ms"),
    int("authorizer.zookeeper.max.in.flight.requests", Low)
        .effect(NotYet)
        .undefined()
        .doc("pipelining of that client")
        .note("falls back to zookeeper.max.in.flight.requests"),
    string("authorizer.zookeeper.ssl.*", Low)
        .effect(NotYet)
        .undefined()
        .doc(
            "TLS settings of that client: any zookeeper.ssl.* or zookeeper.clientCnxnSocket key \
             with the authorizer. prefix",
        )
        .note("falls back to the unprefixed key"),
    password("delegation.token.secret.key", Medium)
        .effect(NotYet)
        .doc("secret for token HMACs, same on all brokers; unset turns tokens off")
        .note("beats delegation.token.master.key"),
    password("delegation.token.master.key", Medium)
        .effect(NotYet)
        .doc("deprecated alias")
        .note("used when delegation.token.secret.key is null"),
    long("delegation.token.max.lifetime.ms", Medium)
        .default("604800000")
        .valid(AtLeast(1))
        .effect(NotYet)
        .doc("lifetime beyond which renewal is impossible"),
    long("delegation.token.expiry.time.ms", Medium)
        .default("86400000")
        .valid(AtLeast(1))
        .effect(NotYet)
        .doc("default validity before renewal is needed"),
    long("delegation.token.expiry.check.interval.ms", Low)
        .default("3600000")
        .valid(AtLeast(1))
        .effect(NotYet)
        .doc("period of removing expired tokens"),
    password("password.encoder.secret", Medium)
        .effect(NotYet)
        .doc("secret encrypting dynamic passwords in ZooKeeper; needed to set any"),
    password("password.encoder.old.secret", Medium)
        .effect(NotYet)
        .doc("previous secret, used once to re-encrypt at start"),
    string("password.encoder.keyfactory.algorithm", Low).effect(NotYet).doc(
        "key derivation; null means PBKDF2WithHmacSHA512 when available, else \
             PBKDF2WithHmacSHA1",
    ),
    string("password.encoder.cipher.algorithm", Low)
        .default("AES/CBC/PKCS5Padding")
        .effect(NotYet)
        .doc("cipher"),
    int("password.encoder.key.length", Low)
        .default("128")
        .valid(AtLeast(8))
        .effect(NotYet)
        .doc("key bits"),
    int("password.encoder.iterations", Low)
        .default("4096")
        .valid(AtLeast(1024))
        .effect(NotYet)
        .doc("derivation rounds"),
];
