//! Hints for the processor's cache.

/// Asks the processor to fetch the cache line `BEHIND` bytes after this address for a write. Waits for nothing; a
/// processor without such a hint does nothing.
#[inline]
pub(crate) fn prefetch_for_write<T, const BEHIND: usize>(address: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint, which processors without it ignore: it accesses nothing as far as the program can tell, so any
    // address is allowed, and changes no register and no flag.
    unsafe {
        std::arch::asm!(
            "prefetchw [{} + {}]",
            in(reg) address,
            const BEHIND,
            options(nostack, preserves_flags, readonly)
        );
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    unsafe {
        std::arch::asm!(
            "prfm pstl1keep, [{}, #{}]",
            in(reg) address,
            const BEHIND,
            options(nostack, preserves_flags, readonly)
        );
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = address;
}
