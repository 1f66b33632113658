//! What this process has found out about each device, beyond the limits that the device tells: by a question once per
//! device name, and by the self-test of each connection ([`crate::trial`]). A device that goes and comes back is the
//! same one.

use std::collections::BTreeMap;

use inet_rdma_fabric::Tried;
use inet_rdma_verbs::VerbsError;
use inet_rdma_verbs::device::{Device, DeviceLimits};
use inet_rdma_verbs::pd::ProtectionDomain;
use inet_rdma_verbs::window::MemoryWindow;
use parking_lot::Mutex;

/// What a device does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Traits {
    /// Its flags say windows of type 2, and one could be allocated. bnxt_re has the flag of type 2B, and neither its
    /// provider nor its driver allocates a window for a process.
    pub(crate) has_windows: bool,
    /// `ibv_modify_qp(3)` may set the RNR timer alone, without a state. mana passes all to the firmware, with RESET as
    /// the state, and only the mask says that the state is not meant.
    pub(crate) takes_rnr_timer: bool,
    /// Inline bytes go along with their work request. mana grants as many as are asked for, and its provider does not
    /// look at `IBV_SEND_INLINE`: the device would read them from this process's memory, without a key.
    pub(crate) sends_inline: bool,
    /// One work request takes bytes of two places.
    pub(crate) gathers: bool,
    /// A read of no bytes completes when the peer's device has answered it.
    pub(crate) reads: bool,
}

static KNOWN: Mutex<Known> = Mutex::new(Known::new());

/// The traits of a device with these limits, on which `pd` is.
pub(crate) fn traits(device: Device<'_>, limits: &DeviceLimits, pd: &ProtectionDomain) -> Traits {
    let try_window = || MemoryWindow::try_allocation(pd).map_err(|failed: VerbsError| failed.errno());
    let known = KNOWN
        .lock()
        .traits(device.name(), limits.windows, try_window, || device.driver());
    Traits {
        gathers: known.gathers && limits.sges >= 2,
        ..known
    }
}

/// The device of this name has failed this in a self-test: later connections do without.
pub(crate) fn switch_off(device: &str, tried: Tried) {
    KNOWN.lock().switch_off(device.to_owned(), tried);
}

/// A read of the self-test was under way on the device of this name when the connection ended: the next connection does
/// without. True: that came to pass [`DOUBTS`] times without a read that was answered, and the device has failed reads.
pub(crate) fn doubt_reads(device: &str) -> bool {
    KNOWN.lock().doubt_reads(device)
}

/// A self-test on the device of this name has passed. `has_read`: a read was answered in it.
pub(crate) fn passed(device: &str, has_read: bool) {
    KNOWN.lock().passed(device, has_read);
}

/// What connections on the device of this name do without, though devices of its kind have it: it has failed a
/// self-test, or its driver is known not to do it.
pub(crate) fn without(device: &str) -> Vec<Tried> {
    KNOWN.lock().without(device)
}

/// A peer may be gone once at that moment.
const DOUBTS: u32 = 2;

/// Whether a device fails reads, after connections that ended while one was under way.
#[derive(Debug, Default)]
struct Doubt {
    times: u32,
    /// The next connection does without.
    goes_without: bool,
}

struct Known {
    traits: BTreeMap<String, Traits>,
    failed: BTreeMap<String, Vec<Tried>>,
    doubts: BTreeMap<String, Doubt>,
}

impl Known {
    const fn new() -> Known {
        Known {
            traits: BTreeMap::new(),
            failed: BTreeMap::new(),
            doubts: BTreeMap::new(),
        }
    }

    fn doubt_reads(&mut self, name: &str) -> bool {
        let doubt = self.doubts.entry(name.to_owned()).or_default();
        doubt.times += 1;
        doubt.goes_without = true;
        doubt.times >= DOUBTS
    }

    fn passed(&mut self, name: &str, has_read: bool) {
        if has_read {
            self.doubts.remove(name);
        } else if let Some(doubt) = self.doubts.get_mut(name) {
            doubt.goes_without = false;
        }
    }

    fn switch_off(&mut self, name: String, tried: Tried) {
        let failed = self.failed.entry(name).or_default();
        if !failed.contains(&tried) {
            failed.push(tried);
        }
    }

    fn without(&self, name: &str) -> Vec<Tried> {
        let mut without = self.failed.get(name).cloned().unwrap_or_default();
        if self.traits.get(name).is_some_and(|traits| !traits.sends_inline) {
            without.push(Tried::Inline);
        }
        without.sort_unstable();
        without.dedup();
        without
    }

    fn traits(
        &mut self,
        name: String,
        says_windows: bool,
        try_window: impl FnOnce() -> Result<(), i32>,
        driver: impl FnOnce() -> Option<String>,
    ) -> Traits {
        let failed = self.failed.get(&name).cloned().unwrap_or_default();
        let doubts_reads = self.doubts.get(&name).is_some_and(|doubt| doubt.goes_without);
        let claimed = self.claimed(name, says_windows, try_window, driver);
        Traits {
            has_windows: claimed.has_windows && !failed.contains(&Tried::Windows),
            sends_inline: claimed.sends_inline && !failed.contains(&Tried::Inline),
            gathers: claimed.gathers && !failed.contains(&Tried::Gather),
            reads: claimed.reads && !failed.contains(&Tried::Reads) && !doubts_reads,
            ..claimed
        }
    }

