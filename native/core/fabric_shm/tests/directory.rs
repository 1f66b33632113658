//! Connections through a shared directory: success, refusals with their reasons, and files that are left behind.

#[path = "directory/place.rs"]
mod place;
#[path = "../../fabric/tests/support/mod.rs"]
#[allow(dead_code, reason = "shared with the contract suite, which uses all of it")]
mod support;

use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::time::{Duration, SystemTime};

use inet_rdma_fabric::{Completion, DirectoryFault, FabricError, Listener, QueuePair, Safeguard};
use inet_rdma_fabric_shm::directory::SharedDirectory;
use inet_rdma_fabric_shm::listener::ShmListener;
use inet_rdma_fabric_shm::socket_name::SocketName;
use place::{Place, dead_socket, name, socket_at};
use support::{BOUND, accept, numbered, parameters, poll_one};

fn shared(path: &Path, users: &[u32]) -> SharedDirectory {
    SharedDirectory::new(path.as_os_str().as_encoded_bytes(), users.to_vec())
}

fn listen(directory: &SharedDirectory) -> (ShmListener, SocketName) {
    let (listener, file) = directory
        .listen(&support::options(parameters()))
        .expect("a good directory");
    (listener, file.name)
}

fn refusal_to_listen(directory: &SharedDirectory) -> DirectoryFault {
    fault(directory.listen(&support::options(parameters())).map(|_| ()))
}

fn refusal_to_connect(directory: &SharedDirectory, name: &SocketName) -> DirectoryFault {
    fault(directory.connect(name, &parameters(), BOUND).map(|_| ()))
}

fn fault(refused: Result<(), FabricError>) -> DirectoryFault {
    match refused {
        Err(FabricError::Directory { fault, .. }) => fault,
        other => panic!("not refused for the directory: {other:?}"),
    }
}

fn meet(directory: &SharedDirectory, listener: &mut dyn Listener, name: &SocketName) -> [Box<dyn QueuePair>; 2] {
    std::thread::scope(|scope| {
        let connecting = scope.spawn(|| directory.connect(name, &parameters(), BOUND));
        let accepted = accept(listener).expect("an accepted connection");
        [connecting.join().expect("no panic").expect("a connection"), accepted]
    })
}

#[test]
fn two_processes_meet_by_a_file() {
    let place = Place::new();
    let directory = shared(place.path(), &[]);
    let (mut listener, name) = listen(&directory);
    let [here, there] = meet(&directory, &mut listener, &name);
    here.post_control(&numbered(1)).expect("room");
    assert_eq!(poll_one(&*there), Completion::Control(numbered(1)));
    for end in [here, there] {
        assert_eq!(
            end.route(),
            format!("shared memory of this host, through {}", place.path().display())
        );
        // The peer may be of a container that is kept apart.
        assert_eq!(end.capabilities().safeguard, Safeguard::None);
    }
}

#[test]
fn only_listed_users_make_the_file_one_for_all() {
    let place = Place::new();
    let mode = |users: &[u32]| {
        let (_listener, name) = listen(&shared(place.path(), users));
        std::fs::symlink_metadata(place.at(&name)).expect("the file").mode() & 0o777
    };
    assert_eq!(mode(&[]) & 0o077, 0, "others could connect");
    assert_eq!(mode(&[4_000_000]), 0o666);
}

#[test]
fn the_directory_itself_is_looked_at() {
    let place = Place::new();
    let sub = place.path().join("sub");
    assert_eq!(refusal_to_listen(&shared(&sub, &[])), DirectoryFault::Missing);
    std::fs::write(&sub, "").expect("a file");
    assert_eq!(refusal_to_listen(&shared(&sub, &[])), DirectoryFault::NoDirectory);
    let link = place.path().join("link");
    symlink(place.path(), &link).expect("a link");
    assert_eq!(refusal_to_listen(&shared(&link, &[])), DirectoryFault::SymbolicLink);
    assert_eq!(
        refusal_to_listen(&shared(&link.join(""), &[])),
        DirectoryFault::SymbolicLink
    );
    assert_eq!(
        refusal_to_connect(&shared(&link, &[]), &name(1)),
        DirectoryFault::SymbolicLink
    );
}

#[test]
fn a_directory_in_which_all_may_remove_files_is_refused() {
    let place = Place::new();
    let directory = shared(place.path(), &[]);
    let set = |mode| std::fs::set_permissions(place.path(), PermissionsExt::from_mode(mode)).expect("its mode");
    set(0o777);
    assert_eq!(refusal_to_listen(&directory), DirectoryFault::WorldWritable);
    assert_eq!(refusal_to_connect(&directory, &name(1)), DirectoryFault::WorldWritable);
    for mode in [0o1777, 0o770, 0o755] {
        set(mode);
        drop(listen(&directory));
    }
}

#[test]
fn a_directory_of_a_stranger_is_refused() {
    let place = Place::new();
    let stranger = 4_000_000;
    if !place.give(place.path(), stranger) {
        return println!("skipped: only root can give a directory to another user");
    }
    assert_eq!(
        refusal_to_listen(&shared(place.path(), &[])),
        DirectoryFault::Owner(stranger)
    );
    assert_eq!(
        refusal_to_connect(&shared(place.path(), &[7]), &name(1)),
        DirectoryFault::Owner(stranger)
    );
    drop(listen(&shared(place.path(), &[stranger])));
}

