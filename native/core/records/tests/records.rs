//! What comes out of records is what went in, and nothing else comes out.

use std::time::{Duration, Instant};

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::hmac;
use inet_rdma_records::*;
use proptest::prelude::*;

const SEND: u8 = 3;

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
        Way::with(cipher, Renewal::RAREST)
    }

    fn with(cipher: Cipher, renewal: Renewal) -> Way {
        let [records, controls] = [key(SEND).of_records(), key(SEND).of_controls()];
        let now = Instant::now();
        Way {
            sealer: Sealer::new(cipher, &records, renewal, now),
            opener: Opener::new(cipher, &records),
            control_sealer: ControlSealer::new(cipher, &controls, renewal, now),
            control_opener: ControlOpener::new(cipher, &controls),
        }
    }

    fn seal(&mut self, plain: &[u8]) -> Vec<u8> {
        self.seal_slices(&[plain])
    }

    fn seal_slices(&mut self, plain: &[&[u8]]) -> Vec<u8> {
        let bytes: usize = plain.iter().map(|slice| slice.len()).sum();
        let mut record = vec![0; bytes + OVERHEAD_BYTES];
        self.sealer.seal(plain, &mut record);
        record
    }

    fn seal_control(&mut self, byte: u8) -> [u8; CONTROL_BYTES] {
        let mut message = control(byte);
        self.control_sealer.seal(&mut message, Instant::now);
        message
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
            let record = way.seal_slices(&slices);
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
            let mut message = way.seal_control(byte);
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
        let message = Way::new(cipher).seal_control(4);
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
    let messages: Vec<_> = (0..4).map(|byte| sender.seal_control(byte)).collect();
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
    let mut sender = Way::new(Cipher::Aes256Gcm);
    let record = sender.seal(b"here");
    let mut receiver = Way::new(Cipher::Aes256Gcm);
    receiver.opener.fill(1);
    assert_eq!(receiver.open(&record), Err(Violation::RecordForged { sequence: 0 }));
}

#[test]
fn the_other_direction_and_another_cipher_open_nothing() {
    let record = Way::new(Cipher::Aes256Gcm).seal(b"mine");
    let mut other = Way::new(Cipher::Aes256Gcm);
    other.opener = Opener::new(Cipher::Aes256Gcm, &key(9).of_records());
    assert!(other.open(&record).is_err());
    assert!(Way::new(Cipher::ChaCha20Poly1305).open(&record).is_err());
}

