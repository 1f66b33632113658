//! Examples of the stream's behaviour towards its caller.

use inet_rdma_stream::{
    Arrival, Control, ControlBody, ControlEvent, Limits, LimitsError, Mode, NewRing, Notice, Offer, Receive, ReceiveId,
    RemoteAddress, RingSpan, Seq, Stream, TRANSFER_BYTES_MAX, Transfer,
};

const LIMITS: Limits = Limits {
    ring_bytes: 100,
    receive_slots: 8,
    adverts: 2,
};
const TARGET: RemoteAddress = RemoteAddress { key: 9, address: 4096 };
/// The address of each side's ring.
const RING: RemoteAddress = RemoteAddress { key: 8, address: 512 };

fn pair_in(mode: Mode) -> (Stream, Stream) {
    let stream = || Stream::new(mode, LIMITS, LIMITS, RING).expect("good limits");
    (stream(), stream())
}

fn pair() -> (Stream, Stream) {
    pair_in(Mode::Dynamic)
}

fn post(stream: &mut Stream, id: u64, bytes: u32, fill: bool) {
    stream.post_receive(Receive {
        id: ReceiveId(id),
        target: TARGET,
        bytes,
        fill,
    });
}

/// Offers `bytes` for either kind.
fn send(stream: &mut Stream, bytes: u32) -> Transfer {
    stream
        .poll_transfer(Offer {
            indirect: bytes,
            direct: bytes,
        })
        .expect("room for a transfer")
}

fn indirect(target: RemoteAddress, bytes: u32) -> Transfer {
    let notice = Notice { direct: false, bytes };
    Transfer { target, notice }
}

/// The first of the runs that can be read.
fn readable(stream: &Stream) -> RingSpan {
    stream.ring_readable()[0]
}

/// Sends bytes and lets them arrive.
fn pass(from: &mut Stream, to: &mut Stream, bytes: u32) -> Arrival {
    to.handle_notice(send(from, bytes).notice).expect("honest")
}

/// Lets the control messages of `from` arrive. Returns their events.
fn controls(from: &mut Stream, to: &mut Stream) -> Vec<ControlEvent> {
    std::iter::from_fn(|| from.poll_control())
        .map(|control| to.handle_control(&control.emit()).expect("honest"))
        .collect()
}

#[test]
fn with_nothing_advertised_bytes_go_through_the_ring() {
    let (mut a, mut b) = pair();
    assert_eq!(send(&mut a, 30), indirect(RING, 30));
    let behind = RemoteAddress {
        address: RING.address + 30,
        ..RING
    };
    assert_eq!(send(&mut a, 80), indirect(behind, 70), "as much as fits");
    assert_eq!(
        a.poll_transfer(Offer { indirect: 1, direct: 1 }),
        None,
        "the ring is full"
    );
    let first = Notice {
        direct: false,
        bytes: 30,
    };
    assert_eq!(b.handle_notice(first), Ok(Arrival::Ring { bytes: 30 }));
    assert_eq!(readable(&b), RingSpan { offset: 0, bytes: 30 });
}

#[test]
fn a_run_ends_where_the_ring_ends() {
    let (mut a, mut b) = pair();
    pass(&mut a, &mut b, 80);
    b.handle_copied(80);
    assert_eq!(controls(&mut b, &mut a), [ControlEvent::Writable]);
    assert_eq!(a.indirect_room(), 20);
    pass(&mut a, &mut b, 50);
    pass(&mut a, &mut b, 30);
    assert_eq!(
        (readable(&b), b.ring_bytes_readable()),
        (RingSpan { offset: 80, bytes: 20 }, 50)
    );
    b.handle_copied(20);
    assert_eq!(readable(&b), RingSpan { offset: 0, bytes: 30 });
}

