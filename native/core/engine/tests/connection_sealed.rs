//! Sealed connections: a stranger that writes into their memory, or in the peer's place, can end them, and do nothing
//! else.

#[path = "../../assembly/tests/support/contents.rs"]
mod contents;
#[path = "support/message.rs"]
mod message;
#[path = "support/pair.rs"]
mod pair;
#[path = "../../fabric/tests/support/post.rs"]
mod post;
#[path = "support/sealed.rs"]
mod sealed;

use std::sync::Arc;
use std::time::Instant;

use inet_rdma_assembly::{Framing, ReadLimit, Received};
use inet_rdma_engine::connection::{Closed, Connection, ReadEnd};
use inet_rdma_fabric::QueuePair;
use inet_rdma_fabric_shm::ShmFabric;
use inet_rdma_records::{Cipher, ControlSealer, OVERHEAD_BYTES, RING_BYTES_MIN, Renewal, Violation};
use inet_rdma_stream::{Advert, Control, ControlBody, NewRing, Notice, Phase, RemoteAddress, Seq};
use message::Messages;
use pair::{Conn, Keys, Side};
use post::Post;
use sealed::{connect, read, sides, violation, write};

/// A stranger's queue pair, without keys, and the victim.
fn attacked() -> (Box<dyn QueuePair>, Arc<Conn>) {
    let [left, right] = sides(Cipher::Aes256Gcm);
    let (stranger, qp) = pair::queue_pairs(&ShmFabric, &left, &right);
    (stranger, right.connection(qp))
}

/// What the peer has written into this side's ring.
fn ring(of: &Conn, at: usize) -> *mut u8 {
    let memory = of.queue_pair().memory();
    assert!(at < memory.bytes());
    memory.base().wrapping_add(at)
}

#[test]
fn nothing_stands_in_the_ring_in_clear() {
    // Longer than the bytes that a queue entry takes.
    let secret = b"a secret that shows nowhere, be it said once or twice or more often";
    for keys in [None, Some(Cipher::Aes256Gcm), Some(Cipher::ChaCha20Poly1305)] {
        let [left, right] = match keys {
            None => [Side::default(); 2],
            Some(cipher) => sides(cipher),
        };
        let (writer, reader) = pair::connect(&ShmFabric, &left, &right);
        write(&writer, &[secret]);
        let seen: Vec<u8> = (0..4_096)
            // SAFETY: inside the ring, as `ring` has checked; the peer writes nothing meanwhile.
            .map(|at| unsafe { ring(&reader, at).read() })
            .collect();
        let shows = seen.windows(secret.len()).any(|window| window == secret);
        assert_eq!(shows, keys.is_none(), "{keys:?}");
        assert_eq!(read(&reader), (vec![secret.to_vec()], ReadEnd::Empty));
    }
}

#[test]
fn the_overhead_of_records_is_not_counted_as_read_by_the_peer() {
    let [left, right] = sides(Cipher::Aes256Gcm).map(|side| Side {
        ring_bytes: 8192,
        ..side
    });
    let (writer, reader) = pair::connect(&ShmFabric, &left, &right);
    let counted = |read: u64| {
        // The peer's acknowledgements.
        assert_eq!(self::read(&writer), (Vec::new(), ReadEnd::Empty));
        let counted = writer.connection().read_by_peer();
        assert!(counted <= read, "{counted} bytes, the peer has read {read}");
        counted
    };
    let body = [5; 100];
    let mut bytes = 0;
    for _ in 0..1000 {
        write(&writer, &[&body]);
        assert_eq!(read(&reader).1, ReadEnd::Empty);
        bytes += 4 + body.len() as u64;
        counted(bytes);
    }
    // Acknowledgements come for a quarter of the ring.
    assert!(counted(bytes) > bytes - 8192, "what is read is counted");
    for _ in 0..20 {
        write(&writer, &[&body]);
        counted(bytes);
    }
}

#[test]
fn a_byte_that_is_changed_in_the_ring_ends_the_connection() {
    let body = [5; 50];
    for at in 0..4 + body.len() + OVERHEAD_BYTES {
        let (writer, reader) = connect(Cipher::Aes256Gcm);
        write(&writer, &[&body]);
        // SAFETY: as above.
        unsafe { *ring(&reader, at) ^= 1 << (at % 8) };
        let (packets, end) = read(&reader);
        assert!(packets.is_empty(), "byte {at}: {packets:?}");
        violation(&end);
        assert_eq!(
            reader.connection().closed(),
            Some(match end {
                ReadEnd::Closed(closed) => closed,
                _ => unreachable!("a violation closes"),
            })
        );
        assert!(writer.queue_pair().check_alive().is_err(), "the peer must see it");
    }
}

