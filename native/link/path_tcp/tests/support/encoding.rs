//! A path of any coding, for tests of what all codings have in common.

use std::net::TcpStream;

use inet_rdma_path_tcp::{Codec, Protection, TcpPath};
use inet_rdma_records::{Cipher, Key, Renewal};

fn key(side: u8) -> Key {
    Key::new(&[side; 32]).expect("32 bytes")
}

/// The path of side 0 or 1 over this connection. It compresses both directions, and seals them, if asked to.
pub fn path(stream: &TcpStream, side: u8, is_compressed: bool, is_sealed: bool) -> TcpPath {
    stream.set_nonblocking(true).expect("nonblocking");
    let mut path = TcpPath::adopt(stream.try_clone().expect("a descriptor").into());
    if is_sealed {
        path.seal(&Protection {
            cipher: Cipher::Aes256Gcm,
            send_key: key(side),
            receive_key: key(1 - side),
            renewal: Renewal {
                bytes: 1 << 20,
                age: None,
            },
        });
    }
    path.compress(Codec::new(is_compressed, is_compressed).expect("memory"));
    path
}