#[test]
fn an_advertised_buffer_is_written_directly() {
    let (mut a, mut b) = pair();
    post(&mut b, 1, 1000, false);
    assert_eq!(controls(&mut b, &mut a), [ControlEvent::Writable]);
    assert_eq!(a.direct_room(), Some(1000));
    let transfer = send(&mut a, 600);
    let Transfer { target, notice } = transfer;
    assert_eq!((target, notice.direct, notice.bytes), (TARGET, true, 600));
    let expected = Arrival::Direct {
        id: ReceiveId(1),
        offset: 0,
        bytes: 600,
        done: true,
    };
    assert_eq!(b.handle_notice(notice), Ok(expected));
    assert_eq!((a.direct_room(), b.outstanding_receives()), (None, 0));
}

#[test]
fn a_buffer_that_must_be_filled_takes_several_transfers() {
    let (mut a, mut b) = pair();
    post(&mut b, 1, 50, true);
    controls(&mut b, &mut a);
    let id = ReceiveId(1);
    assert_eq!(
        pass(&mut a, &mut b, 20),
        Arrival::Direct {
            id,
            offset: 0,
            bytes: 20,
            done: false
        }
    );
    let Transfer { target, .. } = send(&mut a, 10);
    assert_eq!(target.address, TARGET.address + 20);
}

#[test]
fn a_half_filled_buffer_comes_back_behind_a_ring_write() {
    let (mut a, mut b) = pair();
    post(&mut b, 1, 50, true);
    controls(&mut b, &mut a);
    pass(&mut a, &mut b, 20);
    let voluntary = a.poll_transfer(Offer {
        indirect: 30,
        direct: 0,
    });
    let Some(Transfer { notice, .. }) = voluntary else {
        panic!("asked for the ring")
    };
    assert_eq!(b.withdraw(), None, "the peer may fill it");
    assert_eq!(b.handle_notice(notice), Ok(Arrival::Ring { bytes: 30 }));
    assert_eq!(b.withdraw(), Some(ReceiveId(1)));
    b.handle_copied(30);
    post(&mut b, 2, 50, true);
    controls(&mut b, &mut a);
    assert_eq!(a.direct_room(), Some(50));
}

#[test]
fn a_voluntary_ring_write_makes_buffers_stale_and_new_ones_are_used_again() {
    let (mut a, mut b) = pair();
    post(&mut b, 1, 50, false);
    post(&mut b, 2, 50, false);
    controls(&mut b, &mut a);
    assert_eq!(b.withdraw(), None, "the peer may write into both");
    let Some(Transfer { notice, .. }) = a.poll_transfer(Offer { indirect: 5, direct: 0 }) else {
        panic!("asked for the ring")
    };
    assert_eq!(a.direct_room(), None);
    assert_eq!(a.counters().adverts_stale, 2);
    b.handle_notice(notice).expect("honest");
    assert_eq!(
        [b.withdraw(), b.withdraw(), b.withdraw()],
        [Some(ReceiveId(1)), Some(ReceiveId(2)), None]
    );
    b.handle_copied(5);
    post(&mut b, 3, 50, false);
    controls(&mut b, &mut a);
    let expected = Arrival::Direct {
        id: ReceiveId(3),
        offset: 0,
        bytes: 7,
        done: true,
    };
    assert_eq!(pass(&mut a, &mut b, 7), expected);
}

#[test]
fn after_partly_used_buffers_and_a_ring_write_buffers_are_used_again() {
    let (mut a, mut b) = pair();
    post(&mut b, 1, 50, false);
    controls(&mut b, &mut a);
    pass(&mut a, &mut b, 20);
    assert_eq!(pass(&mut a, &mut b, 5), Arrival::Ring { bytes: 5 });
    b.handle_copied(5);
    post(&mut b, 2, 50, false);
    controls(&mut b, &mut a);
    assert_eq!(a.direct_room(), Some(50));
}

#[test]
fn nothing_is_advertised_while_the_ring_holds_bytes() {
    let (mut a, mut b) = pair();
    pass(&mut a, &mut b, 5);
    post(&mut b, 1, 50, false);
    assert!(!b.has_control());
    assert_eq!(b.withdraw(), Some(ReceiveId(1)), "not advertised yet");
    b.handle_copied(5);
    post(&mut b, 2, 50, false);
    assert!(b.has_control());
}