#[test]
fn records_that_are_exchanged_end_the_connection() {
    let (writer, reader) = connect(Cipher::Aes256Gcm);
    write(&writer, &[&[1; 20]]);
    write(&writer, &[&[2; 20]]);
    let record = 4 + 20 + OVERHEAD_BYTES;
    for at in 0..record {
        // SAFETY: as above.
        unsafe { ring(&reader, at).swap(ring(&reader, record + at)) };
    }
    let (packets, end) = read(&reader);
    assert!(packets.is_empty());
    assert_eq!(violation(&end), Violation::RecordForged { sequence: 0 });
}

#[test]
fn a_record_that_is_repeated_ends_the_connection() {
    let (stranger, victim) = attacked();
    // A record of an honest peer, which the stranger has copied.
    let [left, right] = sides(Cipher::Aes256Gcm);
    let (writer, recorded) = pair::connect(&ShmFabric, &left, &right);
    write(&writer, &[&[1; 20]]);
    let record: Vec<u8> = (0..4 + 20 + OVERHEAD_BYTES)
        // SAFETY: as above.
        .map(|at| unsafe { ring(&recorded, at).read() })
        .collect();
    let mut target = stranger.remote_hello().ring;
    let notice = Notice {
        direct: false,
        bytes: record.len() as u32,
    };
    for _ in 0..2 {
        stranger.post(&[&record], target, notice).expect("room");
        target.address += record.len() as u64;
    }
    // The victim accepts the first record as the peer's: both connections have the same keys.
    let (packets, end) = read(&victim);
    assert_eq!(packets, [vec![1; 20]]);
    assert_eq!(violation(&end), Violation::RecordForged { sequence: 1 });
}

#[test]
fn a_notice_without_a_record_ends_the_connection() {
    for bytes in [1, 24, 25, 4_096] {
        let (stranger, victim) = attacked();
        let ring = stranger.remote_hello().ring;
        let notice = Notice { direct: false, bytes };
        stranger.post(&[&vec![0; bytes as usize]], ring, notice).expect("room");
        let (packets, end) = read(&victim);
        assert!(packets.is_empty());
        violation(&end);
    }
}

#[test]
fn controls_of_a_stranger_end_the_connection_and_change_nothing() {
    let advert = Advert {
        target: RemoteAddress { key: 1, address: 0 },
        bytes: 10,
        fill: false,
        seq: Seq(0),
        phase: Phase(0),
    };
    for body in [
        ControlBody::Credit,
        ControlBody::Advert(advert),
        ControlBody::Ack { freed: Seq(0) },
        ControlBody::Tick,
        ControlBody::Finish { end: Seq(0) },
    ] {
        let (stranger, victim) = attacked();
        let message = Control { credits: 0, body }.emit();
        stranger.post_control(&message).expect("room");
        let (packets, end) = read(&victim);
        assert!(packets.is_empty());
        // The byte of the generation is that of an advertisement's flags.
        let expected = match body {
            ControlBody::Advert(Advert { fill: true, .. }) => Violation::KeyGeneration { said: 1, present: 0 },
            _ => Violation::ControlForged { sequence: 0 },
        };
        assert_eq!(violation(&end), expected, "{body:?}");
        assert_eq!(
            victim.connection().packets(),
            (0, 0),
            "a tick of a stranger counts for nothing"
        );
    }
}

/// The peer itself sends it, as the message is sealed.
#[test]
fn a_further_ring_that_takes_no_records_ends_the_connection() {
    for bytes in [1, OVERHEAD_BYTES as u32, RING_BYTES_MIN - 1, RING_BYTES_MIN] {
        let (peer, victim) = attacked();
        let [protection, _] = Keys::pair(Cipher::Aes256Gcm).map(|keys| keys.protection());
        let secret = protection.send_key.of_controls();
        let mut controls = ControlSealer::new(protection.cipher, &secret, Renewal::RAREST, Instant::now());
        let target = peer.memory().remote_address(0);
        let body = ControlBody::Ring(NewRing { target, bytes });
        let mut message = Control { credits: 0, body }.emit();
        controls.seal(&mut message, Instant::now);
        peer.post_control(&message).expect("room");
        let (packets, end) = read(&victim);
        assert!(packets.is_empty());
        if bytes < RING_BYTES_MIN {
            assert_eq!(violation(&end), Violation::RecordRing(bytes));
        } else {
            assert_eq!(end, ReadEnd::Empty);
        }
    }
}

