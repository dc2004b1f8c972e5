//! Mutations: flips, edges, cuts, repeats, splices, and lengths that lie.

/// Numbers that look random, the same for the same seed. Source: SplitMix64.
pub(crate) struct Random(u64);

impl Random {
    /// The numbers of one input.
    pub(crate) fn of(seed: u64, number: u64) -> Random {
        let mut random = Random(seed ^ number.rotate_left(32));
        random.next();
        random
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`; zero when there is none.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        let bound = u64::try_from(bound.max(1)).unwrap_or(u64::MAX);
        usize::try_from(self.next() % bound).unwrap_or(0)
    }
}

/// An input made of the corpus by a few mutations.
pub(crate) fn mutated(corpus: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let mut input = corpus[random.below(corpus.len())].clone();
    for _ in 0..=random.below(4) {
        let other = &corpus[random.below(corpus.len())];
        mutate(&mut input, other, random);
    }
    input
}

fn mutate(input: &mut Vec<u8>, other: &[u8], random: &mut Random) {
    let at = random.below(input.len());
    let length = random.below(input.len() - at);
    match random.below(10) {
        0 | 1 if !input.is_empty() => input[at] ^= 1 << random.below(8),
        2 if !input.is_empty() => input[at] = random.next().to_be_bytes()[0],
        3 | 4 => write_number(input, at, random),
        5 => input.truncate(at),
        6 => drop(input.drain(at..at + length)),
        7 => {
            let repeated = input[at..at + length].to_vec();
            input.splice(at..at, repeated);
        }
        8 => {
            let from = random.below(other.len());
            let taken = random.below(other.len() - from);
            input.splice(at..at + length, other[from..from + taken].iter().copied());
        }
        _ => {
            let noise: Vec<u8> =
                (0..random.below(16)).map(|_| random.next().to_be_bytes()[0]).collect();
            input.splice(at..at, noise);
        }
    }
}

/// Puts an edge where a length or a count may stand: big-endian, in 1 to 8 bytes, or as a varint.
fn write_number(input: &mut [u8], at: usize, random: &mut Random) {
    const EDGES: [u64; 12] = [
        0,
        1,
        2,
        0x7f,
        0x80,
        0xff,
        0x7fff,
        0xffff,
        0x7fff_ffff,
        0xffff_fffe,
        0xffff_ffff,
        u64::MAX >> 1,
    ];
    let number = match random.below(3) {
        0 => random.next() >> random.below(64),
        _ => EDGES[random.below(EDGES.len())],
    };
    let bytes = match random.below(5) {
        0 => varint(number),
        width => number.to_be_bytes()[8 - (1 << (width - 1))..].to_vec(),
    };
    for (place, byte) in input[at..].iter_mut().zip(bytes) {
        *place = byte;
    }
}

fn varint(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number >= 0x80 {
        bytes.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}
