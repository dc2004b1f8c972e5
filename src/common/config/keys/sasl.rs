//! Keys of SASL: mechanisms, Kerberos, OAuth.

use crate::config::table::Effect::{JavaOnly, NotYet};
use crate::config::table::Importance::{Low, Medium};
use crate::config::table::Update::PerBroker;
use crate::config::table::{ConfigKey, class, double, int, list, long, password, short, string};

pub(super) const KEYS: &[ConfigKey] = &[
    int("sasl.server.max.receive.size", Medium)
        .default("524288")
        .effect(NotYet)
        .doc("largest SASL frame before authentication"),
    string("sasl.mechanism.inter.broker.protocol", Medium)
        .default("GSSAPI")
        .update(PerBroker)
        .effect(NotYet)
        .doc("SASL mechanism between brokers; must be among the enabled ones"),
    list("sasl.enabled.mechanisms", Medium)
        .default("GSSAPI")
        .update(PerBroker)
        .effect(NotYet)
        .doc("SASL mechanisms offered")
        .note("listener.name.NAME. prefix allowed"),
    class("sasl.server.callback.handler.class", Medium)
        .effect(JavaOnly)
        .doc("server-side credential callback")
        .note("set with listener.name.NAME.MECHANISM. prefix"),
    list("sasl.kerberos.principal.to.local.rules", Medium)
        .default("DEFAULT")
        .update(PerBroker)
        .effect(NotYet)
        .doc("rules from Kerberos principal to short name"),
    password("sasl.jaas.config", Medium)
        .update(PerBroker)
        .effect(NotYet)
        .doc("inline JAAS entry")
        .note(
            "listener.name.NAME.MECHANISM.sasl.jaas.config > JAAS file section \
             NAME.KafkaServer > section KafkaServer",
        ),
    class("sasl.client.callback.handler.class", Medium)
        .effect(JavaOnly)
        .doc("client-side callback for outgoing SASL"),
    class("sasl.login.class", Medium)
        .effect(JavaOnly)
        .doc("login implementation")
        .note("listener.name.NAME.MECHANISM. prefix on brokers"),
    class("sasl.login.callback.handler.class", Medium)
        .effect(JavaOnly)
        .doc("login callback")
        .note("listener.name.NAME.MECHANISM. prefix on brokers"),
    string("sasl.kerberos.service.name", Medium)
        .update(PerBroker)
        .effect(NotYet)
        .doc("Kerberos service name of the brokers"),
    string("sasl.kerberos.kinit.cmd", Medium)
        .default("/usr/bin/kinit")
        .update(PerBroker)
        .effect(NotYet)
        .doc("kinit path"),
    double("sasl.kerberos.ticket.renew.window.factor", Medium)
        .default("0.8")
        .update(PerBroker)
        .effect(NotYet)
        .doc("share of ticket life before renewal"),
    double("sasl.kerberos.ticket.renew.jitter", Medium)
        .default("0.05")
        .update(PerBroker)
        .effect(NotYet)
        .doc("random share added to that"),
    long("sasl.kerberos.min.time.before.relogin", Medium)
        .default("60000")
        .update(PerBroker)
        .effect(NotYet)
        .doc("minimum pause between ticket refreshes"),
    double("sasl.login.refresh.window.factor", Medium)
        .default("0.8")
        .update(PerBroker)
        .effect(NotYet)
        .doc("share of token life before refresh (OAUTHBEARER)"),
    double("sasl.login.refresh.window.jitter", Medium)
        .default("0.05")
        .update(PerBroker)
        .effect(NotYet)
        .doc("random share added to that"),
    short("sasl.login.refresh.min.period.seconds", Medium)
        .default("60")
        .update(PerBroker)
        .effect(NotYet)
        .doc("minimum pause between token refreshes"),
    short("sasl.login.refresh.buffer.seconds", Medium)
        .default("300")
        .update(PerBroker)
        .effect(NotYet)
        .doc("safety time kept before token expiry"),
    int("sasl.login.connect.timeout.ms", Low)
        .effect(NotYet)
        .doc("connect timeout to the OAuth provider"),
    int("sasl.login.read.timeout.ms", Low).effect(NotYet).doc("read timeout to the OAuth provider"),
    long("sasl.login.retry.backoff.ms", Low)
        .default("100")
        .effect(NotYet)
        .doc("first retry pause to the OAuth provider"),
    long("sasl.login.retry.backoff.max.ms", Low)
        .default("10000")
        .effect(NotYet)
        .doc("longest retry pause to the OAuth provider"),
    string("sasl.oauthbearer.scope.claim.name", Low)
        .default("scope")
        .effect(NotYet)
        .doc("JWT claim holding scopes"),
    string("sasl.oauthbearer.sub.claim.name", Low)
        .default("sub")
        .effect(NotYet)
        .doc("JWT claim holding the subject"),
    string("sasl.oauthbearer.token.endpoint.url", Medium)
        .effect(NotYet)
        .doc("OAuth token endpoint for logins"),
    string("sasl.oauthbearer.jwks.endpoint.url", Medium)
        .effect(NotYet)
        .doc("where JWT signing keys are fetched"),
    long("sasl.oauthbearer.jwks.endpoint.refresh.ms", Low)
        .default("3600000")
        .effect(NotYet)
        .doc("period of refreshing those keys"),
    long("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", Low)
        .default("100")
        .effect(NotYet)
        .doc("first retry pause of the key fetch"),
    long("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", Low)
        .default("10000")
        .effect(NotYet)
        .doc("longest retry pause of the key fetch"),
    int("sasl.oauthbearer.clock.skew.seconds", Low)
        .default("30")
        .effect(NotYet)
        .doc("tolerated clock difference"),
    list("sasl.oauthbearer.expected.audience", Low).effect(NotYet).doc("accepted JWT audiences"),
    string("sasl.oauthbearer.expected.issuer", Low).effect(NotYet).doc("accepted JWT issuer"),
];
