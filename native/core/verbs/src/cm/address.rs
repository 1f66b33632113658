//! Socket addresses on their way to librdmacm and back.

use std::net::SocketAddr;

use socket2::SockAddr;

/// An address as librdmacm wants it: it takes a mutable pointer, and only reads.
pub(super) fn raw(address: &SockAddr) -> *mut libc::sockaddr {
    address.as_ptr().cast_mut().cast()
}

/// # Safety
///
/// `address` must be the start of an address of the length that its family says.
pub(super) unsafe fn socket_address(address: &libc::sockaddr) -> Option<SocketAddr> {
    let bytes = match i32::from(address.sa_family) {
        libc::AF_INET => size_of::<libc::sockaddr_in>(),
        libc::AF_INET6 => size_of::<libc::sockaddr_in6>(),
        _ => return None,
    };
    let address: *const libc::sockaddr = address;
    // SAFETY: the caller guarantees that `bytes` bytes are there, and the storage has room for an address of any
    // family. They are a valid address of their family, and their length is set.
    let copied = unsafe {
        SockAddr::try_init(|storage, length| {
            std::ptr::copy_nonoverlapping(address.cast::<u8>(), storage.cast::<u8>(), bytes);
            *length = bytes as libc::socklen_t;
            Ok(())
        })
    };
    copied.ok().and_then(|((), address)| address.as_socket())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_survives_the_way_to_c_and_back() {
        for text in ["10.9.8.1:7000", "[fd09:8::1]:65535", "[fe80::1%3]:1"] {
            let address: SocketAddr = text.parse().expect("an address");
            let made = SockAddr::from(address);
            // SAFETY: `made` lives, and has an address of the family that it names.
            assert_eq!(unsafe { socket_address(&*raw(&made)) }, Some(address), "{text}");
        }
        // SAFETY: all zeros are a value of this C struct of numbers.
        let unset: libc::sockaddr = unsafe { std::mem::zeroed() };
        // SAFETY: an address of the family 0 has no bytes beyond.
        assert_eq!(unsafe { socket_address(&unset) }, None);
    }
}