#[test]
fn no_more_is_advertised_than_the_peer_holds() {
    let (mut a, mut b) = pair();
    for id in 0..5 {
        post(&mut b, id, 10, false);
    }
    assert_eq!(controls(&mut b, &mut a).len(), 2);
    pass(&mut a, &mut b, 10);
    assert_eq!(controls(&mut b, &mut a).len(), 1);
}

#[test]
fn small_reads_share_an_acknowledgement() {
    let (mut a, mut b) = pair();
    pass(&mut a, &mut b, 100);
    b.handle_copied(49);
    assert_eq!(b.poll_control(), None);
    b.handle_copied(1);
    let freed = Seq(50);
    assert_eq!(
        b.poll_control(),
        Some(Control {
            credits: 1,
            body: ControlBody::Ack { freed }
        })
    );
}

#[test]
fn a_user_that_waits_for_room_has_a_quarter_of_the_ring_acknowledged() {
    let (mut a, mut b) = pair();
    pass(&mut a, &mut b, 100);
    b.handle_copied(24);
    b.handle_writer_waits();
    assert_eq!(b.poll_control(), None);
    b.handle_copied(1);
    assert_eq!(b.poll_control(), None);
    b.handle_writer_waits();
    let acknowledged = b.poll_control().map(|control| control.body);
    assert_eq!(acknowledged, Some(ControlBody::Ack { freed: Seq(25) }));
    assert_eq!(b.poll_control(), None);
}

/// Sends as many of the bytes as there is room for. Returns the others; if there are some the user waits.
fn write(from: &mut Stream, to: &mut Stream, bytes: u32) -> u32 {
    let offer = Offer {
        indirect: bytes,
        direct: bytes,
    };
    match from.poll_transfer(offer).filter(|_| bytes > 0) {
        Some(transfer) => {
            to.handle_notice(transfer.notice).expect("honest");
            write(from, to, bytes - transfer.notice.bytes)
        }
        None => {
            if bytes > 0 {
                from.handle_writer_waits();
            }
            bytes
        }
    }
}

#[test]
fn two_users_that_each_write_three_quarters_of_a_ring_before_they_read_do_not_wait_for_ever() {
    for read_before in 0..=LIMITS.ring_bytes {
        let (mut a, mut b) = pair();
        // In one transfer each: a message for credits would acknowledge, too.
        if read_before > 0 {
            pass(&mut a, &mut b, read_before);
            pass(&mut b, &mut a, read_before);
            let _read = (a.handle_copied(read_before), b.handle_copied(read_before));
            let _acknowledged = (controls(&mut a, &mut b), controls(&mut b, &mut a));
        }
        let (mut of_a, mut of_b) = (LIMITS.ring_bytes * 3 / 4, LIMITS.ring_bytes * 3 / 4);
        for _ in 0..3 {
            of_a = write(&mut a, &mut b, of_a);
            of_b = write(&mut b, &mut a, of_b);
            let _acknowledged = (controls(&mut a, &mut b), controls(&mut b, &mut a));
        }
        assert_eq!((of_a, of_b), (0, 0), "after {read_before} bytes that were read");
    }
}

#[test]
fn the_end_has_a_credit_of_its_own() {
    let (mut a, mut b) = pair();
    while a.indirect_room() > 0 {
        assert!(matches!(pass(&mut a, &mut b, 1), Arrival::Ring { bytes: 1 }));
    }
    // The peer returns nothing meanwhile.
    let ticks = std::iter::from_fn(|| {
        a.tick();
        a.poll_control()
    });
    for tick in ticks.collect::<Vec<_>>() {
        assert_eq!(b.handle_control(&tick.emit()), Ok(ControlEvent::Ticked));
    }
    a.finish();
    assert_eq!(controls(&mut a, &mut b), [ControlEvent::Finished]);
}

