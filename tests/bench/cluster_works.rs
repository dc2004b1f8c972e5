//! What three brokers cost: records that all of them take, a follower, and what happens to many partitions at once.

use std::{path::Path, time::Duration};

use common::clock;
use rustix::process::Signal;

use crate::{
    Options,
    cluster::{Cluster, IDS, Maker, PartitionView, View, view, wait_view},
    load::{self, Load, Requests, Shape, ask},
    process::{Cpu, Process, cpu_by_thread, cpu_of, is_alive, memory_of, written_by},
    requests::{self, Same},
    works::{ROUNDS, WARM_UP, machine},
};

/// Topics under load keep little, so that three brokers have room.
const LOADED: &[(&str, &str)] = &[
    ("min.insync.replicas", "2"),
    ("segment.bytes", "67108864"),
    ("retention.bytes", "268435456"),
    ("file.delete.delay.ms", "1000"),
];
/// And are looked at often.
const LOADED_BROKERS: &[&str] =
    &["log.retention.check.interval.ms=1000", "log.initial.task.delay.ms=500"];

const SESSION_TIMEOUT: Duration = Duration::from_secs(6);

/// Runs what was asked for, first with our cluster and then with Kafka's.
pub(crate) fn run(options: &Options) -> Result<(), String> {
    let ours = Maker::Ours(options.binary.clone());
    let makers: Vec<Maker> =
        [Some(ours), options.kafka.clone().map(Maker::Kafka)].into_iter().flatten().collect();
    let wanted = |name: &str| options.only.as_ref().is_none_or(|only| name.contains(only));
    let each = |work: &dyn Fn(&Maker, &Path) -> Result<(), String>| {
        makers.iter().try_for_each(|maker| {
            let name = maker.name().replace(' ', "-");
            work(maker, &options.directory.join(name))
        })
    };
    machine();
    let seconds = options.seconds.unwrap_or(5);
    let duration = Duration::from_secs(seconds);
    let mut done = Ok(());
    if wanted("acks") {
        println!(
            "\n| acks=all, three replicas, 1 KiB requests, 1 connection x 5 in flight | records/s | us/request | user/kernel | leader/followers us | p50 us | p99 us | p99.9 us |\n|---|---|---|---|---|---|---|---|"
        );
        done = done.and_then(|()| each(&|maker, directory| replicated(maker, directory, duration)));
    }
    if wanted("follower") {
        println!(
            "\n| a follower, 64 KiB batches | CPU-s/GB | user/kernel s | floor CPU-s/GB | of the floor | MB/s |\n|---|---|---|---|---|---|"
        );
        done = done.and_then(|()| each(&|maker, directory| follower(maker, directory, duration)));
    }
    if wanted("operations") {
        println!("\n| {} partitions x 3 | | |\n|---|---|---|", options.partitions);
        let count = options.partitions;
        done = done.and_then(|()| each(&|maker, directory| operations(maker, directory, count)));
    }
    // Only our own folder below the system's temporary one.
    let _ = std::fs::remove_dir_all(&options.directory);
    done
}

/// Creates a topic of one partition, and waits until its replicas are in sync.
fn prepare(cluster: &Cluster, topic: &str, replicas: &[i32]) -> Result<(), String> {
    let in_sync = replicas.len().to_string();
    let configs = LOADED.iter().map(|(name, value)| match *name {
        "min.insync.replicas" if replicas.len() < 3 => (*name, in_sync.as_str()),
        _ => (*name, *value),
    });
    cluster.create(topic, 1, Some(replicas), &configs.collect::<Vec<_>>())?;
    cluster.wait_until("in sync", &[topic.to_owned()], &|view| {
        view.partitions.len() == 1
            && view.partitions.iter().all(|one| one.in_sync == replicas.len())
    })
}

fn since(later: &[Cpu], earlier: &[Cpu]) -> Vec<Cpu> {
    later.iter().zip(earlier).map(|(later, earlier)| later.since(*earlier)).collect()
}

/// Records that every in-sync replica has before they are acknowledged.
fn replicated(maker: &Maker, directory: &Path, duration: Duration) -> Result<(), String> {
    let cluster = Cluster::start(maker, directory, LOADED_BROKERS)?;
    let (topic, leader) = ("acks-all", IDS[0]);
    prepare(&cluster, topic, &IDS)?;
    let frame = requests::produce(topic, 0, -1, requests::batch(1024, 900));
    let bytes = frame.len() as u64;
    let same = |_| -> Box<dyn Requests> { Same::new(frame.clone(), bytes, requests::produced) };
    let shape = Shape { connections: 1, in_flight: 5, duration };
    if matches!(maker, Maker::Kafka(_)) {
        load::run(cluster.address(leader), Shape { duration: WARM_UP, ..shape }, &same)?;
    }
    let cpu = || IDS.map(|id| cpu_of(cluster.pid(id)));
    let mut rounds: Vec<(Load, Vec<Cpu>)> = Vec::new();
    for _ in 0..ROUNDS {
        let before = cpu();
        let load = load::run(cluster.address(leader), shape, &same)?;
        rounds.push((load, since(&cpu(), &before)));
    }
    let total = |used: &[Cpu]| used.iter().map(|cpu| cpu.total()).sum::<f64>();
    let each = |(load, used): &(Load, Vec<Cpu>)| total(used) / load.requests.max(1) as f64;
    rounds.sort_by(|one, other| each(one).total_cmp(&each(other)));
    let (load, used) = &rounds[ROUNDS / 2];
    let us = |seconds: f64| seconds * 1e6 / load.requests.max(1) as f64;
    println!(
        "| {} | {:.0} | {:.1} | {:.1}/{:.1} us | {:.1}/{:.1} | {} | {} | {} |",
        cluster.name(),
        load.requests_per_second(),
        us(total(used)),
        us(used.iter().map(|cpu| cpu.user).sum()),
        us(used.iter().map(|cpu| cpu.kernel).sum()),
        us(used[0].total()),
        us(total(&used[1..])),
        load.percentile_us(0.5),
        load.percentile_us(0.99),
        load.percentile_us(0.999),
    );
    Ok(())
}

