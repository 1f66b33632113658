//! The functions that replace those of libibverbs and of the C library, where a profile says something else.
//!
//! librdmacm and the device's provider call libibverbs through the process's global scope, so a library that is
//! preloaded has their calls. A caller that has opened libibverbs by itself is reached through the provider.

use std::ffi::{CStr, CString, c_char, c_int, c_void};

use rdma_sys::{
    ibv_comp_channel, ibv_context, ibv_cq, ibv_device_attr, ibv_device_cap_flags, ibv_pd, ibv_qp, ibv_qp_attr,
    ibv_qp_attr_mask, ibv_qp_init_attr, ibv_qp_state, ibv_qp_type,
};

use crate::gone::{self, Step};
use crate::late;
use crate::profile::{Inline, Windows, profile_of, profile_of_name};

/// The function of libibverbs with this name.
///
/// # Safety
///
/// `T` is its type, a function pointer.
pub(crate) unsafe fn original<T: Copy>(name: &CStr) -> T {
    // SAFETY: the callers of the functions here are linked with libibverbs, which is loaded.
    let found = unsafe {
        let library = libc::dlopen(c"libibverbs.so.1".as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD);
        libc::dlsym(library, name.as_ptr())
    };
    assert!(!found.is_null(), "libibverbs has {name:?}");
    // SAFETY: the caller's contract; a function pointer has the size of a pointer.
    unsafe { std::mem::transmute_copy::<*mut c_void, T>(&found) }
}

fn set_errno(errno: c_int) {
    // SAFETY: the place of this thread's errno.
    unsafe { *libc::__errno_location() = errno };
}

type CreateQp = unsafe extern "C" fn(*mut ibv_pd, *mut ibv_qp_init_attr) -> *mut ibv_qp;

/// Replaces the function of libibverbs.
///
/// # Safety
///
/// As `ibv_create_qp(3)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_create_qp(pd: *mut ibv_pd, attributes: *mut ibv_qp_init_attr) -> *mut ibv_qp {
    // SAFETY: the function has this type; the caller's contract: the device of `pd` is open.
    let (create, profile): (CreateQp, _) = unsafe { (original(c"ibv_create_qp"), profile_of((*pd).context)) };
    let Some(profile) = profile else {
        // SAFETY: the caller's contract.
        return unsafe { create(pd, attributes) };
    };
    // SAFETY: the caller's contract: one struct, which nothing else uses now.
    let attributes = unsafe { &mut *attributes };
    if gone::refusal(Some(profile)).is_some() {
        return std::ptr::null_mut();
    }
    gone::come(profile, Step::QueuePair);
    let is_above = |limit: Option<u32>, asked: u32| limit.is_some_and(|most| asked > most);
    let cap = &mut attributes.cap;
    let inline = cap.max_inline_data;
    let refused = if profile.has_no_rc && attributes.qp_type == ibv_qp_type::IBV_QPT_RC {
        Some(libc::EOPNOTSUPP)
    } else if is_above(profile.max_sge, cap.max_send_sge.max(cap.max_recv_sge))
        || is_above(profile.max_qp_wr, cap.max_send_wr.max(cap.max_recv_wr))
        || matches!(profile.inline, Inline::Refused(most) if inline > most)
    {
        Some(libc::EINVAL)
    } else {
        None
    };
    if let Some(errno) = refused {
        set_errno(errno);
        return std::ptr::null_mut();
    }
    if let Inline::Fewer(most) = profile.inline {
        cap.max_inline_data = inline.min(most);
    }
    // SAFETY: the caller's contract.
    let qp = unsafe { gone::with_kernel_events((*pd).context, || create(pd, attributes)) };
    match profile.inline {
        Inline::Fewer(most) => attributes.cap.max_inline_data = most,
        Inline::Ignored => attributes.cap.max_inline_data = inline,
        Inline::Granted | Inline::Refused(_) => {}
    }
    qp
}

type QueryDevice = unsafe extern "C" fn(
    *mut ibv_context,
    *const c_void,
    *mut ibv_device_attr,
    usize,
    *mut c_void,
    *mut usize,
) -> c_int;