#[test]
fn the_end_may_overtake_the_bytes_before_it() {
    let (mut a, mut b) = pair();
    let Transfer { notice, .. } = send(&mut a, 10);
    a.finish();
    assert!(!a.is_finished_sent());
    assert_eq!(controls(&mut a, &mut b), [ControlEvent::Finished]);
    assert!(a.is_finished_sent());
    assert!(!b.is_end(), "10 bytes are under way");
    b.handle_notice(notice).expect("honest");
    assert!(!b.is_end(), "10 bytes are in the ring");
    b.handle_copied(10);
    assert!(b.is_end());
}

#[test]
fn after_its_end_a_side_still_receives() {
    let (mut a, mut b) = pair();
    a.finish();
    controls(&mut a, &mut b);
    assert_eq!(a.poll_transfer(Offer { indirect: 1, direct: 1 }), None);
    assert!(b.is_end());
    post(&mut a, 1, 10, false);
    controls(&mut a, &mut b);
    let expected = Arrival::Direct {
        id: ReceiveId(1),
        offset: 0,
        bytes: 10,
        done: true,
    };
    assert_eq!(pass(&mut b, &mut a, 10), expected);
}

#[test]
fn at_the_end_every_buffer_comes_back() {
    let (mut a, mut b) = pair();
    post(&mut b, 1, 10, false);
    controls(&mut b, &mut a);
    a.finish();
    controls(&mut a, &mut b);
    assert_eq!(b.withdraw(), Some(ReceiveId(1)));
}

#[test]
fn keepalives_merge_until_one_goes_and_carry_credits() {
    let (mut a, mut b) = pair();
    pass(&mut b, &mut a, 1);
    a.tick();
    a.tick();
    assert_eq!(
        a.poll_control(),
        Some(Control {
            credits: 1,
            body: ControlBody::Tick
        })
    );
    assert_eq!(a.poll_control(), None);
    assert_eq!(a.counters().ticks_sent, 1);
}

#[test]
fn bulk_leaves_credits_to_control_messages_and_waits_for_more() {
    let (mut a, mut b) = pair();
    let arrivals = (0..5).map(|_| pass(&mut a, &mut b, 1)).count();
    assert_eq!(arrivals, 5);
    for _ in 0..3 {
        assert_eq!(a.poll_transfer(Offer { indirect: 1, direct: 1 }), None);
    }
    assert_eq!(
        a.counters().credit_stalls,
        1,
        "one stall, however often it is looked at"
    );
    assert_eq!(a.indirect_room(), 0);
    a.tick();
    assert!(a.poll_control().is_some(), "a keepalive does not wait behind bulk");
    assert_eq!(controls(&mut b, &mut a), [ControlEvent::Writable]);
    assert!(a.poll_transfer(Offer { indirect: 1, direct: 1 }).is_some());
}

#[test]
fn direct_only_waits_for_a_buffer() {
    let (mut a, mut b) = pair_in(Mode::DirectOnly);
    assert_eq!(a.indirect_room(), 0);
    assert_eq!(a.poll_transfer(Offer { indirect: 1, direct: 1 }), None);
    post(&mut b, 1, 10, false);
    controls(&mut b, &mut a);
    assert!(send(&mut a, 1).notice.direct);
}

#[test]
fn indirect_only_neither_advertises_nor_looks_at_advertisements() {
    let (mut a, mut b) = pair_in(Mode::IndirectOnly);
    post(&mut a, 1, 10, false);
    assert!(!a.has_control());
    let mut dynamic = Stream::new(Mode::Dynamic, LIMITS, LIMITS, RING).expect("good limits");
    post(&mut dynamic, 1, 10, false);
    assert_eq!(controls(&mut dynamic, &mut b), [ControlEvent::Nothing]);
    assert_eq!(b.direct_room(), None);
    assert!(!send(&mut b, 1).notice.direct);
}

#[test]
fn an_offer_for_one_kind_alone_waits_for_that_kind() {
    let (mut a, _) = pair();
    assert_eq!(
        a.poll_transfer(Offer {
            indirect: 0,
            direct: 10
        }),
        None
    );
    assert_eq!(a.poll_transfer(Offer { indirect: 0, direct: 0 }), None);
}

