//! A library for LD_PRELOAD: the devices of the process are others than they say, or other ones than they are.
//!
//! * LYING_DEVICE names a lie (see [`Lie`]): the devices do not do what they say. For tests of the self-test of queue
//!   pairs, which a device of the kernel passes.
//! * DEVICE_PROFILE has the words of a profile (see [`profile::Profile`]): the devices grant, refuse and leave out what
//!   devices of that kind do. `inet_rdma_providers` has the words for each provider.
//!
//! Without both the devices are as they are. librdmacm opens devices by `ibv_open_device`, which this library replaces:
//! it puts functions of its own into the context of each device.

#[path = "lying_device/calls.rs"]
mod calls;
#[path = "lying_device/cm_events.rs"]
mod cm_events;
#[path = "lying_device/gone.rs"]
mod gone;
#[path = "lying_device/late.rs"]
mod late;
#[path = "lying_device/profile.rs"]
mod profile;
#[path = "lying_device/pump.rs"]
mod pump;

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{OnceLock, RwLock};

use rdma_sys::{
    ibv_context, ibv_cq, ibv_device, ibv_mw, ibv_mw_type, ibv_pd, ibv_qp, ibv_recv_wr, ibv_send_flags, ibv_send_wr,
    ibv_sge, ibv_wc, ibv_wr_opcode,
};

use calls::original;
use profile::{Inline, Profile, Windows, profile_of};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lie {
    /// The flag of inline bytes is ignored: the device reads them from memory without a key.
    InlineIgnored,
    /// Other bytes are sent in place of inline bytes.
    InlineReplaced,
    /// Requests with more than 64 inline bytes are refused, whatever was granted.
    InlineRefused,
    /// Of the places of a request the first alone is sent.
    SecondPlaceLost,
    /// Requests with two places are refused.
    SecondPlaceRefused,
    /// Each immediate is 0.
    ImmediatesZero,
    /// A write with an immediate is a write without one.
    ImmediatesMissing,
    /// Binds are refused.
    WindowsRefused,
    /// Binds are said to be done, and are not.
    WindowsUnbound,
    /// Invalidations are said to be done, and are not.
    WindowsStay,
    /// A write brings other bytes.
    WritesChanged,
    /// There is never memory for a send that is not inline.
    SendsRefused,
    /// Reads are refused.
    ReadsRefused,
    /// Reads are taken, and never complete.
    ReadsDropped,
    /// Reads ask the peer for what it has not allowed, so its device ends the connection.
    ReadsForbidden,
}

fn lie() -> Option<Lie> {
    static LIE: OnceLock<Option<Lie>> = OnceLock::new();
    *LIE.get_or_init(|| {
        let lie = match std::env::var("LYING_DEVICE").ok()?.as_str() {
            "inline_ignored" => Lie::InlineIgnored,
            "inline_replaced" => Lie::InlineReplaced,
            "inline_refused" => Lie::InlineRefused,
            "second_place_lost" => Lie::SecondPlaceLost,
            "second_place_refused" => Lie::SecondPlaceRefused,
            "immediates_zero" => Lie::ImmediatesZero,
            "immediates_missing" => Lie::ImmediatesMissing,
            "windows_refused" => Lie::WindowsRefused,
            "windows_unbound" => Lie::WindowsUnbound,
            "windows_stay" => Lie::WindowsStay,
            "writes_changed" => Lie::WritesChanged,
            "sends_refused" => Lie::SendsRefused,
            "reads_refused" => Lie::ReadsRefused,
            "reads_dropped" => Lie::ReadsDropped,
            "reads_forbidden" => Lie::ReadsForbidden,
            other => panic!("LYING_DEVICE={other}: no such lie"),
        };
        Some(lie)
    })
}