#[test]
fn a_ring_is_filled_up_to_its_end_where_no_record_fits() {
    let mut way = Way::new(Cipher::Aes256Gcm);
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
fn records_and_control_messages_have_keys_of_their_own() {
    let (records, controls) = (key(SEND).of_records(), key(SEND).of_controls());
    assert!(!records.is_same(&controls) && !records.is_same(&key(SEND)) && !controls.is_same(&key(SEND)));
}

#[test]
fn keys_change_after_so_many_bytes() {
    let renewal = Renewal { bytes: 60, age: None };
    let mut way = Way::with(Cipher::Aes256Gcm, renewal);
    let mut generations = Vec::new();
    for _ in 0..7 {
        // 40 bytes.
        let record = way.seal(&[0; 16]);
        generations.push(way.sealer.usage().generation);
        way.open(&record).expect("in order");
        assert_eq!(way.opener.generation(), way.sealer.usage().generation);
    }
    assert_eq!(generations, [0, 0, 1, 1, 2, 2, 3]);
    assert_eq!(way.sealer.usage().bytes, 40);
}

#[test]
fn a_key_that_was_used_changes_when_it_is_too_old() {
    let age = Duration::from_secs(10);
    let renewal = Renewal {
        bytes: u64::MAX,
        age: Some(age),
    };
    let secret = key(SEND);
    let start = Instant::now();
    let mut sealer = Sealer::new(Cipher::Aes256Gcm, &secret, renewal, start);
    let mut record = [0; 1 + OVERHEAD_BYTES];
    sealer.rekey_if_old(|| start + age);
    assert_eq!(sealer.usage().generation, 0, "it was not used");
    sealer.seal(&[&[0]], &mut record);
    sealer.rekey_if_old(|| start + age - Duration::from_nanos(1));
    assert_eq!(sealer.usage().generation, 0, "it is not old");
    sealer.rekey_if_old(|| start + age);
    assert_eq!(
        sealer.usage(),
        Usage {
            generation: 1,
            records: 0,
            bytes: 0
        }
    );
    sealer.seal(&[&[0]], &mut record);
    sealer.rekey_if_old(|| start + age);
    assert_eq!(sealer.usage().generation, 1);

    let mut controls = ControlSealer::new(Cipher::Aes256Gcm, &secret, renewal, start);
    let mut opener = ControlOpener::new(Cipher::Aes256Gcm, &secret);
    for (seconds, generation) in [(11, 0), (12, 1), (13, 1), (23, 2)] {
        let mut message = control(1);
        controls.seal(&mut message, || start + Duration::from_secs(seconds));
        assert_eq!(message[1], generation, "after {seconds} s");
        opener.open(&mut message).expect("the peer's");
    }
}

#[test]
fn without_an_age_nobody_looks_at_the_clock() {
    let mut way = Way::new(Cipher::Aes256Gcm);
    way.seal(b"one");
    way.sealer.rekey_if_old(|| unreachable!("no limit"));
    let mut message = control(1);
    for _ in 0..2 {
        way.control_sealer.seal(&mut message, || unreachable!("no limit"));
    }
}

#[test]
fn records_and_control_messages_change_keys_separately() {
    let mut way = Way::new(Cipher::Aes256Gcm);
    for generation in 1..=300 {
        let before = way.seal(b"before the change");
        way.sealer.rekey();
        let after = way.seal(b"after it");
        // Control messages and records overtake each other.
        let mut message = way.seal_control(1);
        way.control_opener.open(&mut message).expect("the peer's");
        assert_eq!(way.open(&before).as_deref(), Ok(&b"before the change"[..]));
        assert_eq!(way.open(&after).as_deref(), Ok(&b"after it"[..]));
        assert_eq!(way.opener.generation(), generation);
    }
}

#[test]
fn a_key_of_the_past_opens_nothing() {
    let mut way = Way::new(Cipher::Aes256Gcm);
    let old = way.seal(b"old");
    way.sealer.rekey();
    let new = way.seal(b"new");
    let newer = way.seal(b"newer");
    assert_eq!(way.open(&old).as_deref(), Ok(&b"old"[..]));
    assert_eq!(way.open(&new).as_deref(), Ok(&b"new"[..]));
    let refused = Violation::KeyGeneration { said: 0, present: 1 };
    assert_eq!(way.open(&old), Err(refused));
    assert_eq!(way.open(&newer).as_deref(), Ok(&b"newer"[..]));
}

#[test]
fn a_forged_record_of_the_next_generation_changes_no_key() {
    let mut way = Way::new(Cipher::Aes256Gcm);
    let mut forged = way.seal(b"record");
    let record = forged.clone();
    forged[4] = 1;
    assert_eq!(way.open(&forged), Err(Violation::RecordForged { sequence: 0 }));
    assert_eq!(way.opener.generation(), 0);
    assert_eq!(way.open(&record).as_deref(), Ok(&b"record"[..]));
}

#[test]
fn a_generation_that_is_not_the_next_is_refused() {
    let mut way = Way::new(Cipher::Aes256Gcm);
    way.sealer.rekey();
    way.sealer.rekey();
    let record = way.seal(b"two ahead");
    let refused = Violation::KeyGeneration { said: 2, present: 0 };
    assert_eq!(way.open(&record), Err(refused));
    let mut message = way.seal_control(1);
    message[1] = 2;
    assert_eq!(way.control_opener.open(&mut message), Err(refused));
}

/// HKDF-Expand of 32 bytes, which is one HMAC.
fn expand(secret: &[u8], label: &[u8]) -> Vec<u8> {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
    hmac::sign(&key, &[label, &[1]].concat()).as_ref().to_vec()
}

/// `plain` and its tag, under the key of this secret.
fn sealed_under(secret: &[u8], nonce: [u8; 12], aad: &[u8], plain: &[u8]) -> Vec<u8> {
    let key = UnboundKey::new(&AES_256_GCM, &expand(secret, b"inet_rdma key")).expect("32 bytes");
    let mut sealed = plain.to_vec();
    LessSafeKey::new(key)
        .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(aad), &mut sealed)
        .expect("sealed");
    sealed
}

/// The documentation says how another implementation makes these records. Their numbers count on under a new key.
#[test]
fn records_are_made_as_the_protocol_says() {
    let mut way = Way::new(Cipher::Aes256Gcm);
    way.seal(&[0; 10]);
    let mut secret = expand(&[SEND; KEY_BYTES], b"inet_rdma records");
    let mut position = (10 + OVERHEAD_BYTES) as u64;
    for generation in 0..3u8 {
        let record = way.seal(b"record");
        let mut expected = Vec::new();
        expected.extend_from_slice(&6u32.to_le_bytes());
        expected.extend_from_slice(&u32::from(generation).to_le_bytes());
        let aad = [expected.as_slice(), &position.to_le_bytes()].concat();
        let nonce = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1 + generation];
        expected.extend_from_slice(&sealed_under(&secret, nonce, &aad, b"record"));
        assert_eq!(record, expected);
        position += record.len() as u64;
        way.sealer.rekey();
        secret = expand(&secret, b"inet_rdma next");
    }
}

/// As [`records_are_made_as_the_protocol_says`].
#[test]
fn control_messages_are_made_as_the_protocol_says() {
    let renewal = Renewal {
        bytes: u64::MAX,
        age: Some(Duration::ZERO),
    };
    let mut way = Way::with(Cipher::Aes256Gcm, renewal);
    let mut secret = expand(&[SEND; KEY_BYTES], b"inet_rdma controls");
    for generation in 0..3u8 {
        let mut expected = control(4);
        expected[1] = generation;
        let nonce = [0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, generation];
        let tag = sealed_under(&secret, nonce, &expected[..24], &[]);
        expected[24..].copy_from_slice(&tag);
        assert_eq!(way.seal_control(4), expected);
        secret = expand(&secret, b"inet_rdma next");
    }
}

#[test]
fn a_key_shows_nothing_of_itself() {
    assert_eq!(format!("{:?}", key(7)), "Key");
    assert!(Key::new(&[1; 31]).is_none() && Key::new(&[1; 33]).is_none());
}
