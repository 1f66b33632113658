//! What comes out of records is what went in, and nothing else comes out.

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use inet_rdma_records::*;
use proptest::prelude::*;

const RING_BYTES: u32 = 4_096;
const SEND: [u8; KEY_BYTES] = [3; KEY_BYTES];

fn key(byte: u8) -> Key {
    Key::new(&[byte; KEY_BYTES]).expect("32 bytes")
}

/// Both ends of one direction.
struct Way {
    sealer: Sealer,
    opener: Opener,
    control_sealer: ControlSealer,
    control_opener: ControlOpener,
}

impl Way {
    fn new(cipher: Cipher) -> Way {
        Way::through(cipher, RING_BYTES)
    }

    fn through(cipher: Cipher, ring_bytes: u32) -> Way {
        let (sealer, control_sealer) = Sealer::new(cipher, &key(SEND[0]), ring_bytes, u64::MAX).expect("a ring");
        let (opener, control_opener) = Opener::new(cipher, &key(SEND[0]), ring_bytes).expect("a ring");
        Way {
            sealer,
            opener,
            control_sealer,
            control_opener,
        }
    }

    fn seal(&mut self, plain: &[u8]) -> Vec<u8> {
        self.sealer.check().expect("a fresh key");
        self.sealer.seal(plain.len(), &[plain]).to_vec()
    }

    fn open(&mut self, record: &[u8]) -> Result<Vec<u8>, Violation> {
        if record.len() < RECORD_BYTES_MIN {
            return Err(Violation::RecordCut {
                bytes: RECORD_BYTES_MIN,
                arrived: record.len(),
            });
        }
        let header = Header::parse(record[..HEADER_BYTES].try_into().expect("8 bytes"), record.len())?;
        let behind = HEADER_BYTES + header.plain_bytes;
        let mut plain = record[HEADER_BYTES..behind].to_vec();
        let tag = record[behind..behind + TAG_BYTES].try_into().expect("16 bytes");
        self.opener.open(header, &tag, &mut plain)?;
        Ok(plain)
    }

    fn rekey(&mut self, generation: u32, byte: u8) {
        self.opener
            .install(generation, &key(byte), &mut self.control_opener)
            .expect("the next one");
        self.sealer
            .rekey(generation, &key(byte), &mut self.control_sealer)
            .expect("the next one");
    }
}

fn control(byte: u8) -> [u8; CONTROL_BYTES] {
    let mut message = [0; CONTROL_BYTES];
    // Kind, credits and sequence number: all that the kinds of a sealed stream use.
    message[0] = byte % 5 + 1;
    message[2] = byte;
    message[16..24].fill(byte);
    message
}

fn ciphers() -> impl Strategy<Value = Cipher> {
    prop::sample::select(&Cipher::ALL[..])
}

proptest! {
    #[test]
    fn records_open_to_the_bytes_that_were_sealed(
        cipher in ciphers(),
        records in prop::collection::vec(prop::collection::vec(any::<Vec<u8>>(), 1..6), 1..20),
    ) {
        let mut way = Way::new(cipher);
        for slices in records {
            let plain = slices.concat();
            prop_assume!(!plain.is_empty());
            let slices: Vec<&[u8]> = slices.iter().map(Vec::as_slice).collect();
            let record = way.sealer.seal(plain.len(), &slices).to_vec();
            prop_assert_eq!(record.len(), plain.len() + OVERHEAD_BYTES);
            prop_assert_eq!(way.open(&record), Ok(plain));
        }
    }

    #[test]
    fn nothing_but_the_records_of_the_peer_is_opened(
        cipher in ciphers(),
        garbage in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        prop_assert!(Way::new(cipher).open(&garbage).is_err());
    }

    #[test]
    fn controls_come_out_as_they_went_in(cipher in ciphers(), said in prop::collection::vec(any::<u8>(), 1..20)) {
        let mut way = Way::new(cipher);
        for byte in said {
            let mut message = control(byte);
            way.control_sealer.seal(&mut message).expect("a fresh key");
            way.control_opener.open(&mut message).expect("the peer's");
            prop_assert_eq!(message, control(byte));
        }
    }
}

#[test]
fn no_bit_of_a_record_can_change() {
    for cipher in Cipher::ALL {
        let record = Way::new(cipher).seal(b"a record of some bytes");
        for bit in 0..record.len() * 8 {
            let mut changed = record.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            let opened = Way::new(cipher).open(&changed);
            assert!(opened.is_err(), "bit {bit} changed, and it came out as {opened:?}");
        }
        assert!(Way::new(cipher).open(&record).is_ok());
    }
}

#[test]
fn no_bit_of_a_control_message_can_change() {
    for cipher in Cipher::ALL {
        let mut message = control(4);
        Way::new(cipher).control_sealer.seal(&mut message).expect("a fresh key");
        for bit in 0..CONTROL_BYTES * 8 {
            let mut changed = message;
            changed[bit / 8] ^= 1 << (bit % 8);
            let opened = Way::new(cipher).control_opener.open(&mut changed);
            assert!(opened.is_err(), "bit {bit} changed");
        }
    }
}

