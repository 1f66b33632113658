//! Packets as a stream has them.

use inet_rdma_assembly::Framing;

/// The packets, each after its header.
pub fn framed(framing: Framing, packets: &[Vec<u8>]) -> Vec<u8> {
    let mut stream = Vec::new();
    for packet in packets {
        stream.extend(framing.header(packet.len()).expect("a length that fits").as_slice());
        stream.extend(packet);
    }
    stream
}
