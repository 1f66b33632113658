//! What was counted of links whose ports have ended.
//!
//! A port that ends can tell nobody anything: the VM drops its messages from the end on, and refuses its commands. The
//! guard learns of the end by the port's exit signal, which the VM sends before it calls the driver. So the counts lie
//! here until the guard takes them, a moment later.

use std::collections::VecDeque;

use inet_rdma_session::proof::NAME_BYTES;
use parking_lot::Mutex;

/// Number of links that are kept, as not each guard takes what was left. An entry has about 5 KB. Of more links that
/// end at once the first ones are not noted.
const LINKS: usize = 256;

/// The latest last.
static ENDED: Mutex<VecDeque<([u8; NAME_BYTES], Vec<u8>)>> = Mutex::new(VecDeque::new());

/// Keeps the [term](crate::attribution::Attribution::term) of the session with this name; empty: its senders and
/// targets were not counted.
pub(crate) fn keep(name: [u8; NAME_BYTES], term: Vec<u8>) {
    let mut ended = ENDED.lock();
    if ended.len() == LINKS {
        ended.pop_front();
    }
    ended.push_back((name, term));
}

/// Takes what was kept of the session with this name. None: its port has not ended yet, or was taken before.
pub fn take(name: &[u8]) -> Option<Vec<u8>> {
    let mut ended = ENDED.lock();
    let place = ended.iter().position(|(kept, _)| kept == name)?;
    ended.remove(place).map(|(_, term)| term)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_links_are_kept_until_they_are_taken() {
        let name = |number: usize| (number as u128).to_le_bytes();
        for number in 0..=LINKS {
            keep(name(number), name(number).to_vec());
        }
        assert_eq!(take(&name(0)), None);
        for number in 1..=LINKS {
            assert_eq!(take(&name(number)), Some(name(number).to_vec()));
            assert_eq!(take(&name(number)), None);
        }
        assert_eq!(take(b"another name"), None);
    }
}