type Open = unsafe extern "C" fn(*mut ibv_device) -> *mut ibv_context;
type PostSend = unsafe extern "C" fn(*mut ibv_qp, *mut ibv_send_wr, *mut *mut ibv_send_wr) -> c_int;
type PostReceive = unsafe extern "C" fn(*mut ibv_qp, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int;
type RequestEvent = unsafe extern "C" fn(*mut ibv_cq, c_int) -> c_int;
type PollCq = unsafe extern "C" fn(*mut ibv_cq, c_int, *mut ibv_wc) -> c_int;
type AllocMw = unsafe extern "C" fn(*mut ibv_pd, ibv_mw_type::Type) -> *mut ibv_mw;

/// The device's own functions.
#[derive(Clone, Copy)]
struct Own {
    post_send: PostSend,
    post_receive: PostReceive,
    request_event: RequestEvent,
    poll_cq: PollCq,
    alloc_mw: Option<AllocMw>,
}

/// By the addresses of open contexts.
static DEVICES: RwLock<BTreeMap<usize, Own>> = RwLock::new(BTreeMap::new());

fn own(context: *mut ibv_context) -> Own {
    let devices = DEVICES.read().expect("no panic");
    *devices.get(&(context as usize)).expect("a device was opened")
}

/// Replaces the function of libibverbs.
///
/// # Safety
///
/// As `ibv_open_device(3)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context {
    // SAFETY: the function has this type; the caller's contract.
    let context = unsafe { original::<Open>(c"ibv_open_device")(device) };
    if context.is_null() {
        return context;
    }
    // SAFETY: the context was just opened, and this function has the only pointer to it.
    let (ops, profile) = unsafe { (&mut (*context).ops, profile_of(context)) };
    if lie().is_some() || profile.is_some() {
        let own = Own {
            post_send: ops.post_send.replace(post_send).expect("the device sends"),
            post_receive: ops.post_recv.replace(post_receive).expect("the device receives"),
            request_event: ops.req_notify_cq.replace(request_event).expect("the device has events"),
            poll_cq: ops.poll_cq.replace(poll_cq).expect("the device completes"),
            alloc_mw: ops.alloc_mw.replace(alloc_mw),
        };
        DEVICES.write().expect("no panic").insert(context as usize, own);
    }
    if let Some(profile) = profile.filter(|profile| profile.fatal.is_some()) {
        // SAFETY: as above.
        unsafe { gone::watch(context, profile) };
    }
    context
}

/// # Safety
///
/// As `ibv_post_send(3)`.
unsafe extern "C" fn post_send(qp: *mut ibv_qp, request: *mut ibv_send_wr, refused: *mut *mut ibv_send_wr) -> c_int {
    // SAFETY: by the contract of `ibv_post_send` the request is valid and has `num_sge` places at `sg_list`. This
    // function changes its copies alone, and the function of the device is that of the device that `qp` is on.
    unsafe {
        let device = own((*qp).context).post_send;
        let profile = profile_of((*qp).context);
        let mut changed = std::ptr::read(request);
        assert!(changed.next.is_null(), "one request at a time");
        let mut places = [ibv_sge {
            addr: 0,
            length: 0,
            lkey: 0,
        }; 2];
        let count = changed.num_sge as usize;
        for (index, place) in places[..count].iter_mut().enumerate() {
            *place = *changed.sg_list.add(index);
        }
        changed.sg_list = places.as_mut_ptr();
        let bytes = places[..count].iter().map(|place| u64::from(place.length)).sum();
        if lie() == Some(Lie::ReadsDropped) && changed.opcode == ibv_wr_opcode::IBV_WR_RDMA_READ {
            return 0;
        }
        match falsify(&mut changed, &mut places).and_then(|()| limit(profile, &mut changed, bytes)) {
            Ok(()) => device(qp, &raw mut changed, refused),
            Err(errno) => {
                *refused = request;
                if profile.is_some_and(|profile| profile.negates_errors) {
                    -errno
                } else {
                    errno
                }
            }
        }
    }
}

/// Counts a call. True at each call whose number is a multiple of `each`.
fn is_turn(count: &AtomicU64, each: Option<u64>) -> bool {
    each.is_some_and(|each| count.fetch_add(1, Ordering::Relaxed) % each == each - 1)
}

