//! Compression of a session's connections, one after the other.

use crate::compress::Compressor;
use crate::decompress::Decompressor;

/// The contexts of zstd for one connection at a time. A connection that resumes takes those of the one before it, so it
/// needs no memory: both sides have agreed on compression when the session began.
#[derive(Default)]
pub struct Codec {
    pub(crate) compressor: Option<Compressor>,
    pub(crate) decompressor: Option<Decompressor>,
}

impl Codec {
    /// `sends`: this side compresses; without memory it sends plain blocks instead, which the peer takes as well.
    /// `receives`: the peer compresses. None: there is no memory to decompress that.
    pub fn new(sends: bool, receives: bool) -> Option<Codec> {
        let decompressor = if receives { Some(Decompressor::new()?) } else { None };
        Some(Codec {
            compressor: sends.then(Compressor::new),
            decompressor,
        })
    }

    /// Whether neither side compresses.
    pub fn is_idle(&self) -> bool {
        self.compressor.is_none() && self.decompressor.is_none()
    }

    /// Forgets what the last connection left, as another connection begins.
    pub(crate) fn reset(&mut self) {
        if let Some(compressor) = &mut self.compressor {
            compressor.reset();
        }
        if let Some(decompressor) = &mut self.decompressor {
            decompressor.reset();
        }
    }
}

/// Whether there is memory for what a peer compresses.
pub fn can_decompress() -> bool {
    Decompressor::new().is_some()
}
