//! What a kind of device grants, refuses and leaves out, in words: DEVICE_PROFILE.

use std::ffi::{CStr, CString, c_int};
use std::sync::OnceLock;
use std::time::Duration;

use rdma_sys::ibv_context;

use crate::gone::Step;

/// Bytes that a queue pair sends inline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Inline {
    /// As the device below grants.
    #[default]
    Granted,
    /// `inline=refused:N`: a queue pair with more is refused.
    Refused(u32),
    /// `inline=fewer:N`: as many are granted, whatever was asked for.
    Fewer(u32),
    /// `inline=ignored`: all that is asked for is granted, and the flag of a request is not looked at.
    Ignored,
}

/// Memory windows of type 2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Windows {
    /// As the device below has them.
    #[default]
    Here,
    /// `windows=none`.
    None,
    /// `windows=claimed`: the flags say that there are some, and none can be allocated.
    Claimed,
    /// `windows=unbindable`: the flags say nothing, one can be allocated, and its bind is refused.
    Unbindable,
}

/// A device in place of the one below. What it does not name is as the device below has it.
#[derive(Debug, Default)]
pub(crate) struct Profile {
    /// `device=NAME`: how the names begin of the devices that have the profile; others are as they are.
    device: String,
    /// `driver=NAME`: the driver of the hardware, as /sys/class/infiniband/*/device/driver names it.
    pub(crate) driver: Option<CString>,
    /// `vendor=N`, in hexadecimal digits.
    pub(crate) vendor: Option<u32>,
    /// `rc=none`: there are no reliable connected queue pairs.
    pub(crate) has_no_rc: bool,
    pub(crate) inline: Inline,
    /// `max_sge=N`, of a request.
    pub(crate) max_sge: Option<u32>,
    /// `max_qp_wr=N`, of each queue.
    pub(crate) max_qp_wr: Option<u32>,
    /// `max_cqe=N`
    pub(crate) max_cqe: Option<u32>,
    pub(crate) windows: Windows,
    /// `modify_qp=whole`: attributes without a state end the queue pair.
    pub(crate) modifies_whole: bool,
    /// `query_qp=none`
    pub(crate) has_no_query: bool,
    /// `errors=negative`: a request is refused with the negative number of the error.
    pub(crate) negates_errors: bool,
    /// `poll=N`: completions that are handed over at once, at most.
    pub(crate) poll: Option<c_int>,
    /// `late=MS`: how long completions take to come, and the events of them.
    pub(crate) late: Option<Duration>,
    /// `failed=vague`: of a failed request nothing but what is valid is right, and the reason comes ten times as late.
    pub(crate) fails_vaguely: bool,
    /// `sends=N`: there is no memory for each Nth request.
    pub(crate) sends: Option<u64>,
    /// `receives=N`: of each Nth list of receives there is memory for the first alone, or for none.
    pub(crate) receives: Option<u64>,
    /// `modify=MS`: how long `ibv_modify_qp` takes.
    pub(crate) modify: Option<Duration>,
    /// `cm=late:MS`: how long each event of the connection manager takes.
    pub(crate) cm_late: Option<Duration>,
    /// `cm=twice`: each disconnect is reported twice.
    pub(crate) cm_twice: bool,
    /// `fatal=STEP:MS`: the device goes at this step, and is back after this time.
    pub(crate) fatal: Option<(Step, Duration)>,
}

impl Profile {
    /// Panics with a word that there is not: the test is wrong.
    fn parse(words: &str) -> Profile {
        let mut profile = Profile::default();
        for word in words.split(',').filter(|word| !word.is_empty()) {
            let (key, value) = word.split_once('=').unwrap_or((word, ""));
            let number = |text: &str| -> u32 { text.parse().unwrap_or_else(|_| panic!("DEVICE_PROFILE: {word}")) };
            let milliseconds = |text: &str| Duration::from_millis(number(text).into());
            match (key, value.split_once(':').unwrap_or((value, ""))) {
                ("device", (name, "")) => profile.device = name.to_owned(),
                ("driver", (name, "")) => profile.driver = CString::new(name).ok(),
                ("vendor", (digits, "")) => profile.vendor = u32::from_str_radix(digits, 16).ok(),
                ("rc", ("none", "")) => profile.has_no_rc = true,
                ("inline", ("refused", most)) => profile.inline = Inline::Refused(number(most)),
                ("inline", ("fewer", most)) => profile.inline = Inline::Fewer(number(most)),
                ("inline", ("ignored", "")) => profile.inline = Inline::Ignored,
                ("max_sge", (most, "")) => profile.max_sge = Some(number(most)),
                ("max_qp_wr", (most, "")) => profile.max_qp_wr = Some(number(most)),
                ("max_cqe", (most, "")) => profile.max_cqe = Some(number(most)),
                ("windows", ("none", "")) => profile.windows = Windows::None,
                ("windows", ("claimed", "")) => profile.windows = Windows::Claimed,
                ("windows", ("unbindable", "")) => profile.windows = Windows::Unbindable,
                ("modify_qp", ("whole", "")) => profile.modifies_whole = true,
                ("query_qp", ("none", "")) => profile.has_no_query = true,
                ("errors", ("negative", "")) => profile.negates_errors = true,
                ("poll", (most, "")) => profile.poll = Some(number(most) as c_int),
                ("late", (time, "")) => profile.late = Some(milliseconds(time)),
                ("failed", ("vague", "")) => profile.fails_vaguely = true,
                ("sends", (each, "")) => profile.sends = Some(number(each).into()),
                ("receives", (each, "")) => profile.receives = Some(number(each).into()),
                ("modify", (time, "")) => profile.modify = Some(milliseconds(time)),
                ("cm", ("late", time)) => profile.cm_late = Some(milliseconds(time)),
                ("cm", ("twice", "")) => profile.cm_twice = true,
                ("fatal", (step, time)) => {
                    let step = Step::named(step).unwrap_or_else(|| panic!("DEVICE_PROFILE: {word}"));
                    profile.fatal = Some((step, milliseconds(time)));
                }
                _ => panic!("DEVICE_PROFILE: there is no {word}"),
            }
        }
        profile
    }
}

/// The profile of this process; None: all devices are as they are.
pub(crate) fn any_profile() -> Option<&'static Profile> {
    static PROFILE: OnceLock<Option<Profile>> = OnceLock::new();
    let words = || std::env::var("DEVICE_PROFILE").ok();
    PROFILE.get_or_init(|| Some(Profile::parse(&words()?))).as_ref()
}

/// The profile of the device of this name; None: it is as it is.
pub(crate) fn profile_of_name(device: &[u8]) -> Option<&'static Profile> {
    any_profile().filter(|profile| device.starts_with(profile.device.as_bytes()))
}

/// The profile of an open device; None: it is as it is.
///
/// # Safety
///
/// An open context.
pub(crate) unsafe fn profile_of(context: *mut ibv_context) -> Option<&'static Profile> {
    // SAFETY: the caller's contract; libibverbs ends the name with a zero.
    let name = unsafe { CStr::from_ptr((*(*context).device).name.as_ptr()) };
    profile_of_name(name.to_bytes())
}
