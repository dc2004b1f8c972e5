//! A leader and its followers as a script: what is told to them, and what follows.

use std::{
    fmt::Write,
    time::{Duration, Instant},
};

use common::{
    clock,
    error_code::ErrorCode,
    ids::{BrokerEpoch, BrokerId, LeaderEpoch, Offset, PartitionEpoch},
};
use expect_test::{Expect, expect};

use crate::{
    follower::{Failure, FetchFrom, Fetched, Follower, LocalLog, Next, Step},
    leader::{
        Circumstances, FollowerFetch, Leader, Leadership, NotEnoughReplicas, Proposal, Verdict,
        is_one_log,
    },
};

/// Broker 1 leads; followers count as caught up for ten seconds.
const LOCAL: BrokerId = BrokerId(1);
const LAG_TIME_MAX: Duration = Duration::from_secs(10);

struct World {
    start: Instant,
    now: Instant,
    leader: Option<Leader>,
    end: Offset,
    high_watermark: Offset,
    in_sync_min: usize,
    dead: Vec<BrokerId>,
    proposal: Option<Proposal>,
    recording: String,
}

fn brokers(list: &str) -> Vec<BrokerId> {
    list.split(',').map(|id| BrokerId(number(id))).collect()
}

fn number<T: std::str::FromStr>(text: &str) -> T {
    text.parse().unwrap_or_else(|_| panic!("not a number: {text}"))
}

fn error(name: &str) -> ErrorCode {
    (-1..130).map(ErrorCode::from_code).find(|code| code.name() == name).expect("a known error")
}

/// Lines of a script: `<seconds>s <what> <arguments>`. See `World::act`.
fn check(script: &str, expected: Expect) {
    let start = clock::now();
    let mut world = World {
        start,
        now: start,
        leader: None,
        end: Offset(0),
        high_watermark: Offset(0),
        in_sync_min: 1,
        dead: Vec::new(),
        proposal: None,
        recording: String::new(),
    };
    for line in script.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let seconds: u64 = number(words[0].trim_end_matches('s'));
        world.now = world.start + Duration::from_secs(seconds);
        write!(world.recording, "{line}:").unwrap();
        world.act(&words[1..]);
        world.recording.push('\n');
    }
    expected.assert_eq(&world.recording);
}

impl World {
    fn leader(&mut self) -> &mut Leader {
        self.leader.as_mut().expect("the script begins with `lead`")
    }

