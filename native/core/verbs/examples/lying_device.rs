//! A library for LD_PRELOAD: the devices of the process do not do what they say. LYING_DEVICE names the lie (see
//! [`Lie`]); without it the devices are as they are. For tests of the self-test of queue pairs, which a device of the
//! kernel passes.
//!
//! librdmacm opens devices by `ibv_open_device`, which this library replaces: it puts a `post_send` of its own into the
//! context of each device.

use std::ffi::c_int;
use std::sync::OnceLock;

use rdma_sys::{ibv_context, ibv_device, ibv_qp, ibv_send_flags, ibv_send_wr, ibv_sge, ibv_wr_opcode};

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
}

fn lie() -> Option<Lie> {
    static LIE: OnceLock<Option<Lie>> = OnceLock::new();
    *LIE.get_or_init(|| {
        let lie = match std::env::var("LYING_DEVICE").ok()?.as_str() {
            "inline_ignored" => Lie::InlineIgnored,
            "inline_replaced" => Lie::InlineReplaced,
            "inline_refused" => Lie::InlineRefused,
            "second_place_lost" => Lie::SecondPlaceLost,
            "immediates_zero" => Lie::ImmediatesZero,
            "immediates_missing" => Lie::ImmediatesMissing,
            "windows_refused" => Lie::WindowsRefused,
            "windows_unbound" => Lie::WindowsUnbound,
            "windows_stay" => Lie::WindowsStay,
            "writes_changed" => Lie::WritesChanged,
            "sends_refused" => Lie::SendsRefused,
            other => panic!("LYING_DEVICE={other}: no such lie"),
        };
        Some(lie)
    })
}

type Open = unsafe extern "C" fn(*mut ibv_device) -> *mut ibv_context;
type PostSend = unsafe extern "C" fn(*mut ibv_qp, *mut ibv_send_wr, *mut *mut ibv_send_wr) -> c_int;

/// The `post_send` of the device. One for all devices of a process: the tests use one device each.
static POST_SEND: OnceLock<PostSend> = OnceLock::new();

/// Replaces the function of libibverbs.
///
/// # Safety
///
/// As `ibv_open_device(3)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context {
    // SAFETY: the caller is in a library that is linked with libibverbs, which is loaded. The function has this type.
    let context = unsafe {
        let library = libc::dlopen(c"libibverbs.so.1".as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD);
        let open = libc::dlsym(library, c"ibv_open_device".as_ptr());
        assert!(!open.is_null(), "libibverbs has ibv_open_device");
        std::mem::transmute::<*mut libc::c_void, Open>(open)(device)
    };
    if lie().is_some() && !context.is_null() {
        // SAFETY: the context was just opened, and this function has the only pointer to it.
        let ops = unsafe { &mut (*context).ops };
        let post_send = ops.post_send.replace(post_send);
        let _one = POST_SEND.get_or_init(|| post_send.expect("the device sends"));
    }
    context
}

/// # Safety
///
/// As `ibv_post_send(3)`.
unsafe extern "C" fn post_send(qp: *mut ibv_qp, request: *mut ibv_send_wr, refused: *mut *mut ibv_send_wr) -> c_int {
    let device = POST_SEND.get().expect("a device was opened");
    // SAFETY: by the contract of `ibv_post_send` the request is valid and has `num_sge` places at `sg_list`. This
    // function changes its copies alone, and `device` is the function of the device that `qp` is on.
    unsafe {
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
        match falsify(&mut changed, &mut places) {
            Ok(()) => device(qp, &raw mut changed, refused),
            Err(errno) => {
                *refused = request;
                errno
            }
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
        Some(Lie::ImmediatesZero) if request.opcode == ibv_wr_opcode::IBV_WR_RDMA_WRITE_WITH_IMM => {
            request.imm_data_invalidated_rkey_union.imm_data = 0;
        }
        Some(Lie::ImmediatesMissing) if request.opcode == ibv_wr_opcode::IBV_WR_RDMA_WRITE_WITH_IMM => {
            request.opcode = ibv_wr_opcode::IBV_WR_RDMA_WRITE;
        }
        Some(Lie::WindowsRefused) if request.opcode == ibv_wr_opcode::IBV_WR_BIND_MW => return Err(libc::EOPNOTSUPP),
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
