//! Peers of other network namespaces come to the shared listener by a file in a directory.

#[path = "../../fabric/tests/support/mod.rs"]
#[allow(dead_code, reason = "shared with the contract suite, which uses all of it")]
mod support;

use std::path::PathBuf;

use inet_rdma_engine::attempt::connect_in;
use inet_rdma_engine::attempt::{Attempt, AttemptError, token};
use inet_rdma_fabric::{Completion, FabricError, Parameters};
use inet_rdma_fabric_shm::directory::SharedDirectory;
use inet_rdma_fabric_shm::socket_name::SocketName;

use support::{BOUND, eventually, numbered, parameters, poll_one};

struct Place(PathBuf);

impl Place {
    fn new() -> Place {
        let path = std::env::temp_dir().join(format!("inet_rdma_{:016x}", token()));
        std::fs::create_dir(&path).expect("a directory");
        Place(path)
    }

    fn shared(&self) -> SharedDirectory {
        SharedDirectory::new(self.0.as_os_str().as_encoded_bytes(), Vec::new())
    }

    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).expect("entries");
        entries
            .flatten()
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).expect("it was made here");
    }
}

fn with_token(token: u64) -> Parameters {
    Parameters { token, ..parameters() }
}

/// Expects a peer, which connects by the file.
fn meets(directory: &SharedDirectory, name: &SocketName) -> Result<(), AttemptError> {
    let parameters = with_token(token());
    let (attempt, _name) = Attempt::expect_shm(&parameters, BOUND)?;
    let (here, why) = connect_in(directory, name, &parameters, BOUND)?;
    assert!(why.contains("through /"), "{why}");
    let mut outcome = None;
    eventually("the peer is there", || {
        outcome = outcome.take().or_else(|| attempt.take());
        outcome.is_some()
    });
    let (there, _) = outcome.expect("it is there")?;
    here.post_control(&numbered(7)).expect("room");
    assert_eq!(poll_one(&*there), Completion::Control(numbered(7)));
    Ok(())
}

/// A single test, as the process has one listener.
#[test]
fn the_file_is_there_while_it_is_wanted() {
    let (first, second) = (Place::new(), Place::new());
    let directory = first.shared();
    let name = Attempt::expect_in(&directory).expect("a good directory");
    assert_eq!(Attempt::expect_in(&directory).expect("it is there"), name);
    assert_eq!(first.names(), [name.to_string()]);
    meets(&directory, &name).expect("a peer with the token");

    // A peer without it.
    let stranger = connect_in(&directory, &name, &with_token(token()), BOUND).map(|_| ());
    assert!(matches!(stranger, Err(FabricError::PeerMisbehaved(_))), "{stranger:?}");

    // The file has vanished.
    std::fs::remove_file(first.0.join(name.to_string())).expect("it is there");
    let again = Attempt::expect_in(&directory).expect("a good directory");
    assert_ne!(again, name);
    meets(&directory, &again).expect("a peer with the token");

    // The option has changed.
    let other = second.shared();
    let elsewhere = Attempt::expect_in(&other).expect("a good directory");
    assert!(first.names().is_empty(), "the file in the former directory is removed");
    meets(&other, &elsewhere).expect("a peer with the token");

    // Many settlements begin at the same time.
    Attempt::leave_directory();
    assert!(second.names().is_empty(), "the file is removed at the end");
    let names: Vec<SocketName> = std::thread::scope(|scope| {
        let expecting = [(); 16].map(|()| scope.spawn(|| Attempt::expect_in(&second.shared())));
        expecting
            .map(|one| one.join().expect("no panic").expect("a good directory"))
            .into()
    });
    assert!(names.iter().all(|name| *name == names[0]), "{names:?}");
    assert_eq!(second.names(), [names[0].to_string()]);
    meets(&other, &names[0]).expect("a peer with the token");
    Attempt::leave_directory();
}