#[test]
fn limits_that_cannot_work_are_refused_by_name() {
    let new = |limits| Stream::new(Mode::Dynamic, LIMITS, limits, RING).map(|_| ());
    assert_eq!(
        new(Limits {
            ring_bytes: 0,
            ..LIMITS
        }),
        Err(LimitsError::RingBytes(0))
    );
    let huge = TRANSFER_BYTES_MAX + 1;
    assert_eq!(
        new(Limits {
            ring_bytes: huge,
            ..LIMITS
        }),
        Err(LimitsError::RingBytes(huge))
    );
    assert_eq!(
        new(Limits {
            receive_slots: Limits::RECEIVE_SLOTS_MIN - 1,
            ..LIMITS
        }),
        Err(LimitsError::ReceiveSlots(4))
    );
    assert_eq!(new(Limits { adverts: 0, ..LIMITS }), Err(LimitsError::Adverts));
}

/// Lets the mark that `from` owes arrive.
fn mark(from: &mut Stream, to: &mut Stream) -> Arrival {
    let mark = from.poll_mark().expect("a mark is owed");
    to.handle_notice(mark.notice).expect("asked for")
}

#[test]
fn a_new_ring_takes_over_behind_the_mark() {
    let (mut a, mut b) = pair();
    pass(&mut a, &mut b, 60);
    let other = RemoteAddress { key: 7, address: 9_000 };
    assert!(b.replace_ring(NewRing {
        target: other,
        bytes: 300
    }));
    assert!(!b.recall(), "one question at a time");
    assert_eq!(controls(&mut b, &mut a), [ControlEvent::Writable]);
    assert_eq!(a.indirect_room(), 40, "until the mark the old ring is used");
    assert_eq!(mark(&mut a, &mut b), Arrival::Mark { ring: true });
    assert_eq!((a.indirect_room(), b.ring_bytes()), (300, 300));
    assert_eq!(send(&mut a, 250), indirect(other, 250));
    b.handle_notice(indirect(other, 250).notice).expect("honest");
    assert!(b.reads_old_ring());
    assert_eq!((readable(&b).bytes, b.ring_bytes_readable()), (60, 310));
    assert!(!b.replace_ring(NewRing {
        target: TARGET,
        bytes: 1
    }));
    b.handle_copied(60);
    assert!(!b.reads_old_ring());
    assert_eq!(readable(&b), RingSpan { offset: 0, bytes: 250 });
    b.handle_copied(250);
    assert_eq!(controls(&mut b, &mut a), [ControlEvent::Writable]);
    assert_eq!(a.indirect_room(), 50, "up to the end of the new ring");
}

#[test]
fn recalled_buffers_return_to_the_caller_with_the_mark() {
    let (mut a, mut b) = pair();
    post(&mut b, 1, 50, false);
    post(&mut b, 2, 50, false);
    controls(&mut b, &mut a);
    pass(&mut a, &mut b, 10);
    assert_eq!(b.withdraw(), None);
    assert!(b.recall() && b.is_asking());
    controls(&mut b, &mut a);
    assert_eq!(mark(&mut a, &mut b), Arrival::Mark { ring: false });
    assert_eq!(b.withdraw(), Some(ReceiveId(2)));
    assert_eq!(
        (a.direct_room(), a.awaits_advert(), b.is_asking()),
        (None, false, false)
    );
    // A new advertisement is used as the first one was.
    post(&mut b, 3, 50, false);
    controls(&mut b, &mut a);
    assert!(send(&mut a, 5).notice.direct);
}

#[test]
fn a_side_that_has_ended_owes_no_mark() {
    let (mut a, mut b) = pair();
    a.finish();
    assert!(b.recall());
    assert_eq!(controls(&mut b, &mut a), [ControlEvent::Nothing]);
    assert!(!a.owes_mark() && a.poll_mark().is_none());
    controls(&mut a, &mut b);
    assert!(b.is_end());
}
