//! The log beside a plain list of bytes.

use proptest::collection::vec;
use proptest::prelude::*;

use crate::{Cursor, Log, Position};

#[derive(Debug, Clone)]
enum Step {
    Copy(usize),
    Hold(usize),
    /// Only if the log is empty.
    Pass(usize),
    Acknowledge(u64),
    /// Puts one of the two cursors at a share of what the log has.
    Seek(usize, u8),
    Advance(usize, usize),
    /// Slices from one of the cursors on, of which only so many are taken.
    Slices(usize, usize, usize),
    Shrink,
}

fn bytes() -> impl Strategy<Value = usize> {
    prop_oneof![6 => 0usize..9, 2 => 0usize..3000, 1 => 0usize..100_000]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => bytes().prop_map(Step::Copy),
        4 => bytes().prop_map(Step::Hold),
        1 => bytes().prop_map(Step::Pass),
        3 => (0u64..12).prop_map(Step::Acknowledge),
        1 => (0u64..200_000).prop_map(Step::Acknowledge),
        1 => Just(Step::Acknowledge(u64::MAX)),
        2 => (0usize..2, any::<u8>()).prop_map(|(cursor, share)| Step::Seek(cursor, share)),
        4 => (0usize..2, bytes()).prop_map(|(cursor, bytes)| Step::Advance(cursor, bytes)),
        3 => (0usize..2, bytes(), 1usize..6).prop_map(|(cursor, bytes, slices)| Step::Slices(cursor, bytes, slices)),
        1 => Just(Step::Shrink),
    ]
}

/// All bytes that there ever were, and where the log begins.
#[derive(Default)]
struct Beside {
    log: Log<Vec<u8>>,
    all: Vec<u8>,
    start: usize,
    cursors: [Cursor; 2],
}

impl Beside {
    fn fresh(&mut self, bytes: usize) -> Vec<u8> {
        let first = self.all.len();
        let fresh: Vec<u8> = (first..first + bytes)
            .map(|place| (place * 31 + place / 251) as u8)
            .collect();
        self.all.extend_from_slice(&fresh);
        fresh
    }

    fn place(&self, cursor: usize) -> usize {
        self.cursors[cursor].position().0 as usize
    }

    fn step(&mut self, step: Step) -> Result<(), TestCaseError> {
        match step {
            Step::Copy(bytes) => {
                let fresh = self.fresh(bytes);
                self.log.copy(&fresh);
            }
            Step::Hold(bytes) => {
                let fresh = self.fresh(bytes);
                self.log.hold(fresh);
            }
            Step::Pass(bytes) => {
                if self.log.is_empty() {
                    self.fresh(bytes);
                    self.log.pass(bytes);
                    self.start = self.all.len();
                }
            }
            Step::Acknowledge(bytes) => {
                let position = (self.start as u64).saturating_add(bytes);
                self.log.acknowledge(Position(position));
                self.start = usize::try_from(position).unwrap_or(usize::MAX).min(self.all.len());
            }
            Step::Seek(cursor, share) => {
                let place = self.start + (self.all.len() - self.start) * usize::from(share) / 255;
                let found = self.log.seek(Position(place as u64));
                prop_assert!(found.is_some());
                self.cursors[cursor] = found.unwrap_or_default();
                prop_assert_eq!(self.place(cursor), place);
            }
            Step::Advance(cursor, bytes) => {
                let before = self.place(cursor);
                self.log.advance(&mut self.cursors[cursor], bytes);
                prop_assert_eq!(self.place(cursor), (before + bytes).min(self.all.len()));
            }
            Step::Slices(cursor, bytes, slices) => self.slices(cursor, bytes, slices)?,
            Step::Shrink => self.log.shrink(),
        }
        // A cursor is only good within the log.
        for cursor in 0..2 {
            if self.place(cursor) < self.start {
                self.cursors[cursor] = self.log.seek(self.log.start()).unwrap_or_default();
            }
        }
        self.check()
    }

    fn slices(&self, cursor: usize, bytes: usize, slices: usize) -> Result<(), TestCaseError> {
        let mut taken = Vec::new();
        let mut left = slices;
        let given = self.log.slices(&self.cursors[cursor], bytes, |slice| {
            taken.extend_from_slice(slice);
            left -= 1;
            left > 0
        });
        let place = self.place(cursor);
        prop_assert_eq!(given, taken.len());
        prop_assert_eq!(&taken[..], &self.all[place..place + taken.len()]);
        prop_assert!(taken.len() == bytes.min(self.all.len() - place) || left == 0);
        Ok(())
    }

    fn check(&self) -> Result<(), TestCaseError> {
        prop_assert_eq!(self.log.start(), Position(self.start as u64));
        prop_assert_eq!(self.log.end(), Position(self.all.len() as u64));
        prop_assert_eq!(self.log.is_empty(), self.start == self.all.len());
        if self.start > 0 {
            prop_assert!(self.log.seek(Position(self.start as u64 - 1)).is_none());
        }
        prop_assert!(self.log.seek(Position(self.all.len() as u64 + 1)).is_none());
        if self.log.is_empty() {
            prop_assert!(self.log.allocated_bytes() <= 16 * 1024, "an empty log keeps little");
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn a_log_is_the_bytes_that_are_not_acknowledged(steps in vec(step(), 0..120)) {
        let mut beside = Beside::default();
        for step in steps {
            beside.step(step)?;
        }
        let all = beside.log.seek(beside.log.start()).unwrap_or_default();
        beside.cursors[0] = all;
        beside.slices(0, usize::MAX, usize::MAX)?;
        beside.log.acknowledge(beside.log.end());
        beside.log.shrink();
        prop_assert_eq!(beside.log.allocated_bytes(), 0);
    }
}

/// Copies of a window that was large, of a link that goes on sending: it is never empty.
#[test]
fn a_log_that_was_large_gives_memory_back_while_it_is_in_use() {
    const MIB: usize = 1 << 20;
    let mut log: Log<Vec<u8>> = Log::default();
    let packet = [7; 1000];
    while log.end() - log.start() < 32 * MIB {
        log.copy(&packet);
    }
    while log.allocated_bytes() > 2 * MIB {
        assert!(log.end().0 < 64 << 20, "{} are allocated", log.allocated_bytes());
        log.copy(&packet);
        log.acknowledge(log.start() + 2 * packet.len().min(log.end() - log.start()));
    }
    let mut left = 0;
    log.slices(&log.seek(log.start()).expect("it is there"), usize::MAX, |slice| {
        left += slice.len();
        slice.iter().all(|&byte| byte == 7)
    });
    assert_eq!(left, log.end() - log.start());
}
