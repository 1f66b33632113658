//! Writes that the kernel refuses while the connection lives: seccomp filters of threads that write.

#[path = "support/encoding.rs"]
mod encoding;
mod support;

use encoding::path;
use inet_rdma_path_tcp::{Lost, TURN_PACKETS, TcpPath, Transmitted};
use inet_rdma_session::Role;
use rustix::io::Errno;
use support::{End, Packets, streams};

/// Makes each `send` and `sendmsg` of the calling thread fail from here on.
fn deny_sends(error: Errno) {
    let statement = |code: u32, jumps: [u8; 2], k: u32| libc::sock_filter {
        code: code as u16,
        jt: jumps[0],
        jf: jumps[1],
        k,
    };
    let equal = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    let mut filter = [
        // The number of the call is the first field of `seccomp_data`.
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, [0, 0], 0),
        statement(equal, [1, 0], libc::SYS_sendto as u32),
        statement(equal, [0, 1], libc::SYS_sendmsg as u32),
        statement(
            libc::BPF_RET,
            [0, 0],
            libc::SECCOMP_RET_ERRNO | error.raw_os_error() as u32,
        ),
        statement(libc::BPF_RET, [0, 0], libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog {
        len: filter.len() as u16,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: the kernel copies the program, which refers to a living array of `len` statements.
    let done = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) == 0
    };
    assert!(done, "{}", std::io::Error::last_os_error());
}

/// What a write becomes in a thread whose sends fail.
fn transmit_denied(path: &mut TcpPath, session: &mut End, error: Errno) -> Result<Transmitted, Lost> {
    std::thread::scope(|threads| {
        let denied = threads.spawn(|| {
            deny_sends(error);
            path.transmit(session)
        });
        denied.join().expect("no panic")
    })
}

#[test]
fn bytes_for_which_the_kernel_has_no_memory_go_later_once_and_in_order() {
    for (is_compressed, is_sealed) in [(false, false), (true, false), (false, true), (true, true)] {
        let (left, right) = streams();
        let mut sender = path(&left, 0, is_compressed, is_sealed);
        let mut receiver = path(&right, 1, is_compressed, is_sealed);
        let mut sessions = [End::new(Role::Initiator, 1 << 20), End::new(Role::Acceptor, 1 << 20)];
        let (mut arrived, mut sent) = (Packets::default(), Vec::new());
        for round in 0..20_u8 {
            let packet = vec![round; 1_000 * usize::from(round)];
            sessions[0].append(packet.len(), |log| log.copy(&packet));
            sent.push(packet);
            let error = [Errno::NOBUFS, Errno::NOMEM][usize::from(round % 2)];
            let denied = transmit_denied(&mut sender, &mut sessions[0], error);
            assert_eq!(denied, Ok(Transmitted::NoMemory));
            assert_eq!(sender.transmit(&mut sessions[0]), Ok(Transmitted::All));
            while arrived.0.len() < sent.len() {
                let received = receiver.receive(TURN_PACKETS, &mut sessions[1], &mut arrived);
                assert!(received.is_ok(), "{received:?}");
            }
        }
        assert!(arrived.0 == sent, "the packets differ");
    }
}

/// The kernel knows of no end: the caller has to close the connection, or nothing is ever sent again.
#[test]
fn a_denied_write_is_the_end_of_the_path() {
    let (left, right) = streams();
    let mut sender = path(&left, 0, false, false);
    let mut receiver = path(&right, 1, false, false);
    let mut session = End::new(Role::Initiator, 1 << 20);
    session.append(3, |log| log.copy(b"abc"));
    let denied = transmit_denied(&mut sender, &mut session, Errno::PERM);
    assert_eq!(denied, Err(Lost::Error(Errno::PERM)));
    let mut peer = End::new(Role::Acceptor, 1 << 20);
    let received = receiver.receive(TURN_PACKETS, &mut peer, &mut Packets::default());
    assert!(received.is_ok(), "{received:?}");
}
