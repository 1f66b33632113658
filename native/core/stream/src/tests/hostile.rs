//! A peer that lies: each lie has its violation.

use crate::*;

fn limits() -> Limits {
    Limits {
        ring_bytes: 8,
        receive_slots: 16,
        adverts: 2,
    }
}

/// The address of the peer's ring.
const RING: RemoteAddress = RemoteAddress { key: 9, address: 512 };

fn stream() -> Stream {
    Stream::new(Mode::Dynamic, limits(), limits(), RING).expect("good limits")
}

fn say(stream: &mut Stream, body: ControlBody) -> Result<ControlEvent, Violation> {
    stream.handle_control(&Control { credits: 0, body }.emit())
}

/// The advertisement of a buffer of 4 bytes.
fn advert(phase: u64, seq: u64, address: u64) -> ControlBody {
    ControlBody::Advert(Advert {
        target: RemoteAddress { key: 1, address },
        bytes: 4,
        fill: false,
        seq: Seq(seq),
        phase: Phase(phase),
    })
}

fn ack(freed: u64) -> ControlBody {
    ControlBody::Ack { freed: Seq(freed) }
}

fn finish(end: u64) -> ControlBody {
    ControlBody::Finish { end: Seq(end) }
}

fn indirect(bytes: u32) -> Notice {
    Notice { direct: false, bytes }
}

fn direct(bytes: u32) -> Notice {
    Notice { direct: true, bytes }
}

/// Posts a receive of 4 bytes.
fn post(stream: &mut Stream) {
    stream.post_receive(Receive {
        id: ReceiveId(1),
        target: RemoteAddress { key: 2, address: 64 },
        bytes: 4,
        fill: false,
    });
}

/// Posts a receive and sends its advertisement.
fn advertise(stream: &mut Stream) {
    post(stream);
    let body = stream.poll_control().map(|control| control.body);
    assert!(matches!(body, Some(ControlBody::Advert(_))));
}

#[test]
fn a_transfer_of_no_bytes_or_too_many() {
    assert_eq!(stream().handle_notice(direct(0)), Err(Violation::NoticeBytes(0)));
    assert_eq!(
        stream().handle_notice(direct(1 << 31)),
        Err(Violation::NoticeBytes(1 << 31))
    );
}

#[test]
fn more_bytes_than_the_ring_has_free() {
    let mut stream = stream();
    assert!(stream.handle_notice(indirect(6)).is_ok());
    assert_eq!(
        stream.handle_notice(indirect(3)),
        Err(Violation::RingOverflow { bytes: 3, free: 2 })
    );
}

#[test]
fn a_write_over_the_end_of_the_ring() {
    let mut stream = stream();
    assert!(stream.handle_notice(indirect(6)).is_ok());
    stream.handle_copied(6);
    assert_eq!(
        stream.handle_notice(indirect(3)),
        Err(Violation::RingWrap {
            bytes: 3,
            contiguous: 2
        })
    );
}

#[test]
fn a_direct_transfer_with_nothing_advertised() {
    assert_eq!(stream().handle_notice(direct(1)), Err(Violation::DirectUnadvertised));
}

#[test]
fn a_direct_transfer_into_a_receive_that_was_only_posted() {
    let mut stream = stream();
    post(&mut stream);
    assert_eq!(stream.handle_notice(direct(1)), Err(Violation::DirectUnadvertised));
}

#[test]
fn a_direct_transfer_into_a_buffer_of_a_passed_phase() {
    let mut stream = stream();
    advertise(&mut stream);
    assert!(stream.handle_notice(indirect(1)).is_ok());
    assert_eq!(stream.handle_notice(direct(1)), Err(Violation::DirectUnadvertised));
}

#[test]
fn a_direct_transfer_longer_than_the_buffer() {
    let mut stream = stream();
    advertise(&mut stream);
    assert_eq!(
        stream.handle_notice(direct(5)),
        Err(Violation::DirectTooLong { bytes: 5, room: 4 })
    );
}

#[test]
fn an_acknowledgement_of_bytes_never_sent() {
    let (freed, written) = (Seq(1), Seq(0));
    let expected = Violation::AckUnsent { freed, written };
    assert_eq!(say(&mut stream(), ack(1)), Err(expected));
}

#[test]
fn an_acknowledgement_taken_back() {
    let mut stream = stream();
    assert!(stream.poll_transfer(Offer { indirect: 4, direct: 4 }).is_some());
    assert_eq!(say(&mut stream, ack(4)), Ok(ControlEvent::Writable));
    let (freed, before) = (Seq(3), Seq(4));
    let expected = Violation::AckBack { freed, before };
    assert_eq!(say(&mut stream, ack(3)), Err(expected));
}

#[test]
fn more_advertisements_than_announced() {
    let mut stream = stream();
    for seq in 0..2 {
        assert_eq!(say(&mut stream, advert(0, seq, 4096)), Ok(ControlEvent::Writable));
    }
    assert_eq!(
        say(&mut stream, advert(0, 2, 4096)),
        Err(Violation::AdvertExcess { max: 2 })
    );
}

#[test]
fn an_advertisement_for_an_odd_phase() {
    let expected = Violation::AdvertIndirect { phase: Phase(1) };
    assert_eq!(say(&mut stream(), advert(1, 0, 4096)), Err(expected));
}

