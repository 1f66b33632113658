//! How much is sealed under one key.

use std::time::{Duration, Instant};

/// Records under one key, at most, and control messages. NIST SP 800-38D, section 8.3, allows 2^32 messages with random
/// nonces; counted nonces keep to a quarter of that.
pub const MESSAGES_MAX: u64 = 1 << 30;

/// Bytes of records under one key, at most. RFC 8446, section 5.5, allows AES-GCM 2^24.5 records of 2^14 bytes, that is
/// 2^38.5 bytes, to keep an attacker's advantage below 2^-57.
pub const BYTES_MAX: u64 = 1 << 37;

/// When a sender goes on to the next key. It does so at [`MESSAGES_MAX`] and at [`BYTES_MAX`] in any case.
#[derive(Debug, Clone, Copy)]
pub struct Renewal {
    /// Bytes under one key.
    pub bytes: u64,
    /// Age of a key. None: no limit.
    pub age: Option<Duration>,
}

impl Renewal {
    /// As rarely as the limits allow.
    pub const RAREST: Renewal = Renewal {
        bytes: u64::MAX,
        age: None,
    };
}

/// When a key is too old.
#[derive(Debug)]
pub(crate) struct Age {
    limit: Option<Duration>,
    /// The last time at which a key was replaced because of its age.
    since: Instant,
}

impl Age {
    pub fn new(limit: Option<Duration>, now: Instant) -> Age {
        Age { limit, since: now }
    }

    /// True once for each time the limit has passed. A key that was not used stays: the peer takes the present one and
    /// the next.
    #[inline]
    pub fn is_over(&mut self, is_used: bool, now: impl FnOnce() -> Instant) -> bool {
        let Some(limit) = self.limit.filter(|_| is_used) else {
            return false;
        };
        let now = now();
        let is_over = now.saturating_duration_since(self.since) >= limit;
        if is_over {
            self.since = now;
        }
        is_over
    }
}
