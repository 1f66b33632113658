//! Packets that show where they belong and whether they are whole.

#![allow(dead_code, reason = "no test uses all of it")]

use inet_rdma_assembly::Gather;

/// Packets with their headers, ready to be gathered.
pub struct Messages {
    headers: Vec<[u8; 4]>,
    bodies: Vec<Vec<u8>>,
}

/// The body number `number` of a seed: its bytes differ from place to place, from number to number and seed to seed.
pub fn body(seed: u64, number: u64, bytes: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mut body = vec![0; bytes];
    random.fill(&mut body);
    body
}

impl Messages {
    /// One packet per size.
    pub fn new(seed: u64, sizes: &[usize]) -> Self {
        let bodies = (0..).zip(sizes).map(|(number, bytes)| body(seed, number, *bytes));
        Self::of(bodies.collect())
    }

    pub fn of(bodies: Vec<Vec<u8>>) -> Self {
        let header = |body: &Vec<u8>| u32::try_from(body.len()).expect("a small packet").to_be_bytes();
        Self {
            headers: bodies.iter().map(header).collect(),
            bodies,
        }
    }

    pub fn bodies(&self) -> &[Vec<u8>] {
        &self.bodies
    }

    /// All of them, with headers or (raw) without.
    pub fn gather(&self, with_headers: bool) -> Gather<'_> {
        let mut gather = Gather::with_capacity(2 * self.bodies.len(), self.bodies.len());
        self.add_to(&mut gather, with_headers);
        gather
    }

    /// As [`Self::gather`], after what is in `gather`.
    #[inline]
    pub fn add_to<'a>(&'a self, gather: &mut Gather<'a>, with_headers: bool) {
        for (header, body) in self.headers.iter().zip(&self.bodies) {
            if with_headers {
                gather.push(header);
            }
            gather.push(body);
            gather.end_packet();
        }
    }
}
