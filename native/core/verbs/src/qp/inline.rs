//! How many inline bytes a queue pair gets.

use crate::error::VerbsError;

/// The numbers of bytes that are asked for after more was refused: the limits of devices that refuse more than they
/// allow (`inet_rdma_providers`, fact `inline`), so that none sends fewer bytes inline than it can. 208: bnxt_re with
/// entries of variable size, and irdma's third generation (216); 96: erdma, bnxt_re with entries of fixed size, and
/// irdma's E810 (101); 80: siw; 48: irdma's X722. 64 is for a device that is not in that list. A control message has
/// 40 bytes: fewer than 48 would serve notices alone. A refusal costs a system call.
const FEWER: [u32; 6] = [208, 96, 80, 64, 48, 0];

/// Calls `create` with this number of inline bytes, then with fewer and at last with none until it succeeds. Which
/// error a device's limit causes depends on the provider, and some set none: each counts. Err: that of the first call.
pub(super) fn with_fewer_bytes<T>(
    inline_bytes: u32,
    mut create: impl FnMut(u32) -> Result<T, VerbsError>,
) -> Result<T, VerbsError> {
    let first = match create(inline_bytes) {
        Err(failed) if inline_bytes > 0 => failed,
        made => return made,
    };
    let mut fewer = FEWER.into_iter().filter(|&bytes| bytes < inline_bytes);
    fewer.find_map(|bytes| create(bytes).ok()).ok_or(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_pair_has_as_many_inline_bytes_as_the_device_allows() {
        for errno in [libc::EINVAL, libc::ENOMEM, libc::EAGAIN, 0] {
            let device = |limit| {
                let mut asked = Vec::new();
                let granted = with_fewer_bytes(220, |bytes| {
                    asked.push(bytes);
                    if i64::from(bytes) > limit {
                        Err(VerbsError::of("creating", errno + i32::from(asked.len() > 1)))
                    } else {
                        Ok(bytes)
                    }
                });
                (granted.map_err(|failed| failed.errno()), asked)
            };
            assert_eq!(device(512), (Ok(220), vec![220]));
            for (limit, granted) in [
                (216, 208),
                (208, 208),
                (101, 96),
                (96, 96),
                (80, 80),
                (64, 64),
                (48, 48),
            ] {
                assert_eq!(device(limit).0, Ok(granted), "a device that allows {limit}");
            }
            let all = vec![220, 208, 96, 80, 64, 48, 0];
            assert_eq!(device(0), (Ok(0), all.clone()));
            assert_eq!(device(-1), (Err(errno), all), "the first error");
        }
    }

    #[test]
    fn no_more_is_asked_for_than_before() {
        let mut asked = Vec::new();
        let refused: Result<(), _> = with_fewer_bytes(80, |bytes| {
            asked.push(bytes);
            Err(VerbsError::of("creating", libc::EINVAL))
        });
        assert!(refused.is_err());
        assert_eq!(asked, [80, 64, 48, 0]);
    }
}
