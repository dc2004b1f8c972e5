//! Keys of the broker as a whole.

use crate::config::table::Effect::{Moot, NotYet};
use crate::config::table::Importance::{High, Low, Medium};
use crate::config::table::Update::ClusterWide;
use crate::config::table::{ConfigKey, boolean, int, list, long, string};
use crate::config::validate::Valid::AtLeast;

pub(super) const KEYS: &[ConfigKey] = &[
    int("broker.id", High)
        .default("-1")
        .doc("numeric id of this broker; -1 asks for a generated id")
        .note("node.id is an alias: whichever one is set fills the other; both set must be equal"),
    int("node.id", High)
        .default("-1")
        .doc("alias of broker.id outside KRaft")
        .note("fills broker.id when only node.id is set; must equal broker.id"),
    boolean("broker.id.generation.enable", Medium).default("true").doc(
        "allow ids generated through a ZooKeeper sequence when broker.id is -1; when true \
             broker.id must be -1..reserved.broker.max.id",
    ),
    int("reserved.broker.max.id", Medium)
        .default("1000")
        .valid(AtLeast(0))
        .doc("highest id usable by hand; generated ids start above it"),
    string("broker.rack", Medium)
        .doc("rack label, used for rack-aware placement and rack-aware fetch"),
    int("num.io.threads", High)
        .default("8")
        .valid(AtLeast(1))
        .update(ClusterWide)
        .effect(Moot)
        .doc("request handler threads")
        .note("dynamic change limited to half..double the current value"),
    int("background.threads", High)
        .default("10")
        .valid(AtLeast(1))
        .update(ClusterWide)
        .effect(Moot)
        .doc("scheduler threads for background jobs")
        .note("dynamic change limited to half..double the current value"),
    int("num.replica.alter.log.dirs.threads", High)
        .effect(NotYet)
        .doc("threads moving replicas between log dirs; null means one per log dir"),
    int("request.timeout.ms", High)
        .default("30000")
        .doc("timeout of requests this broker sends to others and of internal appends"),
    boolean("delete.topic.enable", High)
        .default("true")
        .doc("permit topic deletion; when off, requests are refused"),
    boolean("controlled.shutdown.enable", Medium)
        .default("true")
        .doc("hand leadership away before stopping"),
    int("controlled.shutdown.max.retries", Medium)
        .default("3")
        .doc("attempts of the leadership hand-over"),
    long("controlled.shutdown.retry.backoff.ms", Medium)
        .default("5000")
        .doc("pause between those attempts"),
    boolean("unstable.api.versions.enable", High)
        .default("false")
        .effect(Moot)
        .internal()
        .doc("also serve and advertise unreleased API versions (none exist on zkBroker in 3.9)"),
    boolean("unstable.feature.versions.enable", High).default("false").effect(Moot).internal().doc(
        "also allow unreleased feature levels (in ZK mode only read for migration \
             registration)",
    ),
    list("config.providers", Low)
        .default("")
        .effect(NotYet)
        .undefined()
        .doc("names of plug-ins that resolve ${provider:path:key} placeholders in property values")
        .note(
            "each name configured by config.providers.NAME.class and \
             config.providers.NAME.param.*",
        ),
    int("max.incremental.fetch.session.cache.slots", Medium)
        .default("1000")
        .valid(AtLeast(0))
        .doc("total incremental fetch sessions kept (split over 8 cache shards)"),
    int("fetch.max.bytes", Medium)
        .default("57671680")
        .valid(AtLeast(1024))
        .doc("upper bound of bytes returned by one fetch, applied on top of the client limit"),
];