/// What a follower costs that leads nothing, beside a process that fetches the same from the same leader at the same time.
fn follower(maker: &Maker, directory: &Path, duration: Duration) -> Result<(), String> {
    let cluster = Cluster::start(maker, directory, LOADED_BROKERS)?;
    let (leader, follower) = (IDS[0], IDS[1]);
    let address = cluster.address(leader);
    for (acks, what) in [(1, "acks=1"), (-1, "acks=all")] {
        let topic = format!("follow-{what}").replace('=', "-");
        prepare(&cluster, &topic, &[leader, follower])?;
        let (floor, _) = Process::start_role(&["floor-follow", &address.to_string(), &topic])?;
        let batch = requests::batch(65_536, 1024);
        let frame = requests::produce(&topic, 0, acks, batch.clone());
        let last = requests::produce(&topic, 0, -1, batch);
        let bytes = frame.len() as u64;
        let same = |_| -> Box<dyn Requests> { Same::new(frame.clone(), bytes, requests::produced) };
        let shape = Shape { connections: 1, in_flight: 5, duration };
        let round = |shape: Shape| -> Result<[f64; 5], String> {
            let before =
                (cpu_of(cluster.pid(follower)), cpu_of(floor.pid()), written_by(floor.pid()));
            let load = load::run(address, shape, &same)?;
            // The last one is answered when the follower has all.
            let answer = ask(address, &last).map_err(|error| error.to_string())?;
            requests::produced(&answer)?;
            await_quiet(floor.pid())?;
            let used = cpu_of(cluster.pid(follower)).since(before.0);
            let gigabytes = load.bytes as f64 / 1e9;
            let floor_gigabytes = (written_by(floor.pid()) - before.2) as f64 / 1e9;
            let floor = cpu_of(floor.pid()).since(before.1).total() / floor_gigabytes;
            let rate = load.megabytes_per_second();
            Ok([
                used.total() / gigabytes,
                floor,
                used.user / gigabytes,
                used.kernel / gigabytes,
                rate,
            ])
        };
        if matches!(maker, Maker::Kafka(_)) {
            round(Shape { duration: WARM_UP, ..shape })?;
        }
        let mut rounds = (0..ROUNDS).map(|_| round(shape)).collect::<Result<Vec<_>, _>>()?;
        rounds.sort_by(|one, other| (one[0] / one[1]).total_cmp(&(other[0] / other[1])));
        let [cost, floor, user, kernel, rate] = rounds[ROUNDS / 2];
        println!(
            "| {}, {what} | {cost:.2} | {user:.2}/{kernel:.2} | {floor:.2} | {:.2} | {rate:.0} |",
            cluster.name(),
            cost / floor
        );
    }
    Ok(())
}

/// Waits until a process has done what it had to do.
fn await_quiet(pid: u32) -> Result<(), String> {
    let mut written = written_by(pid);
    loop {
        std::thread::sleep(Duration::from_millis(50));
        let now = written_by(pid);
        if now == written {
            return if is_alive(pid) { Ok(()) } else { Err("the floor has ended".to_owned()) };
        }
        written = now;
    }
}

