//! Options of the kernel's sockets.

use std::os::fd::{AsRawFd, BorrowedFd};

/// An integer that is the value of a socket option.
pub trait Integer: Copy + Default {}
impl Integer for i32 {}
impl Integer for u64 {}

/// The value of a socket option that is an integer of this size.
pub fn option<T: Integer>(socket: BorrowedFd<'_>, level: i32, name: i32) -> Option<T> {
    // SAFETY: integers have no invalid value.
    unsafe { get(socket, level, name, T::default()) }
}

/// The value of a socket option, of which the kernel may leave the last bytes as they are in `value`.
///
/// # Safety
/// Any bytes must be a valid `T`.
pub unsafe fn get<T>(socket: BorrowedFd<'_>, level: i32, name: i32, mut value: T) -> Option<T> {
    let mut bytes = libc::socklen_t::try_from(size_of::<T>()).ok()?;
    // SAFETY: the descriptor is open as long as `socket` lives; the kernel writes at most `bytes` bytes, which `value`
    // has.
    let status = unsafe { libc::getsockopt(socket.as_raw_fd(), level, name, (&raw mut value).cast(), &mut bytes) };
    (status == 0).then_some(value)
}

/// Sets a socket option that is an integer, if the socket has it.
pub fn set_option<T: Integer>(socket: BorrowedFd<'_>, level: i32, name: i32, value: T) {
    let bytes = size_of::<T>() as libc::socklen_t;
    // SAFETY: the descriptor is open as long as `socket` lives; the kernel reads an integer.
    let _is_set = unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, (&raw const value).cast(), bytes) };
}
