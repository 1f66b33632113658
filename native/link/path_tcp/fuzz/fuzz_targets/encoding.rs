//! A path whose peer seals and compresses, and says anything: raw bytes, records under the right key, and blocks of any
//! header.
//!
//! Run: `cargo fuzz run encoding` (nightly), or on stable with `RUSTC_BOOTSTRAP=1`. Nothing may panic, no packet above
//! the limit may be allocated, a block gives no more than it says, and a turn no more than its bounds.
#![no_main]

use std::io::Write;
use std::os::unix::net::UnixStream;

use arbitrary::Arbitrary;
use inet_rdma_path_tcp::{Codec, Protection, Received, TURN_PACKETS, TcpPath};
use inet_rdma_records::{Cipher, Key, OVERHEAD_BYTES, Renewal, Sealer};
use inet_rdma_session::{Role, Session, Sink};
use libfuzzer_sys::fuzz_target;

const PACKET_MAX_BYTES: usize = 70_000;

#[derive(Debug, Arbitrary)]
struct Input {
    is_sealed: bool,
    is_compressed: bool,
    throws: Vec<Throw>,
}

#[derive(Debug, Arbitrary)]
enum Throw {
    /// As they are.
    Raw(Vec<u8>),
    /// In a record, where the path is sealed.
    Sealed(Vec<u8>),
    /// A block of this header, in a record where the path is sealed.
    Block { kind: u8, plain: u16, wire: i8, data: Vec<u8> },
    /// The next record has the next key.
    Rekey,
}

/// Counts what it gets.
#[derive(Default)]
struct Bounded {
    bytes: usize,
    packets: usize,
}

impl Sink for Bounded {
    type Large = Vec<u8>;

    fn allocate(&mut self, bytes: usize) -> Option<Vec<u8>> {
        assert!(bytes <= PACKET_MAX_BYTES);
        Some(vec![0; bytes])
    }

    fn small(&mut self, packet: &[u8]) {
        self.bytes += packet.len();
        self.packets += 1;
    }

    // Most of it may have come in earlier turns.
    fn large(&mut self, _packet: Vec<u8>) {
        self.packets += 1;
    }
}

fn key() -> Key {
    Key::new(&[7; 32]).expect("32 bytes")
}

fuzz_target!(|input: Input| {
    let (mut peer, stream) = UnixStream::pair().expect("sockets");
    stream.set_nonblocking(true).expect("nonblocking");
    peer.set_nonblocking(true).expect("nonblocking");
    let mut path = TcpPath::adopt(stream.try_clone().expect("a descriptor").into());
    if input.is_sealed {
        path.seal(&Protection {
            cipher: Cipher::Aes256Gcm,
            send_key: Key::new(&[8; 32]).expect("32 bytes"),
            receive_key: key(),
            renewal: Renewal {
                bytes: 1000,
                age: None,
            },
        });
    }
    path.compress(Codec::new(false, input.is_compressed).expect("memory"));
    let mut sealer = Sealer::new(Cipher::Aes256Gcm, &key(), Renewal::RAREST, std::time::Instant::now());
    let mut session: Session<Vec<u8>, Vec<u8>> = Session::new(Role::Acceptor, PACKET_MAX_BYTES);
    for throw in input.throws {
        let bytes = match throw {
            Throw::Raw(bytes) => bytes,
            Throw::Rekey => {
                sealer.rekey();
                continue;
            }
            Throw::Sealed(bytes) => sealed(&mut sealer, input.is_sealed, bytes),
            Throw::Block { kind, plain, wire, data } => {
                let mut block = vec![kind & 3, 0];
                block.extend_from_slice(&plain.to_be_bytes());
                let wire = (data.len() as u32).saturating_add_signed(wire.into());
                block.extend_from_slice(&wire.to_be_bytes()[1..]);
                block.extend_from_slice(&data);
                sealed(&mut sealer, input.is_sealed, block)
            }
        };
        if peer.write_all(&bytes).is_err() {
            return;
        }
        loop {
            let mut turn = Bounded::default();
            let Ok(received) = path.receive(TURN_PACKETS, &mut session, &mut turn) else {
                return;
            };
            let most = path.turn_bytes() + inet_rdma_session::LARGE_BYTES;
            assert!(turn.packets <= TURN_PACKETS && turn.bytes <= most);
            while session.poll_event().is_some() {}
            if received == Received::All {
                break;
            }
        }
    }
});

fn sealed(sealer: &mut Sealer, is_sealed: bool, bytes: Vec<u8>) -> Vec<u8> {
    if !is_sealed || bytes.is_empty() || bytes.len() > 60_000 {
        return bytes;
    }
    let mut record = vec![0; bytes.len() + OVERHEAD_BYTES];
    sealer.seal(&[&bytes], &mut record);
    record
}
