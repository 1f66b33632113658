//! The users whose processes may connect.

use std::os::fd::BorrowedFd;
use std::sync::OnceLock;

use inet_rdma_fabric::FabricError;

use crate::peer::process_of;

/// User ids that a user namespace can map: all but the last, which means none.
const ALL_USERS: u64 = u32::MAX as u64;

/// The effective user of this process, and further ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Users {
    /// Peers of the network namespace: this process's user alone.
    Own,
    /// Peers of a shared directory: these users, too.
    OwnAnd(Vec<u32>),
}

/// The meaning of the user id of a process or a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    Allowed,
    Other(u32),
    /// The user namespace of this process has no number for the user.
    Unmapped,
}

impl Users {
    pub(crate) fn standing(&self, user: u32) -> Standing {
        // Check this first: all unmapped users have one number, which may be the number of this process's user.
        if is_unmapped(user, overflow_user(), maps_all_users()) {
            return Standing::Unmapped;
        }
        match self {
            _ if user == crate::user() => Standing::Allowed,
            Users::OwnAnd(others) if others.contains(&user) => Standing::Allowed,
            _ => Standing::Other(user),
        }
    }

    /// Fails unless the peer's process, which has connected or listens, runs as one of the users.
    pub(crate) fn check_peer(&self, socket: BorrowedFd<'_>) -> Result<(), FabricError> {
        let peer = process_of(socket)?;
        let ours = crate::user();
        match (self.standing(peer.user), self) {
            (Standing::Allowed, _) => Ok(()),
            (Standing::Unmapped, _) => Err(FabricError::UserUnmapped),
            (Standing::Other(theirs), Users::Own) => Err(FabricError::WrongUser { theirs, ours }),
            (Standing::Other(theirs), Users::OwnAnd(_)) => Err(FabricError::UserNotAllowed { theirs, ours }),
        }
    }
}

/// True if this may be the number of an unmapped user.
fn is_unmapped(user: u32, overflow: u32, maps_all: bool) -> bool {
    user == overflow && !maps_all
}

/// The number that the kernel gives for unmapped users.
fn overflow_user() -> u32 {
    /// The kernel's default.
    const USUAL: u32 = 65534;
    static OVERFLOW: OnceLock<u32> = OnceLock::new();
    *OVERFLOW.get_or_init(|| {
        let text = std::fs::read_to_string("/proc/sys/kernel/overflowuid").unwrap_or_default();
        text.trim().parse().unwrap_or(USUAL)
    })
}

/// True if each user of the system has a number in the user namespace of this process. The map is written once, before
/// programs of the namespace run.
fn maps_all_users() -> bool {
    static MAPS_ALL: OnceLock<bool> = OnceLock::new();
    *MAPS_ALL.get_or_init(|| maps_all(&std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default()))
}

/// True for a map of all users. Each line has three numbers: first id inside, first id outside, count.
fn maps_all(map: &str) -> bool {
    let counts = map.lines().filter_map(|line| line.split_whitespace().nth(2));
    counts.filter_map(|count| count.parse::<u64>().ok()).sum::<u64>() >= ALL_USERS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_map_maps_all() {
        assert!(maps_all("         0          0 4294967295\n"));
        assert!(!maps_all(
            "         0       1000          1\n         1     100000      65536\n"
        ));
        assert!(!maps_all(""));
    }

    #[test]
    fn the_number_of_unmapped_users_is_a_user_where_all_are_mapped() {
        assert!(is_unmapped(65534, 65534, false));
        assert!(!is_unmapped(65534, 65534, true));
        assert!(!is_unmapped(1000, 65534, false));
    }

    #[test]
    fn others_are_allowed_by_their_number_only() {
        let own = crate::user();
        let other = own.wrapping_add(7);
        assert_eq!(Users::Own.standing(own), Standing::Allowed);
        assert_eq!(Users::Own.standing(other), Standing::Other(other));
        assert_eq!(Users::OwnAnd(vec![other]).standing(other), Standing::Allowed);
        assert_eq!(Users::OwnAnd(vec![other]).standing(own), Standing::Allowed);
        assert_eq!(Users::OwnAnd(vec![]).standing(other), Standing::Other(other));
    }
}