#[test]
fn the_file_in_the_place_of_the_peers_socket_is_checked() {
    let place = Place::new();
    let directory = shared(place.path(), &[]);
    let refusal = || refusal_to_connect(&directory, &name(1));
    assert_eq!(refusal(), DirectoryFault::NotShared);

    std::fs::write(place.at(&name(1)), "").expect("a file");
    assert_eq!(refusal(), DirectoryFault::NoSocket);
    place.clear();

    // A link to a good socket is not followed.
    let (_listener, good) = listen(&directory);
    symlink(place.at(&good), place.at(&name(1))).expect("a link");
    assert_eq!(refusal(), DirectoryFault::NoSocket);
    place.clear();

    dead_socket(&place.at(&name(1)));
    assert_eq!(refusal(), DirectoryFault::Deserted);
    let stranger = 4_000_000;
    if !place.give(&place.at(&name(1)), stranger) {
        return println!("skipped in part: only root can give a socket to another user");
    }
    assert_eq!(refusal(), DirectoryFault::SocketOwner(stranger));
    let trusting = shared(place.path(), &[stranger]);
    assert_eq!(refusal_to_connect(&trusting, &name(1)), DirectoryFault::Deserted);
}

/// A process that listens in the peer's place and answers nothing.
#[test]
fn a_squatter_costs_the_time_given() {
    let place = Place::new();
    let _squatter: OwnedFd = socket_at(&place.at(&name(1)));
    let met = shared(place.path(), &[]).connect(&name(1), &parameters(), Duration::from_millis(50));
    assert!(matches!(met, Err(FabricError::TimedOut)));
}

#[test]
fn long_paths_work_as_far_as_the_system_takes_them() {
    let place = Place::new();
    let mut deep = place.path().to_owned();
    while deep.as_os_str().len() < 400 {
        deep.push("part_of_a_long_path");
        std::fs::create_dir(&deep).expect("a directory");
    }
    let directory = shared(&deep, &[]);
    let (mut listener, name) = listen(&directory);
    meet(&directory, &mut listener, &name);

    let part = shared(&place.path().join("a".repeat(256)), &[]);
    assert_eq!(refusal_to_listen(&part), DirectoryFault::TooLong);
    let whole = shared(&place.path().join("a/".repeat(2048)), &[]);
    assert_eq!(refusal_to_listen(&whole), DirectoryFault::TooLong);
}

#[test]
fn files_that_dead_processes_left_are_removed() {
    let place = Place::new();
    let directory = shared(place.path(), &[]);
    let old = SystemTime::now() - Duration::from_secs(3600);
    let (_living, living) = listen(&directory);
    place.date(&place.at(&living), old);
    dead_socket(&place.at(&name(1)));
    place.date(&place.at(&name(1)), old);
    dead_socket(&place.at(&name(2)));
    let others = ["inet_rdma-short", "another.sock"].map(|name| place.path().join(name));
    for other in &others {
        dead_socket(other);
        place.date(other, old);
    }
    std::fs::write(place.at(&name(3)), "").expect("a file");
    place.date(&place.at(&name(3)), old);
    drop(listen(&directory));
    assert!(!place.at(&name(1)).exists(), "old, and no process listens");
    assert!(place.at(&living).exists(), "a process listens");
    assert!(place.at(&name(2)).exists(), "young: its process may be about to listen");
    assert!(place.at(&name(3)).exists(), "no socket");
    assert!(others.iter().all(|other| other.exists()), "not of this library");
}

#[test]
fn a_file_is_removed_only_if_it_is_the_listeners() {
    let place = Place::new();
    let directory = shared(place.path(), &[]);
    let (_listener, file) = directory
        .listen(&support::options(parameters()))
        .expect("a good directory");
    assert!(directory.holds(&file).expect("a good directory"));
    std::fs::remove_file(place.at(&file.name)).expect("it is there");
    assert!(!directory.holds(&file).expect("a good directory"));
    dead_socket(&place.at(&file.name));
    assert!(!directory.holds(&file).expect("a good directory"));
    directory.remove(&file);
    assert!(place.at(&file.name).exists(), "another one's");
}

#[test]
fn a_check_leaves_nothing_behind() {
    let place = Place::new();
    shared(place.path(), &[])
        .check(&support::options(parameters()))
        .expect("a good directory");
    assert_eq!(std::fs::read_dir(place.path()).expect("entries").count(), 0);
}

#[test]
fn names_are_random_and_lead_nowhere_else() {
    let place = Place::new();
    let directory = shared(place.path(), &[]);
    assert_ne!(listen(&directory).1, listen(&directory).1);
    let digits = "0123456789abcdef".repeat(2);
    assert!(format!("inet_rdma-{digits}").parse::<SocketName>().is_ok());
    let upper = digits.to_uppercase();
    for wrong in [
        "",
        &digits,
        &format!("inet_rdma-{digits}0"),
        &format!("inet_rdma-{upper}"),
        "inet_rdma-../../../../etc/x",
    ] {
        assert!(wrong.parse::<SocketName>().is_err(), "{wrong}");
    }
}
