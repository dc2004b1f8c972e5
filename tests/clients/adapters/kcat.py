"""kcat. Its bulk output is the frame format as it is; what has every field goes through its JSON."""

import json
import re
import signal
import subprocess
import sys

import common
import journal

FALLBACK = {"0.9": "0.9.0.1", "0.10": "0.10.0.1"}
# Something that no text of the input holds.
END = "\x01<end of message>\x01"


def kcat(options, *words, **more):
    command = ["kcat", "-q", "-b", options.bootstrap, "-X", f"message.max.bytes={common.REQUEST_SIZE_MAX}"]
    if options.protocol:
        command += ["-X", "api.version.request=false", "-X", f"broker.version.fallback={FALLBACK[options.protocol]}"]
    return subprocess.Popen([*command, *words], **more)


def finish(process):
    if process.wait() != 0:
        sys.exit(f"kcat ended with {process.returncode}")


def produce(options):
    lines = options.split == "lines"
    words = ["-P", "-t", options.topic, "-z", options.codec, "-X", "linger.ms=20", "-X", "acks=all"]
    words += [] if lines else ["-D", END]
    words += ["-K", "\t"] if options.keyed else []
    process = kcat(options, *words, stdin=subprocess.PIPE)
    end = b"\n" if lines else END.encode()
    for key, value in common.messages(options):
        process.stdin.write((b"" if key is None else key + b"\t") + value + end)
    process.stdin.close()
    finish(process)


def send(options):
    """A process for each record, since headers hold for all messages of one. It cannot set timestamps."""
    for record in common.read_records(options.input):
        words = ["-P", "-t", options.topic, "-p", str(record.partition), "-Z", "-D", END]
        for name, value in record.headers:
            words += ["-H", name if value is None else f"{name}={value.decode()}"]
        # A message of no bytes is not sent at all, but one of a key alone is.
        words += [] if record.key is None else ["-K", "\t"]
        process = kcat(options, *words, stdin=subprocess.PIPE)
        process.stdin.write((b"" if record.key is None else record.key + b"\t") + (record.value or b"") + END.encode())
        process.stdin.close()
        finish(process)


def consume(options):
    words = ["-C", "-t", options.topic, "-o", "beginning", "-e", "-X", "check.crcs=true", "-X", f"isolation.level={options.isolation}",
             "-f", "%p %o %T %K %S\n%k%s\n"]
    if options.protocol:
        words += ["-X", f"fetch.message.max.bytes={common.REQUEST_SIZE_MAX}"]
    with open(options.output, "wb") as target:
        finish(kcat(options, *words, stdout=target))


def read(options):
    process = kcat(options, "-C", "-t", options.topic, "-o", "beginning", "-e", "-J", stdout=subprocess.PIPE)
    records = []
    for line in process.stdout:
        message = json.loads(line)
        flat = message.get("headers", [])
        headers = [(name, encoded(value)) for name, value in zip(flat[::2], flat[1::2])]
        records.append(common.Record(message["partition"], message["offset"], message["ts"], encoded(message["key"]),
                                     encoded(message["payload"]), headers))
    finish(process)
    common.write_records(options.output, records)


def encoded(text):
    return None if text is None else text.encode()


def times(options):
    answers = []
    for partition, timestamp in common.read_queries(options.input):
        process = kcat(options, "-Q", "-t", f"{options.topic}:{partition}:{timestamp}", stdout=subprocess.PIPE)
        # "topic [partition] offset N"
        answers.append((partition, timestamp, max(int(process.stdout.read().split()[-1]), -1)))
        finish(process)
    common.write_answers(options.output, answers)


def group(options):
    """kcat commits by itself, so its journal has no commits."""
    member = journal.Member(options)
    settings = {
        "session.timeout.ms": options.session, "heartbeat.interval.ms": options.session // journal.HEARTBEATS_IN_SESSION,
        "partition.assignment.strategy": options.assignor, "auto.offset.reset": "earliest", "auto.commit.interval.ms": 200,
        "topic.metadata.refresh.interval.ms": journal.METADATA_MS,
    }
    words = [word for key, value in settings.items() for word in ("-X", f"{key}={value}")]
    # Records, rebalances and librdkafka's log through one pipe, a line at a time: their order counts.
    command = ["stdbuf", "-oL", "kcat", "-E", "-b", options.bootstrap, *words, "-d", "cgrp", "-f", "%p %o %s\n", "-G", options.group,
               options.topic]
    while not member.stopping:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

        def stop(*_, process=process):
            member.stop()
            process.terminate()

        signal.signal(signal.SIGTERM, stop)
        unknown = take(process.stdout, member)
        member.write("ended")
        if process.wait() != 0 and not unknown:
            sys.exit(f"kcat ended with {process.returncode}")
        # Else it ended because a broker that had just started did not know the topic yet.
    member.left()


def take(lines, member):
    """Writes down all that kcat tells. True when it told of an unknown topic."""
    generation = None
    unknown = False
    for line in lines:
        line = line.decode(errors="replace")
        if found := re.search(r"JoinGroup response: GenerationId (-?\d+)", line):
            generation = int(found[1])
        elif found := re.match(r"(\d+) (\d+) (\S+)$", line):
            member.got([(int(found[1]), int(found[2]), found[3].encode())])
        elif found := re.match(r"% Group .* rebalanced \(memberid [^)]*\): (assigned|revoked): (.*)", line):
            partitions = [int(number) for number in re.findall(r"\[(\d+)\]", found[2])]
            if found[1] == "assigned":
                member.gained(generation, partitions)
            else:
                member.lost(partitions)
        elif not line.startswith("%7"):
            unknown = unknown or "Subscribed topic not available" in line
            print(line, end="", file=sys.stderr, flush=True)
    # Without a word of it, when it ends by itself.
    member.lost(list(member.owned))
    return unknown


if __name__ == "__main__":
    options = common.arguments()
    globals()[options.command](options)
