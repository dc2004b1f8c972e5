"""Sends right, odd and broken record batches to a real Kafka and records its answers, and what it stored.

Makes produce/answers.jsonl (a produce request for one partition a line) and produce/down.jsonl (fetches of old versions).
Needs what the other recorders need; see README.md. Broker and ZooKeeper take free ports of 127.0.0.1.
"""
import base64, gzip, json, os, pathlib, socket, struct, subprocess, time, zlib

import cramjam, lz4.frame, zstandard
from kafka.record._crc32c import crc as crc32c

HERE = pathlib.Path(__file__).resolve().parent
PEER = os.environ.get("PEER", str(HERE / "../peer/peer"))
WORK = pathlib.Path(os.environ.get("GOLDEN_WORK", "/tmp/golden")) / "produce"
OUT = pathlib.Path(os.environ.get("GOLDEN_OUT", HERE)) / "produce"
T = 1700000000000
NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)

TOPICS = {
    "plain": {},
    "append-time": {"message.timestamp.type": "LogAppendTime"},
    "compacted": {"cleanup.policy": "compact"},
    "bounded": {"message.timestamp.before.max.ms": "3600000", "message.timestamp.after.max.ms": "1800000"},
    "gzip": {"compression.type": "gzip"},
    "snappy": {"compression.type": "snappy"},
    "lz4": {"compression.type": "lz4"},
    "zstd": {"compression.type": "zstd"},
    "uncompressed": {"compression.type": "uncompressed"},
    "gzip-append-time": {"compression.type": "gzip", "message.timestamp.type": "LogAppendTime"},
    "gzip-compacted": {"compression.type": "gzip", "cleanup.policy": "compact"},
    "small": {"max.message.bytes": "2000"},
    "small-uncompressed": {"max.message.bytes": "2000", "compression.type": "uncompressed"},
}


# ---- bytes of batches

def varint(n):
    n = (n << 1) ^ (n >> 63)
    n &= (1 << 64) - 1
    out = b""
    while n >= 0x80:
        out += bytes([n & 0x7F | 0x80])
        n >>= 7
    return out + bytes([n])


def nullable(b):
    return varint(-1) if b is None else varint(len(b)) + b


def record(i, ts=0, key=b"k", value=b"v", headers=(), attributes=0, length=None, header_count=None):
    body = bytes([attributes]) + varint(ts) + varint(i) + nullable(key) + nullable(value)
    body += varint(len(headers) if header_count is None else header_count)
    for k, v in headers:
        body += nullable(k) + nullable(v)
    return varint(len(body) if length is None else length) + body


def xerial(data, block=32768):
    out = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
    for i in range(0, len(data), block):
        b = bytes(cramjam.snappy.compress_raw(data[i:i + block]))
        out += struct.pack(">i", len(b)) + b
    return out


def compress(codec, data):
    return [lambda d: d, lambda d: gzip.compress(d, mtime=0), xerial,
            lambda d: lz4.frame.compress(d, block_linked=False, content_checksum=False),
            lambda d: zstandard.ZstdCompressor().compress(d)][codec](data)


def batch(payload, n=1, codec=NONE, raw=False, crc=None, size=None, **over):
    f = dict(base_offset=0, epoch=-1, magic=2, attributes=codec, delta=n - 1, base_ts=T, max_ts=T + n - 1, pid=-1,
             pepoch=-1, seq=-1, count=n)
    f.update(over)
    if not raw:
        payload = compress(codec, payload)
    rest = struct.pack(">hiqqqhii", f["attributes"], f["delta"], f["base_ts"], f["max_ts"], f["pid"], f["pepoch"], f["seq"],
                       f["count"]) + payload
    head = struct.pack(">iBI", f["epoch"], f["magic"] & 255, crc32c(rest) if crc is None else crc)
    return struct.pack(">qi", f["base_offset"], len(head + rest) if size is None else size) + head + rest


def message(offset, magic, key=b"k", value=b"v", ts=T, attributes=0, crc=None):
    rest = struct.pack(">bb", magic, attributes) + (struct.pack(">q", ts) if magic == 1 else b"")
    for part in (key, value):
        rest += struct.pack(">i", -1) if part is None else struct.pack(">i", len(part)) + part
    return struct.pack(">qiI", offset, len(rest) + 4, zlib.crc32(rest) if crc is None else crc) + rest