/// Replaces the function that providers call. The attributes begin with those of `ibv_query_device(3)`.
///
/// # Safety
///
/// As libibverbs wants it of its providers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_cmd_query_device_any(
    context: *mut ibv_context,
    input: *const c_void,
    attributes: *mut ibv_device_attr,
    bytes: usize,
    response: *mut c_void,
    response_bytes: *mut usize,
) -> c_int {
    // SAFETY: the function has this type; the caller's contract.
    let (result, attributes, profile) = unsafe {
        let profile = profile_of(context);
        if let Some(profile) = profile {
            gone::come(profile, Step::Limits);
        }
        if let Some(errno) = gone::refusal(profile) {
            return errno;
        }
        let query: QueryDevice = original(c"ibv_cmd_query_device_any");
        let result = query(context, input, attributes, bytes, response, response_bytes);
        (result, &mut *attributes, profile)
    };
    let Some(profile) = profile.filter(|_| result == 0) else {
        return result;
    };
    let lower = |value: &mut c_int, limit: Option<u32>| {
        if let Some(most) = limit {
            *value = (*value).min(most as c_int);
        }
    };
    lower(&mut attributes.max_sge, profile.max_sge);
    lower(&mut attributes.max_qp_wr, profile.max_qp_wr);
    lower(&mut attributes.max_cqe, profile.max_cqe);
    if let Some(vendor) = profile.vendor {
        attributes.vendor_id = vendor;
    }
    let windows =
        ibv_device_cap_flags::IBV_DEVICE_MEM_WINDOW_TYPE_2A.0 | ibv_device_cap_flags::IBV_DEVICE_MEM_WINDOW_TYPE_2B.0;
    match profile.windows {
        Windows::Here => {}
        Windows::None | Windows::Unbindable => attributes.device_cap_flags &= !windows,
        Windows::Claimed => {
            attributes.device_cap_flags |= ibv_device_cap_flags::IBV_DEVICE_MEM_WINDOW_TYPE_2B.0;
        }
    }
    result
}

type CreateCq = unsafe extern "C" fn(
    *mut ibv_context,
    c_int,
    *mut ibv_comp_channel,
    c_int,
    *mut ibv_cq,
    *mut c_void,
    usize,
    *mut c_void,
    usize,
) -> c_int;

/// Replaces the function that providers call.
///
/// # Safety
///
/// As libibverbs wants it of its providers.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments, reason = "the function of libibverbs has as many")]
pub unsafe extern "C" fn ibv_cmd_create_cq(
    context: *mut ibv_context,
    entries: c_int,
    channel: *mut ibv_comp_channel,
    vector: c_int,
    queue: *mut ibv_cq,
    command: *mut c_void,
    command_bytes: usize,
    response: *mut c_void,
    response_bytes: usize,
) -> c_int {
    // SAFETY: the caller's contract: the context is open.
    let profile = unsafe { profile_of(context) };
    if let Some(errno) = gone::refusal(profile) {
        return errno;
    }
    let limit = profile.and_then(|profile| profile.max_cqe);
    if limit.is_some_and(|most| entries > most as c_int) {
        return libc::EINVAL;
    }
    // SAFETY: the function has this type; the caller's contract. The kernel is given its own descriptor of the channel,
    // in whose place there is a pipe.
    unsafe {
        let create: CreateCq = original(c"ibv_cmd_create_cq");
        let late = profile.filter(|profile| profile.late.is_some() && !channel.is_null());
        let number = late.map(|profile| {
            let kernel = late::kernel_channel(channel);
            (profile, std::mem::replace(&mut (*channel).fd, kernel))
        });
        let result = gone::with_kernel_events(context, || {
            create(
                context,
                entries,
                channel,
                vector,
                queue,
                command,
                command_bytes,
                response,
                response_bytes,
            )
        });
        if let Some((profile, number)) = number {
            (*channel).fd = number;
            if result == 0 {
                late::enter(queue, number, profile);
            }
        }
        result
    }
}

type DestroyCq = unsafe extern "C" fn(*mut ibv_cq) -> c_int;

/// Replaces the function that providers call.
///
/// # Safety
///
/// As libibverbs wants it of its providers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_cmd_destroy_cq(queue: *mut ibv_cq) -> c_int {
    // SAFETY: the function has this type; the caller's contract.
    unsafe {
        let destroy: DestroyCq = original(c"ibv_cmd_destroy_cq");
        late::leave(queue, || destroy(queue))
    }
}