/// What it costs to make, to keep and to move many partitions.
fn operations(maker: &Maker, directory: &Path, count: i32) -> Result<(), String> {
    let mut cluster = Cluster::start(maker, directory, &[])?;
    let name = cluster.name();
    let topics = create_many(&cluster, count)?;
    std::thread::sleep(Duration::from_secs(5));
    let by_thread = || IDS.map(|id| cpu_by_thread(cluster.pid(id)));
    let before = by_thread();
    std::thread::sleep(Duration::from_secs(30));
    let after = by_thread();
    let idle = before.iter().zip(&after).map(|(before, after)| {
        let used = |(thread, used): (&_, &f64)| used - before.get(thread).unwrap_or(&0.0);
        after.iter().map(used).sum::<f64>() / 30.0 * 100.0
    });
    let idle: Vec<String> = idle.map(|share| format!("{share:.3}")).collect();
    let memory = IDS.map(|id| format!("{:.0}", memory_of(cluster.pid(id)) as f64 / 1e6));
    println!("| idle for 30 s | {name} | {} % CPU, {} MB |", idle.join(", "), memory.join(", "));
    // Nobody wants to wait for the default of 18 s; a connection may take longer on a busy machine.
    let session = format!("zookeeper.session.timeout.ms={}", SESSION_TIMEOUT.as_millis());
    cluster.set(&[&session, "zookeeper.connection.timeout.ms=30000"]);
    for id in IDS {
        cluster.signal(id, Signal::TERM);
        cluster.await_end(id, clock::now() + Duration::from_secs(180));
        cluster.start_broker(id)?;
        await_whole(&cluster, &topics, count)?;
    }
    let shutdown = (Signal::TERM, Duration::ZERO);
    let crash = (Signal::KILL, SESSION_TIMEOUT);
    for (what, how, is_controller) in [
        ("controlled shutdown", shutdown, false),
        ("controlled shutdown of the controller", shutdown, true),
        ("SIGKILL, less the session timeout", crash, false),
        ("SIGKILL of the controller, less the session timeout", crash, true),
    ] {
        let (mut led, mut ended) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let (moved, gone) = lose(&mut cluster, &topics, count, how, is_controller)?;
            led.push(format!("{moved:.3}"));
            ended.push(format!("{gone:.3}"));
        }
        let ended = match how.0 {
            Signal::TERM => format!("; ended after {} s", ended.join(", ")),
            _ => String::new(),
        };
        println!("| {what} | {name} | all led elsewhere after {} s{ended} |", led.join(", "));
    }
    Ok(())
}

/// Creates ten topics, and says what that took of all brokers.
fn create_many(cluster: &Cluster, count: i32) -> Result<Vec<String>, String> {
    const TOPICS: i32 = 10;
    let share = count / TOPICS;
    let mut topics = Vec::new();
    let (before, began) = (cluster.cpu().total(), clock::now());
    let mut half = before;
    for index in 0..TOPICS {
        if index == TOPICS / 2 {
            half = cluster.cpu().total();
        }
        let topic = format!("many-{index}");
        cluster.create(&topic, share, None, &[])?;
        topics.push(topic);
    }
    await_whole(cluster, &topics, count)?;
    let took = began.elapsed().as_secs_f64();
    // What followers do when they begin belongs to it.
    std::thread::sleep(Duration::from_secs(1));
    let after = cluster.cpu().total();
    let each = |used: f64, count: i32| used * 1e3 / f64::from(count);
    println!(
        "| creation | {} | {:.2} CPU-ms each, {:.2} of them in the second half; {took:.1} s in all |",
        cluster.name(),
        each(after - before, count),
        each(after - half, share * (TOPICS - TOPICS / 2)),
    );
    Ok(topics)
}

/// Waits until every partition has a leader and all replicas in sync.
fn await_whole(cluster: &Cluster, topics: &[String], count: i32) -> Result<(), String> {
    cluster.wait_until("all in sync", topics, &|view| {
        let is_whole = |one: &PartitionView| one.leader >= 0 && one.in_sync == IDS.len();
        are_all(view, count, is_whole)
    })
}

fn are_all(view: &View, count: i32, is_so: impl Fn(&PartitionView) -> bool) -> bool {
    i32::try_from(view.partitions.len()) == Ok(count) && view.partitions.iter().all(is_so)
}

/// Ends a broker and starts it again. Gives the seconds until the others see all its partitions led, and until it had ended.
fn lose(
    cluster: &mut Cluster,
    topics: &[String],
    count: i32,
    (signal, less): (Signal, Duration),
    is_controller: bool,
) -> Result<(f64, f64), String> {
    cluster.elect_preferred(topics)?;
    let controller = view(cluster.address(IDS[0]), &[])?.controller;
    let victim = IDS.into_iter().find(|id| (*id == controller) == is_controller);
    let victim = victim.ok_or("no such broker")?;
    let others: Vec<i32> = IDS.into_iter().filter(|id| *id != victim).collect();
    // What the election set off has come to rest.
    std::thread::sleep(Duration::from_secs(1));
    let began = clock::now();
    let deadline = began + Duration::from_secs(180);
    cluster.signal(victim, signal);
    let lost: &Cluster = cluster;
    let (led, ended) = std::thread::scope(|scope| {
        let ended = scope.spawn(|| {
            lost.await_end(victim, deadline);
            began.elapsed()
        });
        let led = others.iter().try_for_each(|id| {
            let pause = Duration::from_millis(10);
            wait_view(lost.address(*id), topics, deadline, pause, &|view| {
                are_all(view, count, |one| one.leader >= 0 && one.leader != victim)
            })
        });
        let led = led.map(|()| began.elapsed());
        (led, ended.join())
    });
    let ended = ended.map_err(|_| "panicked")?;
    cluster.start_broker(victim)?;
    await_whole(cluster, topics, count)?;
    Ok((led?.as_secs_f64() - less.as_secs_f64(), ended.as_secs_f64()))
}