    fn decide<T>(&mut self, decide: impl FnOnce(&mut Leader, &Circumstances<'_>) -> T) -> T {
        let dead = self.dead.clone();
        let is_alive = |id| !dead.contains(&id);
        let circumstances = Circumstances {
            now: self.now,
            lag_time_max: LAG_TIME_MAX,
            in_sync_min: self.in_sync_min,
            local_end: self.end,
            high_watermark: self.high_watermark,
            is_alive: &is_alive,
        };
        decide(self.leader.as_mut().expect("the script begins with `lead`"), &circumstances)
    }

    fn move_high_watermark(&mut self) {
        let reached = self.decide(|leader, now| leader.high_watermark(now));
        if reached != self.high_watermark {
            write!(self.recording, " hw {reached}").unwrap();
        }
        self.high_watermark = reached;
    }

    fn note(&mut self, proposal: Option<Proposal>) {
        if let Some(proposal) = proposal {
            let isr: Vec<i32> = proposal.isr.iter().map(|id| id.0).collect();
            let Proposal { epoch, partition_epoch, .. } = &proposal;
            write!(self.recording, " propose {isr:?} at {epoch}/{partition_epoch}").unwrap();
            self.proposal = Some(proposal);
        }
    }

    fn act(&mut self, words: &[&str]) {
        match words {
            // The controller's word: epoch/version, replicas, in-sync set.
            ["lead", epochs, replicas, isr] => self.lead(epochs, replicas, isr),
            ["min", count] => self.in_sync_min = number(count),
            ["dies", id] => self.dead.push(BrokerId(number(id))),
            ["append", count] => {
                let (at, now) = (self.end, self.now);
                self.end = at.plus(number(count));
                self.leader().appended(at, now);
                self.move_high_watermark();
            }
            ["fetch", id, offset] => {
                let fetch = FollowerFetch {
                    id: BrokerId(number(id)),
                    offset: Offset(number(offset)),
                    start: Offset(0),
                    broker_epoch: BrokerEpoch(7),
                    leader_end: self.end,
                };
                let now = self.now;
                self.leader().follower_fetched(&fetch, now);
                let proposal = self.decide(|leader, now| leader.propose_expansion(fetch.id, now));
                self.note(proposal);
                self.move_high_watermark();
            }
            ["look"] => {
                let proposal = self.decide(|leader, now| leader.propose(now));
                self.note(proposal);
                self.move_high_watermark();
            }
            ["agree", epochs, isr] => {
                let (epoch, partition_epoch) = epochs.split_once('/').expect("epoch/version");
                self.answer(Verdict::Committed {
                    epoch: LeaderEpoch(number(epoch)),
                    partition_epoch: PartitionEpoch(number(partition_epoch)),
                    isr: brokers(isr),
                });
            }
            ["refuse", name] => self.answer(Verdict::Refused(error(name))),
            ["acks"] => {
                let in_sync_min = self.in_sync_min;
                let leader = self.leader();
                let (before, after) =
                    (leader.check_in_sync(in_sync_min), leader.check_still_in_sync(in_sync_min));
                let short = |refused: Result<(), NotEnoughReplicas>| match refused {
                    Ok(()) => "ok".to_owned(),
                    Err(few) => format!("{} of {}", few.in_sync, few.required),
                };
                write!(self.recording, " before {}, after {}", short(before), short(after))
                    .unwrap();
            }
            _ => panic!("not understood: {words:?}"),
        }
    }

    fn lead(&mut self, epochs: &str, replicas: &str, isr: &str) {
        let (epoch, partition_epoch) = epochs.split_once('/').expect("epoch/version");
        let leadership = Leadership {
            epoch: LeaderEpoch(number(epoch)),
            partition_epoch: PartitionEpoch(number(partition_epoch)),
            replicas: brokers(replicas),
            adding: Vec::new(),
            removing: Vec::new(),
            isr: brokers(isr),
        };
        let (end, now) = (self.end, self.now);
        match &mut self.leader {
            None => self.leader = Some(Leader::new(LOCAL, leadership, end, now)),
            Some(leader) if leader.epoch() == leadership.epoch => leader.update(leadership, now),
            Some(leader) => leader.begin_epoch(leadership, end, now),
        }
        self.move_high_watermark();
    }

    fn answer(&mut self, verdict: Verdict) {
        let proposal = self.proposal.clone().expect("something was proposed");
        let answered = self.leader().answered(&proposal, verdict);
        write!(self.recording, " {answered:?}").unwrap();
        self.move_high_watermark();
        let isr: Vec<i32> = self.leader().isr().iter().map(|id| id.0).collect();
        write!(self.recording, " isr {isr:?}").unwrap();
    }
}

#[test]
fn a_lone_leader_commits_what_it_writes() {
    check(
        "0s lead 3/7 1 1 \n 0s append 9 \n 1s acks",
        expect![[r#"
        0s lead 3/7 1 1:
        0s append 9: hw 9
        1s acks: before ok, after ok
    "#]],
    );
}

#[test]
fn the_slowest_in_sync_follower_holds_the_watermark() {
    check(
        "
        0s lead 3/7 1,2,3 1,2
        0s append 9
        1s fetch 2 6
        1s fetch 4 1
        1s fetch 3 2
        2s fetch 2 9
        ",
        expect![[r#"
            0s lead 3/7 1,2,3 1,2:
            0s append 9:
            1s fetch 2 6: hw 6
            1s fetch 4 1:
            1s fetch 3 2:
            2s fetch 2 9: hw 9
        "#]],
    );
}

#[test]
fn a_follower_that_has_all_comes_in_and_counts_at_once() {
    check(
        "
        0s lead 3/7 1,2 1
        0s append 5
        1s fetch 2 0
        2s fetch 2 5
        2s append 3
        3s agree 3/8 1,2
        3s fetch 2 8
        ",
        expect![[r#"
            0s lead 3/7 1,2 1:
            0s append 5: hw 5
            1s fetch 2 0:
            2s fetch 2 5: propose [1, 2] at 3/7
            2s append 3:
            3s agree 3/8 1,2: Committed { before: 1, now: 2 } isr [1, 2]
            3s fetch 2 8: hw 8
        "#]],
    );
}

#[test]
fn one_change_is_under_way_at_a_time() {
    check(
        "
        0s lead 3/7 1,2,3 1
        0s fetch 2 0
        0s fetch 3 0
        0s look
        1s agree 3/8 1,2
        1s look
        ",
        expect![[r#"
            0s lead 3/7 1,2,3 1:
            0s fetch 2 0: propose [1, 2] at 3/7
            0s fetch 3 0:
            0s look:
            1s agree 3/8 1,2: Committed { before: 1, now: 2 } isr [1, 2]
            1s look: propose [1, 2, 3] at 3/8
        "#]],
    );
}

#[test]
fn who_is_silent_falls_out_and_counts_until_the_controller_agrees() {
    check(
        "
        0s lead 3/7 1,2,3 1,2,3
        0s append 4
        1s fetch 2 4
        1s fetch 3 2
        9s look
        12s fetch 2 4
        12s look
        12s append 1
        12s acks
        13s agree 3/8 1,2
        13s fetch 2 5
        ",
        expect![[r#"
            0s lead 3/7 1,2,3 1,2,3:
            0s append 4:
            1s fetch 2 4:
            1s fetch 3 2: hw 2
            9s look:
            12s fetch 2 4:
            12s look: propose [1, 2] at 3/7
            12s append 1:
            12s acks: before ok, after ok
            13s agree 3/8 1,2: Committed { before: 3, now: 2 } hw 4 isr [1, 2]
            13s fetch 2 5: hw 5
        "#]],
    );
}

#[test]
fn an_idle_follower_is_caught_up_when_records_come() {
    check(
        "
        0s lead 3/7 1,2 1,2
        0s append 4
        1s fetch 2 4
        500s look
        600s append 1
        601s look
        611s look
        ",
        expect![[r#"
            0s lead 3/7 1,2 1,2:
            0s append 4:
            1s fetch 2 4: hw 4
            500s look:
            600s append 1:
            601s look:
            611s look: propose [1] at 3/7
        "#]],
    );
}

#[test]
fn a_steady_stream_leaves_a_quick_follower_in_sync() {
    check(
        "
        0s lead 3/7 1,2 1,2
        0s append 1
        6s fetch 2 0
        6s append 1
        12s fetch 2 1
        12s append 1
        18s fetch 2 2
        18s append 1
        19s look
        29s look
        ",
        expect![[r#"
            0s lead 3/7 1,2 1,2:
            0s append 1:
            6s fetch 2 0:
            6s append 1:
            12s fetch 2 1: hw 1
            12s append 1:
            18s fetch 2 2: hw 2
            18s append 1:
            19s look:
            29s look: propose [1] at 3/7
        "#]],
    );
}

#[test]
fn with_too_few_in_sync_nothing_is_committed() {
    check(
        "
        0s lead 3/7 1,2,3 1
        0s min 2
        0s append 4
        0s acks
        1s fetch 2 4
        1s acks
        2s agree 3/8 1,2
        2s acks
        ",
        expect![[r#"
            0s lead 3/7 1,2,3 1:
            0s min 2:
            0s append 4:
            0s acks: before 1 of 2, after 1 of 2
            1s fetch 2 4: propose [1, 2] at 3/7
            1s acks: before 1 of 2, after ok
            2s agree 3/8 1,2: Committed { before: 1, now: 2 } hw 4 isr [1, 2]
            2s acks: before ok, after ok
        "#]],
    );
}

#[test]
fn a_refused_change_is_given_up_or_waits_or_is_made_again() {
    check(
        "
        0s lead 3/7 1,2 1
        0s fetch 2 0
        0s refuse INELIGIBLE_REPLICA
        1s fetch 2 0
        1s refuse REQUEST_TIMED_OUT
        2s refuse INVALID_UPDATE_VERSION
        3s fetch 2 0
        15s look
        16s lead 3/9 1,2 1
        16s agree 3/8 1,2
        17s fetch 2 0
        ",
        expect![[r#"
            0s lead 3/7 1,2 1:
            0s fetch 2 0: propose [1, 2] at 3/7
            0s refuse INELIGIBLE_REPLICA: GivenUp isr [1]
            1s fetch 2 0: propose [1, 2] at 3/7
            1s refuse REQUEST_TIMED_OUT: Retry isr [1]
            2s refuse INVALID_UPDATE_VERSION: Stuck isr [1]
            3s fetch 2 0:
            15s look: propose [1, 2] at 3/7
            16s lead 3/9 1,2 1:
            16s agree 3/8 1,2: Ignored isr [1]
            17s fetch 2 0: propose [1, 2] at 3/9
        "#]],
    );
}

#[test]
fn a_word_of_the_controller_takes_the_place_of_a_change() {
    check(
        "
        0s lead 3/7 1,2 1
        0s append 2
        0s fetch 2 2
        1s lead 4/8 1,2 1,2
        1s agree 3/8 1,2
        2s append 1
        2s fetch 2 3
        ",
        expect![[r#"
            0s lead 3/7 1,2 1:
            0s append 2: hw 2
            0s fetch 2 2: propose [1, 2] at 3/7
            1s lead 4/8 1,2 1,2:
            1s agree 3/8 1,2: Ignored isr [1, 2]
            2s append 1:
            2s fetch 2 3: hw 3
        "#]],
    );
}

#[test]
fn a_dead_broker_does_not_come_in() {
    check(
        "
        0s lead 3/7 1,2 1
        0s dies 2
        0s append 2
        1s fetch 2 2
        1s append 2
        ",
        expect![[r#"
            0s lead 3/7 1,2 1:
            0s dies 2:
            0s append 2: hw 2
            1s fetch 2 2:
            1s append 2: hw 4
        "#]],
    );
}

#[test]
fn who_was_thrown_out_comes_in_by_a_fetch_of_the_new_epoch_alone() {
    check(
        "
        0s lead 3/7 1,2,3 1,2,3
        0s append 4
        1s fetch 2 4
        1s fetch 3 4
        2s lead 4/8 1,2,3 1,2
        3s look
        9s look
        9s fetch 3 4
        ",
        expect![[r#"
            0s lead 3/7 1,2,3 1,2,3:
            0s append 4:
            1s fetch 2 4:
            1s fetch 3 4: hw 4
            2s lead 4/8 1,2,3 1,2:
            3s look:
            9s look:
            9s fetch 3 4: propose [1, 2, 3] at 4/8
        "#]],
    );
}

#[test]
fn who_was_thrown_out_within_an_epoch_comes_in_by_a_later_fetch() {
    check(
        "
        0s lead 3/7 1,2,3 1,2,3
        0s append 4
        1s fetch 2 4
        1s fetch 3 4
        2s lead 3/8 1,2,3 1,2
        3s look
        9s fetch 3 4
        ",
        expect![[r#"
            0s lead 3/7 1,2,3 1,2,3:
            0s append 4:
            1s fetch 2 4:
            1s fetch 3 4: hw 4
            2s lead 3/8 1,2,3 1,2:
            3s look:
            9s fetch 3 4: propose [1, 2, 3] at 3/8
        "#]],
    );
}

#[test]
fn who_fetches_while_it_is_thrown_out_comes_in_at_once() {
    check(
        "
        0s lead 3/7 1,2,3 1,2,3
        0s min 3
        0s append 4
        1s fetch 2 4
        1s fetch 3 4
        9s append 1
        10s fetch 2 5
        20s look
        20s agree 3/8 1,2
        21s look
        22s lead 4/9 1,2,3 1,2,3
        23s append 1
        24s fetch 2 6
        34s look
        34s fetch 3 6
        34s agree 4/10 1,2
        35s look
        ",
        expect![[r#"
            0s lead 3/7 1,2,3 1,2,3:
            0s min 3:
            0s append 4:
            1s fetch 2 4:
            1s fetch 3 4: hw 4
            9s append 1:
            10s fetch 2 5:
            20s look: propose [1, 2] at 3/7
            20s agree 3/8 1,2: Committed { before: 3, now: 2 } isr [1, 2]
            21s look:
            22s lead 4/9 1,2,3 1,2,3:
            23s append 1:
            24s fetch 2 6:
            34s look: propose [1, 2] at 4/9
            34s fetch 3 6: hw 6
            34s agree 4/10 1,2: Committed { before: 3, now: 2 } isr [1, 2]
            35s look: propose [1, 2, 3] at 4/10
        "#]],
    );
}

#[test]
fn a_follower_without_all_from_before_the_epoch_is_not_in_sync() {
    check(
        "
        0s lead 3/7 1,2,3 1,3
        0s append 4
        1s fetch 3 2
        2s lead 4/8 1,2,3 1,3
        2s fetch 2 3
        3s fetch 2 4
        ",
        expect![[r#"
            0s lead 3/7 1,2,3 1,3:
            0s append 4:
            1s fetch 3 2: hw 2
            2s lead 4/8 1,2,3 1,3:
            2s fetch 2 3:
            3s fetch 2 4: propose [1, 3, 2] at 4/8
        "#]],
    );
}

#[test]
fn a_follower_that_is_merely_ahead_or_behind_has_the_leaders_log() {
    // The leader has epoch 1 up to 20, and epoch 3 up to 30.
    let fits = |epoch: i32, offset: i64| {
        let known = match epoch {
            3.. => Some((LeaderEpoch(3), Offset(30))),
            1.. => Some((LeaderEpoch(1), Offset(20))),
            _ => None,
        };
        is_one_log((LeaderEpoch(epoch), Offset(offset)), known, Offset(30))
    };
    assert!(fits(1, 15) && fits(1, 20), "behind");
    assert!(
        fits(3, 30) && fits(3, 34),
        "at the end, or ahead of a leader that is about to get the rest"
    );
    assert!(!fits(1, 21), "the leader has other records there");
    assert!(!fits(2, 19) && !fits(4, 31), "of an epoch of which the leader knows nothing");
    assert!(!fits(0, 5));
}

/// A follower's log: epochs with their starts, its end, its watermark.
struct Copy {
    epochs: Vec<(i32, i64)>,
    end: i64,
    high_watermark: i64,
}

impl Copy {
    fn look<T>(&self, decide: impl FnOnce(&LocalLog<'_>) -> T) -> T {
        let end_of_epoch = |epoch: LeaderEpoch| {
            let latest = self.epochs.last()?;
            if latest.0 == epoch.0 {
                return Some((epoch, Offset(self.end)));
            }
            let higher = self.epochs.iter().find(|known| known.0 > epoch.0)?;
            let ours = self.epochs.iter().rev().find(|known| known.0 <= epoch.0);
            Some((ours.map_or(epoch, |ours| LeaderEpoch(ours.0)), Offset(higher.1)))
        };
        decide(&LocalLog {
            end: Offset(self.end),
            high_watermark: Offset(self.high_watermark),
            latest_epoch: LeaderEpoch(self.epochs.last().map_or(-1, |latest| latest.0)),
            end_of_epoch: &end_of_epoch,
        })
    }
}

/// What a follower does with one answer, and what comes next.
fn answer(copy: &Copy, fetched: Fetched) -> String {
    let (now, backoff) = (clock::now(), Duration::from_secs(1));
    let mut follower = copy.look(|log| Follower::new(LeaderEpoch(9), log));
    let next = follower.next(now);
    let Next::Fetch(asked) = next else { return format!("{next:?}") };
    let step = copy.look(|log| follower.on_fetched(&asked, &fetched, log, now, backoff));
    let then = match follower.next(now) {
        Next::Fetch(FetchFrom { offset, last_epoch, .. }) => {
            format!("fetch {offset} after {last_epoch}")
        }
        Next::Wait(until) => format!("wait {:?}", until - now),
        other => format!("{other:?}"),
    };
    format!("{step:?}, then {then}")
}

fn parted(epoch: i32, end: i64) -> Fetched {
    let diverging = Some((LeaderEpoch(epoch), Offset(end)));
    Fetched { error: ErrorCode::None, diverging }
}

#[test]
fn a_follower_cuts_to_where_the_logs_part() {
    let copy = Copy { epochs: vec![(2, 0), (4, 10), (7, 20)], end: 30, high_watermark: 8 };
    let list = [(7, 25), (7, 40), (4, 15), (4, 20), (5, 18), (3, 12), (1, 3), (8, 28)];
    let all = list.map(|(epoch, end)| {
        format!("leader ends {epoch} at {end}: {}\n", answer(&copy, parted(epoch, end)))
    });
    expect![[r#"
        leader ends 7 at 25: TruncateTo(Offset(25)), then fetch 30 after 7
        leader ends 7 at 40: TruncateTo(Offset(30)), then fetch 30 after 7
        leader ends 4 at 15: TruncateTo(Offset(15)), then fetch 30 after 7
        leader ends 4 at 20: TruncateTo(Offset(20)), then fetch 30 after 7
        leader ends 5 at 18: TruncateTo(Offset(20)), then fetch 30 after 7
        leader ends 3 at 12: TruncateTo(Offset(10)), then fetch 30 after 7
        leader ends 1 at 3: TruncateTo(Offset(0)), then fetch 30 after 7
        leader ends 8 at 28: TruncateTo(Offset(28)), then fetch 30 after 7
    "#]]
    .assert_eq(&all.concat());
}

#[test]
fn a_log_without_epochs_is_cut_to_the_watermark_first() {
    let copy = Copy { epochs: vec![], end: 30, high_watermark: 8 };
    assert_eq!(answer(&copy, parted(1, 1)), "TruncateTo(Offset(8))");
    let empty = Copy { epochs: vec![], end: 8, high_watermark: 8 };
    let fetched = Fetched { error: ErrorCode::None, diverging: None };
    assert_eq!(answer(&empty, fetched), "Append, then fetch 8 after -1");
}

#[test]
fn each_error_has_its_answer() {
    let copy = Copy { epochs: vec![(2, 0)], end: 30, high_watermark: 8 };
    let names = [
        "OFFSET_OUT_OF_RANGE",
        "UNKNOWN_LEADER_EPOCH",
        "NOT_LEADER_OR_FOLLOWER",
        "UNKNOWN_TOPIC_OR_PARTITION",
        "UNKNOWN_TOPIC_ID",
        "INCONSISTENT_TOPIC_ID",
        "KAFKA_STORAGE_ERROR",
        "FENCED_LEADER_EPOCH",
    ];
    let all = names.map(|name| {
        let fetched = Fetched { error: error(name), diverging: None };
        format!("{name}: {}\n", answer(&copy, fetched))
    });
    expect![[r#"
        OFFSET_OUT_OF_RANGE: GoOn, then AskEnds
        UNKNOWN_LEADER_EPOCH: GoOn, then wait 62.5ms
        NOT_LEADER_OR_FOLLOWER: GoOn, then wait 62.5ms
        UNKNOWN_TOPIC_OR_PARTITION: GoOn, then wait 62.5ms
        UNKNOWN_TOPIC_ID: GoOn, then wait 62.5ms
        INCONSISTENT_TOPIC_ID: GoOn, then wait 62.5ms
        KAFKA_STORAGE_ERROR: GoOn, then wait 62.5ms
        FENCED_LEADER_EPOCH: GoOn, then Stop
    "#]]
    .assert_eq(&all.concat());
}

#[test]
fn out_of_range_asks_where_the_leaders_log_lies() {
    let copy = Copy { epochs: vec![(2, 0)], end: 30, high_watermark: 8 };
    let (now, backoff) = (clock::now(), Duration::from_secs(1));
    let epoch = LeaderEpoch(9);
    let ask = |ends| {
        let mut follower = copy.look(|log| Follower::new(epoch, log));
        let asked = FetchFrom { epoch, offset: Offset(30), last_epoch: LeaderEpoch(2) };
        let fetched = Fetched { error: ErrorCode::OffsetOutOfRange, diverging: None };
        copy.look(|log| follower.on_fetched(&asked, &fetched, log, now, backoff));
        assert_eq!(follower.next(now), Next::AskEnds);
        let step = copy.look(|log| follower.on_leader_ends(epoch, ends, log, now, backoff));
        (step, follower.has_failed())
    };
    assert_eq!(ask(Ok((Offset(0), Offset(20)))), (Step::TruncateTo(Offset(20)), false));
    assert_eq!(ask(Ok((Offset(40), Offset(50)))), (Step::RestartAt(Offset(40)), false));
    assert_eq!(ask(Ok((Offset(5), Offset(50)))), (Step::GoOn, false));
    assert_eq!(ask(Err(ErrorCode::NotLeaderOrFollower)), (Step::GoOn, false));
    assert_eq!(ask(Err(ErrorCode::FencedLeaderEpoch)), (Step::GoOn, true));
}

#[test]
fn an_answer_to_another_question_is_ignored() {
    let copy = Copy { epochs: vec![(2, 0)], end: 30, high_watermark: 8 };
    let (now, backoff) = (clock::now(), Duration::from_secs(1));
    let mut follower = copy.look(|log| Follower::new(LeaderEpoch(9), log));
    let fetched = Fetched { error: ErrorCode::None, diverging: None };
    let mut take = |epoch, offset| {
        let (epoch, offset) = (LeaderEpoch(epoch), Offset(offset));
        let asked = FetchFrom { epoch, offset, last_epoch: LeaderEpoch(2) };
        copy.look(|log| follower.on_fetched(&asked, &fetched, log, now, backoff))
    };
    assert_eq!(take(8, 30), Step::Ignore);
    assert_eq!(take(9, 20), Step::Ignore);
    assert_eq!(take(9, 30), Step::Append);
    follower.failed(Failure::Lasting, now, backoff);
    assert!(follower.has_failed());
}

#[test]
fn a_reassignment_goes_on_while_replicas_are_added_or_taken_away() {
    let now = clock::now();
    let told = |adding: &[i32], removing: &[i32]| Leadership {
        epoch: LeaderEpoch(0),
        partition_epoch: PartitionEpoch(0),
        replicas: brokers("1,2,3"),
        adding: adding.iter().copied().map(BrokerId).collect(),
        removing: removing.iter().copied().map(BrokerId).collect(),
        isr: brokers("1,2"),
    };
    let mut leader = Leader::new(LOCAL, told(&[3], &[]), Offset(0), now);
    assert!(leader.is_reassigning());
    assert!(!leader.is_under_replicated(), "who is added does not count yet");
    leader.update(told(&[], &[3]), now);
    assert!(leader.is_reassigning());
    leader.update(told(&[], &[]), now);
    assert!(!leader.is_reassigning());
}
