//! How many inline bytes a queue pair gets.

use crate::error::VerbsError;

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
    let fewer = std::iter::successors(Some(inline_bytes), |&bytes| match bytes {
        0 => None,
        65.. => Some(bytes / 2),
        _ => Some(0),
    });
    fewer.skip(1).find_map(|bytes| create(bytes).ok()).ok_or(first)
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
                    match i64::from(bytes) > limit {
                        true => Err(VerbsError::of("creating", errno + i32::from(asked.len() > 1))),
                        false => Ok(bytes),
                    }
                });
                (granted.map_err(|failed| failed.errno()), asked)
            };
            assert_eq!(device(512), (Ok(220), vec![220]));
            assert_eq!(device(96), (Ok(55), vec![220, 110, 55]));
            assert_eq!(device(0), (Ok(0), vec![220, 110, 55, 0]));
            assert_eq!(device(-1), (Err(errno), vec![220, 110, 55, 0]), "the first error");
        }
    }
}