def wrapper(offset, magic, codec, inner, ts=T, attributes=0, value=b"", crc=None):
    value = compress(codec, inner) if inner is not None else value
    return message(offset, magic, None, value, ts, codec | attributes, crc)


# ---- the cases: (name, topic, produce version, bytes)

def cases():
    out = []

    def add(name, topic, data, version=8):
        out.append((name, topic, version, data))

    three = b"".join(record(i, i, b"key-%d" % i, b"value-%d" % i, [(b"h", b"x"), (b"h", None)]) for i in range(3))
    # headers of batches
    add("plain", "plain", batch(three, 3))
    add("base offset 5", "plain", batch(three, 3, base_offset=5))
    add("epoch 9", "plain", batch(three, 3, epoch=9))
    add("count 2 of 3", "plain", batch(three, 3, count=2, delta=2))
    add("count 2 and delta 1 of 3", "plain", batch(three, 2))
    add("count 4 and delta 3 of 3", "plain", batch(three, 4))
    add("count 0", "plain", batch(b"", 0, delta=0))
    add("count 0 and delta -1", "plain", batch(b"", 0))
    add("count -1", "plain", batch(three, 3, count=-1))
    add("delta -1", "plain", batch(three, 3, delta=-1))
    add("delta -2^31", "plain", batch(three, 3, delta=-2**31))
    add("delta 2^31-1", "plain", batch(three, 3, delta=2**31 - 1))
    add("count 2^31-1 and delta to match", "plain", batch(three, 3, count=2**31 - 1, delta=2**31 - 2))
    add("control", "plain", batch(record(0, 0, b"\0\0\0\1", b"\0\0\0\0\0\0"), 1, attributes=0x20))
    add("producer without sequence", "plain", batch(three, 3, pid=77, pepoch=0))
    add("producer with sequence", "plain", batch(three, 3, pid=78, pepoch=0, seq=0))
    add("crc", "plain", batch(three, 3, crc=1))
    add("crc of gzip", "plain", batch(three, 3, GZIP, crc=1))
    add("two batches", "plain", batch(three, 3) * 2)
    add("two batches in version 2", "plain", batch(three, 3) * 2, 2)
    add("two gzip batches in version 2", "plain", batch(three, 3, GZIP) * 2, 2)
    add("magic 3", "plain", batch(three, 3, magic=3))
    add("magic 3 in version 2", "plain", batch(three, 3, magic=3), 2)
    add("magic -1 in version 2", "plain", batch(three, 3, magic=-1), 2)
    add("size 13 in version 2", "plain", batch(three, 3, size=13), 2)
    add("size 13", "plain", batch(three, 3, size=13))
    add("size -1 in version 2", "plain", batch(three, 3, size=-1), 2)
    add("size 20 in version 2", "plain", batch(three, 3, size=20), 2)
    add("cut off", "plain", batch(three, 3)[:-1])
    add("cut off in version 2", "plain", batch(three, 3)[:-1], 2)
    add("cut off in the header in version 2", "plain", batch(three, 3)[:30], 2)
    add("nothing", "plain", b"")
    add("nothing in version 2", "plain", b"", 2)
    add("trailing 16 bytes", "plain", batch(three, 3) + b"\0" * 8 + struct.pack(">i", 100) + b"\0" * 4)
    add("trailing zeros", "plain", batch(three, 3) + b"\0" * 12)
    add("trailing cut off batch", "plain", batch(three, 3) + batch(three, 3)[:-5])
    for codec in (5, 6, 7):
        add(f"codec {codec}", "plain", batch(three, 3, attributes=codec))
    for bit in (0x40, 0x80, 0x100, 0x4000):
        add(f"attribute {bit:#x}", "plain", batch(three, 3, attributes=bit))
        add(f"attribute {bit:#x} on append time", "append-time", batch(three, 3, attributes=bit))
        add(f"attribute {bit:#x} recompressed", "gzip", batch(three, 3, attributes=bit))
    # timestamps
    for topic in ("plain", "append-time", "gzip", "gzip-append-time"):
        for codec in (NONE, GZIP, ZSTD):
            add(f"times, codec {codec}", topic, batch(three, 3, codec))
            add(f"max timestamp low, codec {codec}", topic, batch(three, 3, codec, max_ts=T - 5))
            add(f"max timestamp high, codec {codec}", topic, batch(three, 3, codec, max_ts=T + 500))
            add(f"base timestamp before the first, codec {codec}", topic, batch(three, 3, codec, base_ts=T - 100))
            none = record(0) + record(1)
            add(f"no timestamps, codec {codec}", topic, batch(none, 2, codec, base_ts=-1, max_ts=-1))
            add(f"a negative timestamp, codec {codec}", topic, batch(none, 2, codec, base_ts=-7, max_ts=-7))
            lat = 8 | codec
            add(f"flagged append time, codec {codec}", topic, batch(three, 3, codec, attributes=lat))
            add(f"flagged append time without a time, codec {codec}", topic, batch(three, 3, codec, attributes=lat, max_ts=-1))
    wrap = record(0, 2**63 - 1) + record(1, -2**63)
    add("timestamp deltas that wrap", "plain", batch(wrap, 2))
    old = record(0, 0) + record(1, 1) + record(2, 2)
    for codec in (NONE, GZIP):
        add(f"too old, codec {codec}", "bounded", batch(old, 3, codec))
        add(f"too new, codec {codec}", "bounded", batch(old, 3, codec, base_ts=T * 2, max_ts=T * 2 + 2))
        add(f"no time on bounds, codec {codec}", "bounded", batch(record(0), 1, codec, base_ts=-1, max_ts=-1))
        add(f"one too old and no key, codec {codec}", "bounded", batch(record(0, 0, None) + record(1, -T - 1), 2, codec))
    # keys
    keys = record(0) + record(1, 1, None) + record(2, 2, b"") + record(3, 3, None, None)
    for topic in ("compacted", "gzip-compacted"):
        for codec in (NONE, GZIP, LZ4):
            add(f"null keys, codec {codec}", topic, batch(keys, 4, codec))
            add(f"keys, codec {codec}", topic, batch(three, 3, codec))
    many = b"".join(record(i, 0, None) for i in range(5))
    add("five null keys", "compacted", batch(many, 5))
    # records
    odd = {
        "offsets 0 0 2": (record(0) + record(0) + record(2), 3),
        "offsets 0 2 1": (record(0) + record(2) + record(1), 3),
        "offsets 1 2 3": (record(1) + record(2) + record(3), 3),
        "offsets -1 0 1": (record(-1) + record(0) + record(1), 3),
        "record attributes": (record(0, attributes=0x7F), 1),
        "length short": (record(0, length=3), 1),
        "length long": (record(0, length=9), 1),
        "length long of two": (record(0, length=9) + record(1), 2),
        "length negative": (record(0, length=-1), 1),
        "length huge": (record(0, length=2**31 - 1), 1),
        "bytes follow": (record(0) + b"\0", 1),
        "record cut off": ((record(0) + record(1))[:-2], 2),
        "header count negative": (record(0, header_count=-1), 1),
        "header count high": (record(0, header_count=3), 1),
        "header count huge": (record(0, header_count=2**31 - 1), 1),
        "header name null": (record(0, headers=[(None, b"x")]), 1),
        "endless varint": (b"\xff" * 12, 1),
        "key past the end": (varint(6) + b"\0\0\0" + varint(100) + b"abc", 1),
        "null value": (record(0, 0, None, None), 1),
        "no bytes": (b"", 1),
    }
    for name, (data, count) in odd.items():
        for topic in ("plain", "gzip"):
            for codec in (NONE, GZIP):
                add(f"{name}, codec {codec}", topic, batch(data, count, codec, max_ts=T))
    # codecs
    big = b"".join(record(i, i % 7, b"key-%d" % i, b"some value that repeats %d " % i * 20) for i in range(30))
    for topic in ("plain", "gzip", "snappy", "lz4", "zstd", "uncompressed", "append-time"):
        for codec in (NONE, GZIP, SNAPPY, LZ4, ZSTD):
            add(f"codec {codec}", topic, batch(big, 30, codec, max_ts=T + 6))
        add("raw snappy", topic, batch(bytes(cramjam.snappy.compress_raw(big)), 30, SNAPPY, raw=True, max_ts=T + 6))
    linked = lz4.frame.compress(big, block_linked=True)
    full = lz4.frame.compress(big, block_linked=False, content_checksum=True, block_checksum=True, store_size=True, block_size=lz4.frame.BLOCKSIZE_MAX4MB)
    bad = bytearray(lz4.frame.compress(big, block_linked=False))
    bad[6] ^= 1
    add("lz4 linked blocks", "plain", batch(linked, 30, LZ4, raw=True, max_ts=T + 6))
    add("lz4 with all fields", "plain", batch(full, 30, LZ4, raw=True, max_ts=T + 6))
    add("lz4 header checksum", "plain", batch(bytes(bad), 30, LZ4, raw=True, max_ts=T + 6))
    add("gzip of two members", "plain", batch(gzip.compress(big[:5000], mtime=0) + gzip.compress(big[5000:], mtime=0), 30, GZIP, raw=True, max_ts=T + 6))
    for codec in (GZIP, SNAPPY, LZ4, ZSTD):
        data = compress(codec, big)
        for topic in ("plain", "uncompressed"):
            add(f"codec {codec} of noise", topic, batch(b"not compressed at all", 1, codec, raw=True))
            add(f"codec {codec} of nothing", topic, batch(b"", 1, codec, raw=True))
            add(f"codec {codec} cut off", topic, batch(data[:len(data) // 2], 30, codec, raw=True, max_ts=T + 6))
            add(f"codec {codec} cut off at the end", topic, batch(data[:-1], 30, codec, raw=True, max_ts=T + 6))
            add(f"codec {codec} and bytes after", topic, batch(data + b"after", 30, codec, raw=True, max_ts=T + 6))
            add(f"codec {codec} of 29 records", topic, batch(big, 29, codec, max_ts=T + 6))
            add(f"codec {codec} of 31 records", topic, batch(big, 31, codec, max_ts=T + 6))
    for version in (3, 6, 7):
        add(f"zstd in version {version}", "plain", batch(three, 3, ZSTD), version)
    # sizes
    value = b"x" * 1900
    add("1990 bytes", "small", batch(record(0, value=value), 1))
    add("2100 bytes", "small", batch(record(0, value=value + b"x" * 110), 1))
    add("grows when plain", "small-uncompressed", batch(record(0, value=b"x" * 5000), 1, GZIP))
    add("fits when plain", "small-uncompressed", batch(record(0, value=value), 1, GZIP))
    # old formats
    for magic in (0, 1):
        one, rest = message(0, magic), [message(i, magic, b"k%d" % i, b"v%d" % i, T + i) for i in range(3)]
        inner = b"".join(rest)
        for topic in ("plain", "append-time", "gzip", "zstd", "compacted"):
            add(f"magic {magic}", topic, one, 2)
            add(f"magic {magic}, three", topic, inner, 2)
            for codec in (GZIP, SNAPPY, LZ4):
                add(f"magic {magic}, codec {codec}", topic, wrapper(2, magic, codec, inner, T + 2), 2)
        add(f"magic {magic} in version 3", "plain", one, 3)
        add(f"magic {magic}, crc", "plain", message(0, magic, crc=1), 2)
        add(f"magic {magic}, null key", "compacted", message(0, magic, None), 2)
        add(f"magic {magic}, null key in gzip", "compacted", wrapper(1, magic, GZIP, message(0, magic) + message(1, magic, None)), 2)
        add(f"magic {magic}, old", "bounded", one, 2)
        add(f"magic {magic}, null value", "plain", message(0, magic, b"k", None), 2)
        add(f"magic {magic}, wrapper offset 0", "plain", wrapper(0, magic, GZIP, inner), 2)
        add(f"magic {magic}, wrapper offset 1 of 2", "plain", wrapper(1, magic, GZIP, inner), 2)
        add(f"magic {magic}, wrapper offset 100", "plain", wrapper(100, magic, GZIP, inner), 2)
        add(f"magic {magic}, inner offsets all 0", "plain", wrapper(0, magic, GZIP, message(0, magic) * 3), 2)
        add(f"magic {magic}, inner crc", "plain", wrapper(1, magic, GZIP, message(0, magic) + message(1, magic, crc=1)), 2)
        add(f"magic {magic}, inner magic", "plain", wrapper(1, magic, GZIP, message(0, magic) + message(1, 1 - magic)), 2)
        add(f"magic {magic}, nested", "plain", wrapper(0, magic, GZIP, wrapper(0, magic, GZIP, inner)), 2)
        add(f"magic {magic}, zstd", "plain", wrapper(2, magic, ZSTD, inner), 2)
        add(f"magic {magic}, codec 5", "plain", message(0, magic, attributes=5), 2)
        add(f"magic {magic}, null wrapper", "plain", wrapper(0, magic, GZIP, None, value=None), 2)
        add(f"magic {magic}, empty wrapper", "plain", wrapper(0, magic, GZIP, b""), 2)
        add(f"magic {magic}, inner cut off", "plain", wrapper(2, magic, GZIP, inner[:-1]), 2)
        add(f"magic {magic}, two wrappers", "plain", wrapper(2, magic, GZIP, inner) * 2, 2)
        add(f"magic {magic}, wrapper and plain", "plain", wrapper(2, magic, GZIP, inner) + one, 2)
        add(f"magic {magic}, two magics", "plain", one + message(1, 1 - magic), 2)
        add(f"magic {magic} and a batch", "plain", one + batch(three, 3), 2)
        add(f"magic {magic}, negative timestamp", "plain", message(0, magic, ts=-5), 2)
        add(f"magic {magic}, no timestamp", "plain", message(0, magic, ts=-1), 2)
        add(f"magic {magic}, flagged append time", "plain", message(0, magic, attributes=8), 2)
        add(f"magic {magic}, flagged append time", "append-time", message(0, magic, attributes=8), 2)
        add(f"magic {magic}, flagged append time in gzip", "plain", wrapper(2, magic, GZIP, inner, T + 9, 8), 2)
        add(f"magic {magic}, too large", "small", message(0, magic, value=b"x" * 2000), 2)
        add(f"magic {magic}, too large together", "small", message(0, magic, value=b"x" * 1000) + message(1, magic, value=b"x" * 1000), 2)
    broken = bytearray(wrapper(2, 0, LZ4, b"".join(message(i, 0) for i in range(3))))
    at = broken.index(b"\x04\x22\x4d\x18") + 6
    broken[at] ^= 0x55
    add("magic 0, lz4 with another header checksum", "plain", bytes(broken[:12]) + struct.pack(">I", zlib.crc32(bytes(broken[16:]))) + bytes(broken[16:]), 2)
    return out


DOWN = {"down": {}, "down-append-time": {"message.timestamp.type": "LogAppendTime"}, "down-zstd": {}}


def down_batches(topic):
    three = b"".join(record(i, 5 - i, b"key-%d" % i, b"value-%d" % i, [(b"h", b"x")]) for i in range(3))
    odd = record(0, 0, None, b"no key") + record(1, 7, b"no value", None) + record(2, 3, b"", b"")
    if topic == "down-zstd":
        return [batch(three, 3), batch(three, 3, ZSTD), batch(odd, 3)]
    return [batch(data, 3, codec, max_ts=T + 7) for codec in (NONE, GZIP, SNAPPY, LZ4) for data in (three, odd)]


# ---- the wire

class Wire:
    def __init__(self, port):
        self.port, self.id = port, 0
        self.connect()

    def connect(self):
        self.socket = socket.create_connection(("127.0.0.1", self.port), timeout=30)

    def call(self, key, version, body):
        self.id += 1
        request = struct.pack(">hhih", key, version, self.id, 6) + b"golden" + body
        self.socket.sendall(struct.pack(">i", len(request)) + request)
        size = struct.unpack(">i", self.read(4))[0]
        return Reader(self.read(size)[4:])

    def read(self, n):
        out = b""
        while len(out) < n:
            part = self.socket.recv(n - len(out))
            if not part:
                raise ConnectionError("closed")
            out += part
        return out


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def get(self, kind):
        value = struct.unpack_from(">" + kind, self.data, self.at)[0]
        self.at += struct.calcsize(">" + kind)
        return value

    def bytes(self, kind="i"):
        n = self.get(kind)
        if n < 0:
            return None
        self.at += n
        return self.data[self.at - n:self.at]


def string(s):
    return struct.pack(">h", len(s)) + s.encode()


def create(wire, name, configs):
    body = struct.pack(">i", 1) + string(name) + struct.pack(">ihi", 1, 1, 0) + struct.pack(">i", len(configs))
    for k, v in configs.items():
        body += string(k) + string(v)
    answer = wire.call(19, 2, body + struct.pack(">ib", 10000, 0))
    answer.get("i"), answer.get("i"), answer.bytes("h")
    return answer.get("h")


def produce(wire, topic, version, data):
    body = struct.pack(">h", -1) if version >= 3 else b""
    body += struct.pack(">hii", -1, 10000, 1) + string(topic) + struct.pack(">iii", 1, 0, len(data)) + data
    answer = wire.call(0, version, body)
    answer.get("i"), answer.bytes("h"), answer.get("i"), answer.get("i")
    out = {"error": answer.get("h"), "baseOffset": answer.get("q")}
    if version >= 2:
        out["logAppendTime"] = answer.get("q")
    if version >= 5:
        answer.get("q")
    if version >= 8:
        out["recordErrors"] = [[answer.get("i"), (answer.bytes("h") or b"").decode()] for _ in range(answer.get("i"))]
        message = answer.bytes("h")
        out["errorMessage"] = message and message.decode()
    return out


def fetch(wire, topic, version, offset, size=10_000_000):
    body = struct.pack(">iii", -1, 100, 1)
    if version >= 3:
        body += struct.pack(">i", size)
    if version >= 4:
        body += struct.pack(">b", 0)
    if version >= 7:
        body += struct.pack(">ii", 0, -1)
    body += struct.pack(">i", 1) + string(topic) + struct.pack(">ii", 1, 0)
    body += struct.pack(">i", -1) if version >= 9 else b""
    body += struct.pack(">q", offset) + (struct.pack(">q", -1) if version >= 5 else b"") + struct.pack(">i", size)
    body += struct.pack(">i", 0) if version >= 7 else b""
    body += string("") if version >= 11 else b""
    answer = wire.call(1, version, body)
    if version >= 1:
        answer.get("i")
    if version >= 7:
        answer.get("h"), answer.get("i")
    answer.get("i"), answer.bytes("h"), answer.get("i"), answer.get("i")
    error, _ = answer.get("h"), answer.get("q")
    if version >= 4:
        answer.get("q")
        if version >= 5:
            answer.get("q")
        for _ in range(max(0, answer.get("i"))):
            answer.get("q"), answer.get("q")
    if version >= 11:
        answer.get("i")
    return error, answer.bytes() or b""


def first_batch(data):
    return data[:12 + struct.unpack_from(">i", data, 8)[0]]


def b64(data):
    return base64.b64encode(data).decode()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def main():
    zk, port = free_port(), free_port()
    WORK.mkdir(parents=True, exist_ok=True)
    OUT.mkdir(parents=True, exist_ok=True)
    subprocess.run([PEER, "zookeeper", WORK / "zk", str(zk)], check=True)
    subprocess.run([PEER, "broker", WORK / "broker", str(port), f"127.0.0.1:{zk}", "1", "log.retention.ms=-1",
                    "message.max.bytes=10000000"], check=True)
    try:
        wire = Wire(port)
        for name, configs in {**TOPICS, **DOWN}.items():
            for _ in range(100):  # until the controller knows the broker, too
                if create(wire, name, {"retention.ms": "-1", **configs}) in (0, 36):
                    break
                time.sleep(0.1)
            else:
                raise RuntimeError(f"cannot create {name}")
        with open(OUT / "answers.jsonl", "w") as out:
            for name, topic, version, data in cases():
                line = {"name": name, "topic": topic, "version": version, "records": b64(data)}
                try:
                    line.update(produce(wire, topic, version, data))
                    if line["error"] == 0 and line["baseOffset"] >= 0:
                        line["stored"] = b64(first_batch(fetch(wire, topic, 11, line["baseOffset"])[1]))
                except ConnectionError:
                    line["closed"] = True
                    wire.connect()
                out.write(json.dumps(line, separators=(",", ":")) + "\n")
        with open(OUT / "down.jsonl", "w") as out:
            for topic in DOWN:
                for data in down_batches(topic):
                    assert produce(wire, topic, 8, data)["error"] == 0
                for offset in (0, 1, 4, 8, 15):
                    log = fetch(wire, topic, 11, offset)[1]
                    for version in (0, 1, 2, 3):
                        error, data = fetch(wire, topic, version, offset)
                        line = {"topic": topic, "version": version, "from": offset, "error": error, "log": b64(log), "answer": b64(data)}
                        out.write(json.dumps(line, separators=(",", ":")) + "\n")
    finally:
        subprocess.run([PEER, "stop", WORK / "broker"])
        subprocess.run([PEER, "stop", WORK / "zk"])


if __name__ == "__main__":
    main()