/// Treats a request as the profile says. Err: the device refuses it.
fn limit(profile: Option<&Profile>, request: &mut ibv_send_wr, bytes: u64) -> Result<(), c_int> {
    static SENDS: AtomicU64 = AtomicU64::new(0);
    let Some(profile) = profile else { return Ok(()) };
    gone::come_to_request(profile, bytes);
    if let Some(errno) = gone::refusal(Some(profile)) {
        return Err(errno);
    }
    if is_turn(&SENDS, profile.sends) {
        return Err(libc::ENOMEM);
    }
    let is_of_windows = matches!(
        request.opcode,
        ibv_wr_opcode::IBV_WR_BIND_MW | ibv_wr_opcode::IBV_WR_LOCAL_INV
    );
    if is_of_windows && profile.windows != Windows::Here {
        return Err(libc::EINVAL);
    }
    if profile.max_sge.is_some_and(|most| request.num_sge > most as c_int) {
        return Err(libc::EINVAL);
    }
    if profile.inline == Inline::Ignored {
        request.send_flags &= !ibv_send_flags::IBV_SEND_INLINE.0;
    }
    Ok(())
}

/// # Safety
///
/// As `ibv_poll_cq(3)`.
unsafe extern "C" fn poll_cq(queue: *mut ibv_cq, most: c_int, to: *mut ibv_wc) -> c_int {
    // SAFETY: the caller's contract, and the function of the device that `queue` is on.
    unsafe {
        let context = (*queue).context;
        let profile = profile_of(context);
        if gone::is_gone(profile) {
            return -1;
        }
        let at_once = profile.and_then(|profile| profile.poll);
        let most = at_once.map_or(most, |poll| most.min(poll));
        late::poll(queue, most, to).unwrap_or_else(|| (own(context).poll_cq)(queue, most, to))
    }
}

/// # Safety
///
/// As `ibv_post_recv(3)`.
unsafe extern "C" fn post_receive(qp: *mut ibv_qp, first: *mut ibv_recv_wr, refused: *mut *mut ibv_recv_wr) -> c_int {
    static LISTS: AtomicU64 = AtomicU64::new(0);
    // SAFETY: the caller's contract: a list of requests, which may be changed until the call returns; and the function
    // of the device that `qp` is on.
    unsafe {
        let device = own((*qp).context).post_receive;
        let profile = profile_of((*qp).context);
        let sign = |errno: c_int| match profile {
            Some(profile) if profile.negates_errors => -errno,
            _ => errno,
        };
        if let Some(errno) = gone::refusal(profile) {
            *refused = first;
            return sign(errno);
        }
        if !is_turn(&LISTS, profile.and_then(|profile| profile.receives)) {
            return device(qp, first, refused);
        }
        let rest = std::mem::replace(&mut (*first).next, std::ptr::null_mut());
        let result = if rest.is_null() { 0 } else { device(qp, first, refused) };
        (*first).next = rest;
        if result == 0 {
            *refused = if rest.is_null() { first } else { rest };
            return sign(libc::ENOMEM);
        }
        result
    }
}

/// # Safety
///
/// As `ibv_req_notify_cq(3)`.
unsafe extern "C" fn request_event(queue: *mut ibv_cq, solicited_only: c_int) -> c_int {
    // SAFETY: the caller's contract, and the function of the device that `queue` is on.
    unsafe {
        let context = (*queue).context;
        if let Some(errno) = gone::refusal(profile_of(context)) {
            return errno;
        }
        late::arm(queue);
        (own(context).request_event)(queue, solicited_only)
    }
}

