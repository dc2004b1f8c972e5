//! What the standalone ZooKeeper reads: frames of clients, transaction logs, snapshots.

use zookeeper::untrusted::{read_connect, read_log, read_request, read_snapshot};

/// One byte that chooses, then the bytes.
pub(crate) fn run(data: &[u8]) {
    let Some((choice, bytes)) = data.split_first() else { return };
    let read = match choice % 6 {
        0 => read_connect(bytes),
        1 => read_request(bytes),
        2 => read_log(&log_of(bytes)) > 0,
        3 => read_snapshot(&snapshot_of(bytes)),
        4 => read_log(bytes) > 0,
        _ => read_snapshot(bytes),
    };
    std::hint::black_box(read);
}

/// Frames as the Java client writes them, transactions and a snapshot as Apache ZooKeeper writes them.
pub(crate) fn corpus() -> Vec<Vec<u8>> {
    let mut corpus = Vec::new();
    let mut connect = vec![0];
    connect.extend([0; 12]); // Protocol version, last zxid.
    connect.extend(30_000_i32.to_be_bytes());
    connect.extend(0x1000_0000_0001_i64.to_be_bytes());
    connect.extend(buffer(&[7; 16]));
    connect.push(0);
    corpus.push(connect);

    let world = [number(1), number(31), buffer(b"world"), buffer(b"anyone")].concat();
    let path = buffer(b"/brokers/ids/1");
    let create = [path.clone(), buffer(b"{}"), world.clone(), number(1)].concat();
    let version = [path.clone(), number(-1)].concat();
    let watch = [path.clone(), vec![1]].concat();
    let set = [path.clone(), buffer(b"data"), number(3)].concat();
    let part = |op: i32| [number(op), vec![0], number(-1)].concat();
    let end = [number(-1), vec![1], number(-1)].concat();
    let multi =
        [part(1), create.clone(), part(13), version.clone(), part(5), set.clone(), end.clone()];
    let reads = [part(4), watch.clone(), part(8), watch.clone(), end];
    let watches = [vec![0; 8], number(2), path.clone(), path.clone(), number(1), path.clone()];
    let persistent = [watches.concat(), number(0), number(1), path.clone(), number(0)].concat();
    let watches = [watches.concat(), number(0)].concat();
    for (op, body) in [
        (1, create.clone()),
        (15, create.clone()),
        (19, create.clone()),
        (21, [create, vec![0; 8]].concat()),
        (2, version),
        (3, watch.clone()),
        (4, watch.clone()),
        (8, watch.clone()),
        (12, watch),
        (5, set),
        (6, path.clone()),
        (7, [path.clone(), world, number(0)].concat()),
        (9, path.clone()),
        (14, multi.concat()),
        (22, reads.concat()),
        (101, watches),
        (105, persistent),
        (106, [path.clone(), number(1)].concat()),
        (18, [path.clone(), number(3)].concat()),
        (104, path.clone()),
        (103, path),
        (11, Vec::new()),
        (-11, Vec::new()),
    ] {
        corpus.push([vec![1], number(77), number(op), body].concat());
    }
    corpus.extend(transactions().into_iter().map(|it| [vec![2], it].concat()));
    corpus.push([vec![3], snapshot()].concat());
    corpus
}

/// Transactions of each kind, as Apache ZooKeeper writes them.
fn transactions() -> Vec<Vec<u8>> {
    let header = |op: i32| {
        let mut header = vec![0, 0, 0, 1, 0, 0, 0, 1]; // The session.
        header.extend(number(5));
        header.extend(7_i64.to_be_bytes());
        header.extend(1_700_000_000_000_i64.to_be_bytes());
        header.extend(number(op));
        header
    };
    let world = [number(1), number(31), buffer(b"world"), buffer(b"anyone")].concat();
    let path = buffer(b"/brokers/ids/1");
    let create = [path.clone(), buffer(b"{}"), world.clone(), vec![1], number(3)].concat();
    let set = [path.clone(), buffer(b"data"), number(4)].concat();
    let parts = [number(1), buffer(&create), number(2), buffer(&path), number(5), buffer(&set)];
    [
        (1, create.clone()),
        (19, [path.clone(), buffer(b""), world.clone(), number(1)].concat()),
        (21, [create.clone(), vec![0; 8]].concat()),
        (2, path.clone()),
        (5, set),
        (7, [path.clone(), world, number(2)].concat()),
        (14, [number(3), parts.concat()].concat()),
        (-10, number(30_000)),
        (-11, [number(1), path].concat()),
        (-1, number(-101)),
    ]
    .into_iter()
    .map(|(op, body)| [header(op), body].concat())
    .collect()
}

/// A tree with one session and two nodes, without the file's header and checksum.
fn snapshot() -> Vec<u8> {
    let world = [number(1), number(31), buffer(b"world"), buffer(b"anyone")].concat();
    let stat = [vec![0; 8 * 4], vec![0; 4 * 3], vec![0; 8 * 2]].concat();
    let one = 1_i64.to_be_bytes().to_vec();
    let node =
        |path: &[u8], data: &[u8]| [buffer(path), buffer(data), one.clone(), stat.clone()].concat();
    [
        number(1),
        7_i64.to_be_bytes().to_vec(),
        number(30_000),
        number(1),
        one.clone(),
        world,
        node(b"", b""),
        node(b"/brokers", b"data"),
        buffer(b"/"),
    ]
    .concat()
}

/// A log whose only entry is this; its checksum is right, or nothing would be read.
fn log_of(record: &[u8]) -> Vec<u8> {
    let mut log = [&b"ZKLG"[..], &number(2), &[0; 8]].concat();
    log.extend(i64::from(adler32(record)).to_be_bytes());
    log.extend(buffer(record));
    log.push(b'B');
    log
}

fn snapshot_of(content: &[u8]) -> Vec<u8> {
    let mut file = [&b"ZKSN"[..], &number(2), &[0xff; 8], content].concat();
    let checksum = i64::from(adler32(&file));
    file.extend(checksum.to_be_bytes());
    file.extend(buffer(b"/"));
    file
}

/// Source: RFC 1950.
fn adler32(bytes: &[u8]) -> u32 {
    const MODULUS: u32 = 65_521;
    let (mut low, mut high) = (1, 0);
    for byte in bytes {
        low = (low + u32::from(*byte)) % MODULUS;
        high = (high + low) % MODULUS;
    }
    high << 16 | low
}

fn number(number: i32) -> Vec<u8> {
    number.to_be_bytes().to_vec()
}

fn buffer(bytes: &[u8]) -> Vec<u8> {
    let length = i32::try_from(bytes.len()).expect("short");
    [&length.to_be_bytes(), bytes].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_input_to_begin_from_is_understood() {
        for input in corpus() {
            let (choice, bytes) = input.split_first().unwrap();
            let understood = match choice {
                0 => read_connect(bytes),
                1 => read_request(bytes),
                2 => read_log(&log_of(bytes)) == 1,
                _ => read_snapshot(&snapshot_of(bytes)),
            };
            assert!(understood, "{choice}: {bytes:?}");
        }
    }
}
