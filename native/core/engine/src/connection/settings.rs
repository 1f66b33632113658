//! The settings of a connection.

use inet_rdma_fabric::Safeguard;
use inet_rdma_stream::Mode;

/// When a landing buffer is handed over without a copy. A peer that can still write could change the buffer while the
/// VM's `binary_to_term` reads it twice, which would make the VM write past the end of its memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ZeroCopy {
    /// If it is safe: from a trusted peer, or behind closed windows ([`inet_rdma_fabric::Capabilities::safeguard`]).
    Auto,
    /// Behind closed windows if the device has windows, else never.
    Windows,
    /// From any peer.
    Always,
    /// Never: all bytes are copied out first.
    Never,
}

impl ZeroCopy {
    pub(super) fn safeguard(self, offered: Safeguard, has_windows: bool) -> Safeguard {
        match self {
            ZeroCopy::Auto => offered,
            ZeroCopy::Windows if has_windows => Safeguard::Windows,
            ZeroCopy::Windows => Safeguard::None,
            ZeroCopy::Always => Safeguard::Trust,
            ZeroCopy::Never => Safeguard::None,
        }
    }
}

/// Maximum of [`Settings::landing_buffer_bytes`], and so of the peer's.
pub const LANDING_BUFFER_BYTES_MAX: usize = 1 << 20;

/// The settings of a connection, which never change.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// Which kinds of transfers to use.
    pub mode: Mode,
    /// Size of a landing buffer in bytes: the option `landing_bytes`, 1 MiB at most.
    pub landing_buffer_bytes: u32,
    /// Minimum size of a packet that is bulk and gets a landing buffer of its own, in bytes.
    pub direct_bytes: usize,
    /// The largest packet that is accepted.
    pub packet_max_bytes: usize,
    /// When a landing buffer is handed over without a copy.
    pub zero_copy: ZeroCopy,
    /// Never ask for events: a thread polls all the time.
    pub busy: bool,
}

impl Default for Settings {
    /// The settings of the carrier's default options, without landing buffers.
    fn default() -> Self {
        Self {
            mode: Mode::Dynamic,
            landing_buffer_bytes: 0,
            direct_bytes: 16 * 1024,
            packet_max_bytes: 128 << 20,
            zero_copy: ZeroCopy::Auto,
            busy: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Safeguard, ZeroCopy};

    #[test]
    fn the_option_decides_about_zero_copy_and_leaves_it_to_the_fabric_with_auto() {
        for offered in [Safeguard::Trust, Safeguard::Windows, Safeguard::None] {
            for has_windows in [true, false] {
                assert_eq!(ZeroCopy::Auto.safeguard(offered, has_windows), offered);
                assert_eq!(ZeroCopy::Always.safeguard(offered, has_windows), Safeguard::Trust);
                assert_eq!(ZeroCopy::Never.safeguard(offered, has_windows), Safeguard::None);
            }
            assert_eq!(ZeroCopy::Windows.safeguard(offered, true), Safeguard::Windows);
            assert_eq!(ZeroCopy::Windows.safeguard(offered, false), Safeguard::None);
        }
    }
}