/// # Safety
///
/// As `ibv_alloc_mw(3)`.
unsafe extern "C" fn alloc_mw(pd: *mut ibv_pd, kind: ibv_mw_type::Type) -> *mut ibv_mw {
    // SAFETY: the caller's contract, and the function of the device that `pd` is on.
    let (device, profile) = unsafe { (own((*pd).context).alloc_mw, profile_of((*pd).context)) };
    let windows = profile.map(|profile| profile.windows).unwrap_or_default();
    match (device, windows) {
        // SAFETY: as above.
        (Some(alloc), Windows::Here | Windows::Unbindable) => unsafe { alloc(pd, kind) },
        _ => {
            // SAFETY: the place of this thread's errno.
            unsafe { *libc::__errno_location() = libc::EOPNOTSUPP };
            std::ptr::null_mut()
        }
    }
}

/// What bytes are replaced by.
static OTHER: [u8; 256] = [0xee; 256];

/// Changes a request as the lie says. Err: the device refuses it.
fn falsify(request: &mut ibv_send_wr, places: &mut [ibv_sge; 2]) -> Result<(), c_int> {
    let inline = ibv_send_flags::IBV_SEND_INLINE.0;
    let is_inline = request.send_flags & inline != 0;
    let is_write = matches!(
        request.opcode,
        ibv_wr_opcode::IBV_WR_RDMA_WRITE | ibv_wr_opcode::IBV_WR_RDMA_WRITE_WITH_IMM
    );
    match lie() {
        Some(Lie::InlineIgnored) => request.send_flags &= !inline,
        Some(Lie::InlineReplaced) if is_inline => places[0].addr = OTHER.as_ptr() as u64,
        Some(Lie::InlineRefused) if is_inline && places[0].length > 64 => return Err(libc::EINVAL),
        Some(Lie::SecondPlaceLost) => request.num_sge = request.num_sge.min(1),
        Some(Lie::SecondPlaceRefused) if request.num_sge > 1 => return Err(libc::EINVAL),
        Some(Lie::ImmediatesZero) if request.opcode == ibv_wr_opcode::IBV_WR_RDMA_WRITE_WITH_IMM => {
            request.imm_data_invalidated_rkey_union.imm_data = 0;
        }
        Some(Lie::ImmediatesMissing) if request.opcode == ibv_wr_opcode::IBV_WR_RDMA_WRITE_WITH_IMM => {
            request.opcode = ibv_wr_opcode::IBV_WR_RDMA_WRITE;
        }
        Some(Lie::WindowsRefused) if request.opcode == ibv_wr_opcode::IBV_WR_BIND_MW => return Err(libc::EOPNOTSUPP),
        Some(Lie::ReadsRefused) if request.opcode == ibv_wr_opcode::IBV_WR_RDMA_READ => return Err(libc::EOPNOTSUPP),
        Some(Lie::ReadsForbidden) if request.opcode == ibv_wr_opcode::IBV_WR_RDMA_READ => {
            places[0].length = 1;
            // SAFETY: with this opcode the union has these fields.
            unsafe { request.wr.rdma.rkey ^= 0xff };
        }
        Some(Lie::WindowsUnbound) if request.opcode == ibv_wr_opcode::IBV_WR_BIND_MW => do_nothing(request),
        Some(Lie::WindowsStay) if request.opcode == ibv_wr_opcode::IBV_WR_LOCAL_INV => do_nothing(request),
        Some(Lie::WritesChanged) if is_write && !is_inline => {
            if let Some(place) = places[..request.num_sge as usize].first() {
                // SAFETY: registered memory of the process that the request is to read.
                unsafe { std::ptr::write_bytes(place.addr as *mut u8, 0xee, place.length as usize) };
            }
        }
        Some(Lie::SendsRefused) if request.opcode == ibv_wr_opcode::IBV_WR_SEND && !is_inline => {
            return Err(libc::ENOMEM);
        }
        _ => {}
    }
    Ok(())
}

/// Makes it a write of no bytes, which completes in its turn, and of which the peer sees nothing.
fn do_nothing(request: &mut ibv_send_wr) {
    request.opcode = ibv_wr_opcode::IBV_WR_RDMA_WRITE;
    request.num_sge = 0;
    request.wr = rdma_sys::wr_t {
        rdma: rdma_sys::rdma_t {
            remote_addr: 0,
            rkey: 0,
        },
    };
}