    fn claimed(
        &mut self,
        name: String,
        says_windows: bool,
        try_window: impl FnOnce() -> Result<(), i32>,
        driver: impl FnOnce() -> Option<String>,
    ) -> Traits {
        if let Some(&known) = self.traits.get(&name) {
            return known;
        }
        let tried = if says_windows {
            try_window()
        } else {
            Err(libc::EOPNOTSUPP)
        };
        let is_mana = driver().is_some_and(|driver| is_mana(&driver));
        let traits = Traits {
            has_windows: tried.is_ok(),
            takes_rnr_timer: !is_mana,
            sends_inline: !is_mana,
            gathers: true,
            reads: true,
        };
        // A device whose windows are used up has some again later.
        if tried != Err(libc::ENOMEM) {
            self.traits.insert(name, traits);
        }
        traits
    }
}

/// The driver of a function without a PCI address of its own is MODULE.PART.
fn is_mana(driver: &str) -> bool {
    driver.split('.').next() == Some("mana")
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn known() -> Known {
        Known::new()
    }

    fn no_driver() -> Option<String> {
        None
    }

    #[test]
    fn a_device_has_windows_if_one_can_be_allocated() {
        let has_windows = |says, tried| known().traits("a".to_owned(), says, || tried, no_driver).has_windows;
        assert!(has_windows(true, Ok(())));
        assert!(!has_windows(true, Err(libc::EOPNOTSUPP)), "the flag alone");
        assert!(!has_windows(false, Ok(())), "without the flag");
    }

    #[test]
    fn windows_are_tried_once_per_device() {
        for answer in [Ok(()), Err(libc::EOPNOTSUPP), Err(libc::EINVAL), Err(0)] {
            let (mut known, tries) = (known(), Cell::new(0));
            let mut ask = |name: &str| {
                let try_window = || {
                    tries.set(tries.get() + 1);
                    answer
                };
                known.traits(name.to_owned(), true, try_window, no_driver).has_windows
            };
            assert_eq!([ask("a"), ask("a"), ask("b")], [answer.is_ok(); 3]);
            assert_eq!(tries.get(), 2);
        }
    }

    #[test]
    fn a_device_whose_windows_are_used_up_is_asked_again() {
        let mut known = known();
        let mut ask = |answer| known.traits("a".to_owned(), true, || answer, no_driver).has_windows;
        assert!(!ask(Err(libc::ENOMEM)));
        assert!(ask(Ok(())));
        assert!(ask(Err(libc::EOPNOTSUPP)), "remembered");
    }

    #[test]
    fn what_failed_is_switched_off_for_that_device_alone() {
        let mut known = known();
        known.switch_off("a".to_owned(), Tried::Windows);
        known.switch_off("a".to_owned(), Tried::Gather);
        let mut found = |name: &str| {
            let traits = known.traits(name.to_owned(), true, || Ok(()), no_driver);
            (traits.has_windows, traits.sends_inline, traits.gathers)
        };
        assert_eq!(
            [found("a"), found("b"), found("a")],
            [(false, true, false), (true, true, true), (false, true, false)]
        );
        known.switch_off("a".to_owned(), Tried::Inline);
        known.switch_off("a".to_owned(), Tried::Reads);
        let traits = known.traits("a".to_owned(), true, || Ok(()), no_driver);
        assert!(!traits.sends_inline && !traits.reads);
        assert_eq!(
            known.without("a"),
            [Tried::Inline, Tried::Gather, Tried::Windows, Tried::Reads]
        );
        assert_eq!(known.without("b"), []);
    }

    #[test]
    fn reads_in_doubt_are_left_out_once_and_fail_at_the_next_doubt() {
        let mut known = known();
        let reads = |known: &mut Known| {
            let try_window = || Ok(());
            known.traits("a".to_owned(), true, try_window, no_driver).reads
        };
        assert!(!known.doubt_reads("a"));
        assert!(!reads(&mut known) && !reads(&mut known), "until a self-test passes");
        known.passed("a", false);
        assert!(reads(&mut known));
        assert!(known.doubt_reads("a"));
        known.passed("a", true);
        assert!(reads(&mut known) && !known.doubt_reads("a"), "an answer ends the doubt");
        known.passed("b", false);
        assert_eq!(known.without("a"), []);
    }

    #[test]
    fn nothing_is_sent_inline_on_mana_and_the_timer_is_left_alone() {
        let traits = |driver: Option<&str>| {
            let driver = || driver.map(str::to_owned);
            let mut known = known();
            let traits = known.traits("a".to_owned(), false, || Ok(()), driver);
            assert_eq!(known.without("a").is_empty(), traits.sends_inline);
            assert_eq!(traits.takes_rnr_timer, traits.sends_inline);
            traits.sends_inline
        };
        assert!(traits(Some("mlx5_core")) && traits(Some("manager")) && traits(None));
        assert!(!traits(Some("mana")) && !traits(Some("mana.rdma")));
    }
}