type AllocPd = unsafe extern "C" fn(*mut ibv_context, *mut ibv_pd, *mut c_void, usize, *mut c_void, usize) -> c_int;

/// Replaces the function that providers call.
///
/// # Safety
///
/// As libibverbs wants it of its providers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_cmd_alloc_pd(
    context: *mut ibv_context,
    pd: *mut ibv_pd,
    command: *mut c_void,
    command_bytes: usize,
    response: *mut c_void,
    response_bytes: usize,
) -> c_int {
    // SAFETY: the function has this type; the caller's contract.
    unsafe {
        if let Some(errno) = gone::refusal(profile_of(context)) {
            return errno;
        }
        let alloc: AllocPd = original(c"ibv_cmd_alloc_pd");
        alloc(context, pd, command, command_bytes, response, response_bytes)
    }
}

type ModifyQp = unsafe extern "C" fn(*mut ibv_qp, *mut ibv_qp_attr, c_int, *mut c_void, usize) -> c_int;

/// Replaces the function that providers call.
///
/// # Safety
///
/// As libibverbs wants it of its providers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_cmd_modify_qp(
    qp: *mut ibv_qp,
    attributes: *mut ibv_qp_attr,
    mask: c_int,
    command: *mut c_void,
    bytes: usize,
) -> c_int {
    let state = ibv_qp_attr_mask::IBV_QP_STATE.0 as c_int;
    // SAFETY: the function has this type; the caller's contract. The copy of the attributes has all that a change to
    // the error state reads.
    unsafe {
        let modify: ModifyQp = original(c"ibv_cmd_modify_qp");
        let profile = profile_of((*qp).context);
        if let Some(errno) = gone::refusal(profile) {
            return errno;
        }
        if let Some(time) = profile.and_then(|profile| profile.modify) {
            std::thread::sleep(time);
        }
        let ends = profile.is_some_and(|profile| profile.modifies_whole) && mask & state == 0;
        if !ends {
            return modify(qp, attributes, mask, command, bytes);
        }
        let mut changed = std::ptr::read(attributes);
        changed.qp_state = ibv_qp_state::IBV_QPS_ERR;
        modify(qp, &raw mut changed, state, command, bytes)
    }
}

type QueryQp =
    unsafe extern "C" fn(*mut ibv_qp, *mut ibv_qp_attr, c_int, *mut ibv_qp_init_attr, *mut c_void, usize) -> c_int;

/// Replaces the function that providers call.
///
/// # Safety
///
/// As libibverbs wants it of its providers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_cmd_query_qp(
    qp: *mut ibv_qp,
    attributes: *mut ibv_qp_attr,
    mask: c_int,
    initial: *mut ibv_qp_init_attr,
    command: *mut c_void,
    bytes: usize,
) -> c_int {
    // SAFETY: the function has this type; the caller's contract.
    unsafe {
        let profile = profile_of((*qp).context);
        if let Some(errno) = gone::refusal(profile) {
            return errno;
        }
        if profile.is_some_and(|profile| profile.has_no_query) {
            return libc::EOPNOTSUPP;
        }
        let query: QueryQp = original(c"ibv_cmd_query_qp");
        query(qp, attributes, mask, initial, command, bytes)
    }
}

/// Replaces the function of the C library: the link that names the driver of a device leads to the profile's.
///
/// # Safety
///
/// As `readlink(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn readlink(path: *const c_char, buffer: *mut c_char, bytes: usize) -> isize {
    // SAFETY: the caller's contract: a C string, and a buffer of this size.
    unsafe {
        let driver = driver_named_by(CStr::from_ptr(path).to_bytes());
        if let Some(driver) = driver {
            let target = [b"../../../bus/pci/drivers/", driver.as_bytes()].concat();
            let count = target.len().min(bytes);
            std::ptr::copy_nonoverlapping(target.as_ptr().cast(), buffer, count);
            return count as isize;
        }
        libc::syscall(libc::SYS_readlinkat, libc::AT_FDCWD, path, buffer, bytes) as isize
    }
}

/// The driver to which this link leads under a profile.
fn driver_named_by(path: &[u8]) -> Option<&'static CString> {
    let device = path
        .strip_prefix(b"/sys/class/infiniband/")?
        .strip_suffix(b"/device/driver")?;
    profile_of_name(device)?.driver.as_ref()
}