#[test]
fn an_advertisement_for_a_phase_that_cannot_have_come() {
    for phase in [2, 4, u64::MAX - 1] {
        let expected = Violation::AdvertPhase {
            phase: Phase(phase),
            before: Phase(0),
        };
        assert_eq!(say(&mut stream(), advert(phase, 0, 4096)), Err(expected));
    }
}

#[test]
fn an_advertisement_for_a_phase_that_has_passed() {
    let mut stream = stream();
    assert!(stream.poll_transfer(Offer { indirect: 1, direct: 1 }).is_some());
    assert_eq!(say(&mut stream, advert(2, 1, 4096)), Ok(ControlEvent::Writable));
    let (phase, before) = (Phase(0), Phase(2));
    let expected = Violation::AdvertPhase { phase, before };
    assert_eq!(say(&mut stream, advert(0, 1, 4096)), Err(expected));
}

#[test]
fn an_advertisement_for_a_byte_that_was_never_sent() {
    let (seq, least, most) = (Seq(1), Seq(0), Seq(0));
    let expected = Violation::AdvertSeq { seq, least, most };
    assert_eq!(say(&mut stream(), advert(0, 1, 4096)), Err(expected));
}

#[test]
fn two_advertisements_for_the_same_byte() {
    let mut stream = stream();
    assert!(say(&mut stream, advert(0, 0, 4096)).is_ok());
    let (seq, least, most) = (Seq(0), Seq(1), Seq(1));
    let expected = Violation::AdvertSeq { seq, least, most };
    assert_eq!(say(&mut stream, advert(0, 0, 4096)), Err(expected));
}

#[test]
fn a_buffer_over_the_end_of_the_address_space() {
    let wild = advert(0, 0, u64::MAX - 2);
    assert_eq!(say(&mut stream(), wild), Err(Violation::AdvertAddress));
}

#[test]
fn more_credits_than_slots() {
    let message = Control {
        credits: 1,
        body: ControlBody::Credit,
    };
    let expected = Violation::CreditExcess {
        credits: 1,
        known: 16,
        slots: 16,
    };
    assert_eq!(stream().handle_control(&message.emit()), Err(expected));
}

#[test]
fn more_messages_than_slots() {
    let mut stream = stream();
    for _ in 0..16 {
        assert_eq!(say(&mut stream, ControlBody::Tick), Ok(ControlEvent::Ticked));
    }
    assert_eq!(
        say(&mut stream, ControlBody::Tick),
        Err(Violation::SlotsOverrun { slots: 16 })
    );
}

#[test]
fn bytes_after_the_end() {
    let mut stream = stream();
    assert!(stream.handle_notice(indirect(2)).is_ok());
    assert_eq!(say(&mut stream, finish(3)), Ok(ControlEvent::Finished));
    let expected = Violation::DataAfterFinish { bytes: 2, end: Seq(3) };
    assert_eq!(stream.handle_notice(indirect(2)), Err(expected));
}

#[test]
fn an_end_before_what_has_arrived() {
    let mut stream = stream();
    assert!(stream.handle_notice(indirect(2)).is_ok());
    let (end, arrived) = (Seq(1), Seq(2));
    let expected = Violation::FinishShort { end, arrived };
    assert_eq!(say(&mut stream, finish(1)), Err(expected));
}

#[test]
fn two_ends() {
    let mut stream = stream();
    assert!(say(&mut stream, finish(0)).is_ok());
    assert_eq!(say(&mut stream, finish(0)), Err(Violation::FinishTwice));
}

#[test]
fn a_mark_that_nothing_asked_for() {
    let mut stream = stream();
    assert_eq!(stream.handle_notice(Notice::MARK), Err(Violation::MarkUnasked));
    assert!(stream.recall());
    // The question has not been sent.
    assert_eq!(stream.handle_notice(Notice::MARK), Err(Violation::MarkUnasked));
    assert!(stream.poll_control().is_some());
    assert_eq!(stream.handle_notice(Notice::MARK), Ok(Arrival::Mark { ring: false }));
    assert_eq!(stream.handle_notice(Notice::MARK), Err(Violation::MarkUnasked));
}

#[test]
fn a_mark_that_is_asked_for_twice() {
    let mut stream = stream();
    assert_eq!(say(&mut stream, ControlBody::Recall), Ok(ControlEvent::Writable));
    assert_eq!(say(&mut stream, ControlBody::Recall), Err(Violation::AskedTwice));
    assert!(stream.poll_mark().is_some());
    assert_eq!(say(&mut stream, ControlBody::Recall), Ok(ControlEvent::Writable));
}

#[test]
fn a_ring_over_the_end_of_the_address_space() {
    let target = RemoteAddress {
        key: 1,
        address: u64::MAX - 2,
    };
    let wild = ControlBody::Ring(NewRing { target, bytes: 4 });
    assert_eq!(say(&mut stream(), wild), Err(Violation::RingAddress));
}

#[test]
fn more_bytes_than_can_be_counted() {
    let mut stream =
        Stream::starting_at(Mode::Dynamic, limits(), (limits(), RING), Seq(u64::MAX)).expect("good limits");
    assert_eq!(stream.handle_notice(indirect(1)), Err(Violation::TooManyBytes));
}

#[test]
fn bytes_that_are_no_message() {
    let expected = Violation::Wire(WireError::Kind(0));
    assert_eq!(stream().handle_control(&[0; CONTROL_BYTES]), Err(expected));
}