#[test]
fn a_record_cut_anywhere_is_none() {
    let record = Way::new(Cipher::Aes256Gcm).seal(b"cut");
    for bytes in 0..record.len() {
        let opened = Way::new(Cipher::Aes256Gcm).open(&record[..bytes]);
        assert!(
            matches!(opened, Err(Violation::RecordCut { .. })),
            "{bytes}: {opened:?}"
        );
    }
}

#[test]
fn records_repeated_left_out_or_exchanged_are_found() {
    let mut sender = Way::new(Cipher::Aes256Gcm);
    let records: Vec<_> = (0..4u8).map(|byte| sender.seal(&[byte; 10])).collect();
    for order in [[0, 0], [0, 2], [1, 0], [3, 1]] {
        let mut receiver = Way::new(Cipher::Aes256Gcm);
        let ends = order.iter().any(|&index| receiver.open(&records[index]).is_err());
        assert!(ends, "taken in the order {order:?}");
    }
}

#[test]
fn controls_repeated_left_out_or_exchanged_are_found() {
    let mut sender = Way::new(Cipher::Aes256Gcm);
    let messages: Vec<_> = (0..4)
        .map(|byte| {
            let mut message = control(byte);
            sender.control_sealer.seal(&mut message).expect("a fresh key");
            message
        })
        .collect();
    for order in [[0, 0], [0, 2], [1, 0], [3, 1]] {
        let mut receiver = Way::new(Cipher::Aes256Gcm);
        let ends = order
            .iter()
            .any(|&index| receiver.control_opener.open(&mut messages[index].clone()).is_err());
        assert!(ends, "taken in the order {order:?}");
    }
}

#[test]
fn a_record_is_good_for_its_place_alone() {
    let mut sender = Way::through(Cipher::Aes256Gcm, 64);
    let record = sender.seal(b"here");
    let mut receiver = Way::through(Cipher::Aes256Gcm, 64);
    receiver.opener.fill(1);
    assert_eq!(receiver.open(&record), Err(Violation::RecordForged { sequence: 0 }));
}

#[test]
fn the_other_direction_and_another_cipher_open_nothing() {
    let record = Way::new(Cipher::Aes256Gcm).seal(b"mine");
    let mut other = Way::new(Cipher::Aes256Gcm);
    (other.opener, other.control_opener) = Opener::new(Cipher::Aes256Gcm, &key(9), RING_BYTES).expect("a ring");
    assert!(other.open(&record).is_err());
    assert!(Way::new(Cipher::ChaCha20Poly1305).open(&record).is_err());
}

#[test]
fn a_ring_is_filled_up_to_its_end_where_no_record_fits() {
    let mut way = Way::through(Cipher::Aes256Gcm, 100);
    let mut to_end = 100;
    // 60 bytes, then 25, then 15 are left: too few.
    for (plain, filling) in [(36, None), (1, Some(15))] {
        let record = way.seal(&vec![1; plain]);
        way.open(&record).expect("in order");
        to_end -= record.len();
        assert_eq!(inet_rdma_records::filling(to_end), filling);
    }
    way.sealer.fill(15);
    way.opener.fill(15);
    let record = way.seal(&[7; 50]);
    assert_eq!(way.open(&record), Ok(vec![7; 50]));
}

#[test]
fn small_rings_take_no_records() {
    let refused = Err(Violation::RecordRing(63));
    let cipher = Cipher::Aes256Gcm;
    assert_eq!(Sealer::new(cipher, &key(1), 63, 1).map(|_| ()), refused);
    assert_eq!(Opener::new(cipher, &key(1), 63).map(|_| ()), refused);
}

#[test]
fn sizes_that_no_record_has_are_refused() {
    for bytes in [0, PLAIN_BYTES_MAX + 1, u32::MAX as usize] {
        let header = Header {
            plain_bytes: bytes,
            generation: 0,
        };
        let parsed = Header::parse(header.emit(), usize::MAX);
        let max = PLAIN_BYTES_MAX;
        assert_eq!(parsed, Err(Violation::RecordBytes { bytes, max }));
    }
}

#[test]
fn keys_change_with_records_and_controls_under_way() {
    let mut way = Way::new(Cipher::Aes256Gcm);
    for generation in 1..=10 {
        let under_way = way.seal(b"before the change");
        let mut message = control(1);
        way.control_sealer.seal(&mut message).expect("a fresh key");
        way.rekey(generation, generation as u8 + 10);
        let behind = way.seal(b"behind it");
        let mut behind_message = control(2);
        way.control_sealer.seal(&mut behind_message).expect("a fresh key");
        assert_eq!(way.sealer.usage().records, 1, "counted anew");
        // Controls and records overtake each other.
        assert_eq!(way.open(&under_way).as_deref(), Ok(&b"before the change"[..]));
        assert_eq!(way.open(&behind).as_deref(), Ok(&b"behind it"[..]));
        way.control_opener.open(&mut message).expect("the peer's");
        way.control_opener.open(&mut behind_message).expect("the peer's");
        assert_eq!(way.opener.generation(), generation);
    }
}