#[test]
fn a_stream_that_is_cut_off_has_no_end_in_order() {
    let (writer, reader) = connect(Cipher::Aes256Gcm);
    write(&writer, &[b"the last words"]);
    writer.queue_pair().disconnect();
    reader.connection().handle_liveness();
    let (packets, end) = read(&reader);
    assert_eq!(packets, [b"the last words".to_vec()]);
    assert_eq!(end, ReadEnd::Closed(Closed::PeerGone));
}

#[test]
fn a_stream_that_is_finished_ends_in_order() {
    let (writer, reader) = connect(Cipher::Aes256Gcm);
    write(&writer, &[b"the last words"]);
    writer.finish().expect("it is up");
    let (packets, end) = read(&reader);
    assert_eq!(packets, [b"the last words".to_vec()]);
    assert_eq!(end, ReadEnd::Closed(Closed::ByPeer));
}

#[test]
fn ticks_arrive_also_where_the_ring_is_full() {
    let (writer, reader) = connect(Cipher::Aes256Gcm);
    let messages = Messages::new(1, &[1 << 20]);
    let written = writer.write(&messages.gather(true), 0, usize::MAX).expect("it is up");
    assert!(written.blocked);
    writer.connection().tick().expect("it is up");
    reader.connection().attend(false);
    assert_eq!(reader.connection().packets().0, 1);
}

#[test]
fn a_plain_peer_is_no_sealed_one() {
    let [sealed, _] = sides(Cipher::Aes256Gcm);
    let (plain, sealed) = pair::connect(&ShmFabric, &Side::default(), &sealed);
    write(&plain, &[&[0; 100]]);
    violation(&read(&sealed).1);
}

#[test]
fn packets_of_one_record_share_its_buffer() {
    let (writer, reader) = connect(Cipher::Aes256Gcm);
    write(&writer, &[b"one", b"two", b"three"]);
    let mut out = Vec::new();
    reader.read(ReadLimit::bytes(usize::MAX), &mut out);
    assert!(matches!(&out[..], [Received::Batch { packets, .. }] if packets.len() == 3));
    assert_eq!(contents::packets(&out), [&b"one"[..], b"two", b"three"]);
}

#[test]
fn a_reader_with_a_limit_gets_one_packet_of_a_record_after_the_other() {
    let (writer, reader) = connect(Cipher::Aes256Gcm);
    write(&writer, &[b"one", b"two", b"three"]);
    let one = ReadLimit {
        packets: 1,
        ..ReadLimit::bytes(usize::MAX)
    };
    for expected in [&b"one"[..], b"two", b"three"] {
        assert!(!reader.arm_reader(), "there is more to read");
        let mut out = Vec::new();
        reader.read(one, &mut out);
        assert_eq!(contents::packets(&out), [expected]);
    }
    assert_eq!(read(&reader), (Vec::new(), ReadEnd::Empty));
}

#[test]
fn raw_reads_of_any_size_get_the_bytes_in_order() {
    let [mut left, mut right] = sides(Cipher::Aes256Gcm);
    (left.framing, right.framing) = (Framing::Raw, Framing::Raw);
    let (writer, reader) = pair::connect(&ShmFabric, &left, &right);
    let body = message::body(7, 0, 100_000);
    write(&writer, &[&body]);
    let mut random = fastrand::Rng::with_seed(3);
    let mut got = Vec::new();
    while got.len() < body.len() {
        let exact = random.usize(0..5_000).min(body.len() - got.len());
        let limit = ReadLimit {
            bytes: 3_000,
            packets: usize::MAX,
            exact,
        };
        let mut out = Vec::new();
        reader.read(limit, &mut out);
        let bytes = contents::packets(&out).concat();
        assert!(exact == 0 || bytes.is_empty() || bytes.len() == exact);
        got.extend(bytes);
    }
    assert_eq!(got, body);
}

#[test]
fn rings_that_take_no_records_are_refused() {
    for at in 0..2 {
        let mut sealed = sides(Cipher::Aes256Gcm);
        sealed[at].ring_bytes = RING_BYTES_MIN - 1;
        let (qp, _peer) = pair::queue_pairs(&ShmFabric, &sealed[0], &sealed[1]);
        let protection = sealed[0].keys.expect("sealed").protection();
        let made = Connection::new::<Vec<u8>>(
            qp,
            &sealed[0].parameters(),
            sealed[0].settings(),
            Framing::Length4,
            Some(&protection),
            Arc::new(()),
        );
        let refused = Closed::RecordsViolated(Violation::RecordRing(RING_BYTES_MIN - 1));
        assert_eq!(made.err(), Some(refused));
    }
}