#[test]
fn a_key_of_the_past_opens_nothing() {
    let mut way = Way::new(Cipher::Aes256Gcm);
    let old = way.seal(b"old");
    way.rekey(1, 50);
    let new = way.seal(b"new");
    let mut receiver = Way::new(Cipher::Aes256Gcm);
    receiver.rekey(1, 50);
    // Left out: the first. The record of the new key is not at its place.
    assert!(receiver.open(&new).is_err());
    assert!(matches!(
        receiver.open(&old),
        Err(Violation::KeyGeneration { said: 0, present: 1 })
    ));
}

#[test]
fn keys_come_in_order_and_not_too_many_at_a_time() {
    let mut way = Way::new(Cipher::Aes256Gcm);
    let mut install = |generation| way.opener.install(generation, &key(5), &mut way.control_opener);
    assert_eq!(install(0), Err(KeyRefused::Generation { said: 0, next: 1 }));
    assert_eq!(install(2), Err(KeyRefused::Generation { said: 2, next: 1 }));
    for generation in 1..KEYS_MAX as u32 {
        assert_eq!(install(generation), Ok(()));
    }
    let next = KEYS_MAX as u32;
    assert_eq!(install(next), Err(KeyRefused::TooMany(KEYS_MAX - 1)));
    let renewed = way.sealer.rekey(2, &key(5), &mut way.control_sealer);
    assert_eq!(renewed, Err(KeyRefused::Generation { said: 2, next: 1 }));
}

/// A control message shows each change.
#[test]
fn keys_change_where_no_records_come() {
    let mut way = Way::new(Cipher::Aes256Gcm);
    for generation in 1..=3 * KEYS_MAX as u32 {
        way.opener.drop_passed(&way.control_opener);
        way.rekey(generation, 5);
        let mut message = control(1);
        way.control_sealer.seal(&mut message).expect("a fresh key");
        way.control_opener.open(&mut message).expect("the peer's");
    }
    way.opener.drop_passed(&way.control_opener);
    assert_eq!(way.opener.generation(), 3 * KEYS_MAX as u32);
    let record = way.seal(b"the first");
    assert_eq!(way.open(&record).as_deref(), Ok(&b"the first"[..]));
}

#[test]
fn a_key_is_kept_until_a_control_message_comes_under_a_later_one() {
    let mut way = Way::new(Cipher::Aes256Gcm);
    let record = way.seal(b"under way");
    let mut message = control(1);
    way.control_sealer.seal(&mut message).expect("a fresh key");
    way.rekey(1, 5);
    way.control_opener.open(&mut message).expect("the peer's");
    way.opener.drop_passed(&way.control_opener);
    assert_eq!(way.open(&record).as_deref(), Ok(&b"under way"[..]));
    // A record shows the change first.
    let record = way.seal(b"under the new key");
    assert_eq!(way.open(&record).as_deref(), Ok(&b"under the new key"[..]));
    way.opener.drop_passed(&way.control_opener);
    assert_eq!(way.opener.generation(), 1, "nothing goes back");
}

#[test]
fn the_user_is_asked_once_for_each_key() {
    let (mut sealer, mut control) = Sealer::new(Cipher::Aes256Gcm, &key(1), RING_BYTES, 100).expect("a ring");
    for generation in 1..4 {
        sealer.seal(60, &[&[0; 60]]);
        assert!(!sealer.take_due());
        sealer.seal(60, &[&[0; 60]]);
        assert!(sealer.take_due());
        sealer.seal(60, &[&[0; 60]]);
        assert!(!sealer.take_due(), "asked twice");
        sealer.rekey(generation, &key(2), &mut control).expect("the next one");
    }
}

/// The crate's documentation says how another implementation makes this record.
#[test]
fn a_record_is_made_as_the_protocol_says() {
    let mut way = Way::new(Cipher::Aes256Gcm);
    way.seal(&[0; 10]);
    let record = way.seal(b"second");
    let mut expected = Vec::new();
    expected.extend_from_slice(&6u32.to_le_bytes());
    expected.extend_from_slice(&0u32.to_le_bytes());
    let position = (10 + OVERHEAD_BYTES) as u64;
    let aad = [expected.as_slice(), &position.to_le_bytes()].concat();
    let nonce = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    let mut sealed = b"second".to_vec();
    LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &SEND).expect("32 bytes"))
        .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(aad), &mut sealed)
        .expect("sealed");
    expected.extend_from_slice(&sealed);
    assert_eq!(record, expected);
}

#[test]
fn a_key_shows_nothing_of_itself() {
    assert_eq!(format!("{:?}", key(7)), "Key");
    assert!(Key::new(&[1; 31]).is_none() && Key::new(&[1; 33]).is_none());
}
