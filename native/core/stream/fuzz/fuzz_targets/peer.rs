//! A live stream and a peer that says anything: raw bytes, well-formed lies, notices; its own caller acts meanwhile.
//!
//! Run: `cargo fuzz run peer` (nightly), or on stable with `RUSTC_BOOTSTRAP=1`. Nothing may panic, and what the stream
//! says of its ring and its receives must stay true.
#![no_main]

use std::collections::VecDeque;

use arbitrary::Arbitrary;
use inet_rdma_stream::{
    Advert, Arrival, Control, ControlBody, Limits, Mode, NewRing, Notice, Offer, Phase, Receive, ReceiveId,
    RemoteAddress, Seq, Stream,
};
use libfuzzer_sys::fuzz_target;

const RING_BYTES: u32 = 32;

#[derive(Debug, Arbitrary)]
struct Session {
    mode: u8,
    ring_bytes: u8,
    slots: u8,
    adverts: u8,
    events: Vec<Event>,
}

#[derive(Debug, Arbitrary)]
enum Event {
    Raw {
        bytes: [u8; 40],
        shorter_by: u8,
    },
    Advert {
        credits: u8,
        phase: u8,
        seq: u16,
        bytes: u8,
        fill: bool,
        address: u64,
    },
    WildAdvert {
        phase: u64,
        seq: u64,
        bytes: u32,
        fill: bool,
    },
    Ack {
        credits: u8,
        freed: u16,
    },
    Finish {
        end: u64,
    },
    Credit {
        credits: u16,
    },
    Tick,
    Recall,
    Ring {
        address: u64,
        bytes: u8,
    },
    Notice {
        direct: bool,
        bytes: u8,
    },
    WildNotice {
        word: u32,
    },
    Send {
        indirect: u8,
        direct: u8,
    },
    Post {
        bytes: u8,
        fill: bool,
    },
    Copy {
        bytes: u8,
    },
    Withdraw,
    FinishOwn,
    TickOwn,
    Mark,
    RecallOwn,
    ReplaceRing {
        bytes: u8,
    },
    Poll,
}

/// What the caller knows of a receive that it posted.
struct OwnReceive {
    id: u64,
    room: u32,
}

struct Caller {
    stream: Stream,
    posted: VecDeque<OwnReceive>,
    next_id: u64,
}

fuzz_target!(|session: Session| {
    let mode = [Mode::Dynamic, Mode::DirectOnly, Mode::IndirectOnly][usize::from(session.mode % 3)];
    let local = Limits {
        ring_bytes: RING_BYTES,
        receive_slots: Limits::RECEIVE_SLOTS_MIN + u16::from(session.slots),
        adverts: 2,
    };
    let remote = Limits {
        ring_bytes: 1 + u32::from(session.ring_bytes),
        receive_slots: Limits::RECEIVE_SLOTS_MIN + u16::from(session.slots),
        adverts: 1 + u16::from(session.adverts),
    };
    let Ok(stream) = Stream::new(mode, local, remote, RemoteAddress { key: 9, address: 512 }) else {
        return;
    };
    let mut caller = Caller {
        stream,
        posted: VecDeque::new(),
        next_id: 0,
    };
    for event in session.events {
        // A violation ends a real connection; a caller that goes on must be safe all the same.
        caller.run(event);
        assert!(caller.stream.ring_bytes_readable() <= 2 * RING_BYTES);
        assert_eq!(caller.stream.outstanding_receives(), caller.posted.len());
    }
});

impl Caller {
    fn run(&mut self, event: Event) {
        match event {
            Event::Raw { bytes, shorter_by } => {
                let length = 40usize.saturating_sub(usize::from(shorter_by) % 44);
                let _ = self.stream.handle_control(&bytes[..length]);
            }
            Event::Advert {
                credits,
                phase,
                seq,
                bytes,
                fill,
                address,
            } => {
                let phase = Phase(phase.into());
                let advert = advert(phase, Seq(seq.into()), bytes.into(), fill, address);
                self.control(credits.into(), ControlBody::Advert(advert));
            }
            Event::WildAdvert {
                phase,
                seq,
                bytes,
                fill,
            } => {
                self.control(0, ControlBody::Advert(advert(Phase(phase), Seq(seq), bytes, fill, 0)));
            }
            Event::Ack { credits, freed } => {
                self.control(
                    credits.into(),
                    ControlBody::Ack {
                        freed: Seq(freed.into()),
                    },
                );
            }
            Event::Finish { end } => self.control(0, ControlBody::Finish { end: Seq(end) }),
            Event::Credit { credits } => self.control(credits, ControlBody::Credit),
            Event::Tick => self.control(0, ControlBody::Tick),
            Event::Recall => self.control(0, ControlBody::Recall),
            Event::Ring { address, bytes } => {
                let target = RemoteAddress { key: 5, address };
                let bytes = bytes.into();
                self.control(0, ControlBody::Ring(NewRing { target, bytes }));
            }
            Event::Notice { direct, bytes } => self.notice(Notice {
                direct,
                bytes: bytes.into(),
            }),
            Event::WildNotice { word } => {
                if let Ok(notice) = Notice::parse(word) {
                    self.notice(notice);
                }
            }
            Event::Send { indirect, direct } => self.send(indirect.into(), direct.into()),
            Event::Post { bytes, fill } => self.post(u32::from(bytes) + 1, fill),
            Event::Copy { bytes } => self.copy(bytes.into()),
            Event::Withdraw => self.withdraw(),
            Event::FinishOwn => self.stream.finish(),
            Event::TickOwn => self.stream.tick(),
            Event::Mark => {
                let mark = self.stream.poll_mark();
                assert!(mark.is_none_or(|mark| mark.notice == Notice::MARK));
            }
            Event::RecallOwn => {
                let _asked = self.stream.recall();
            }
            Event::ReplaceRing { bytes } => {
                let target = RemoteAddress { key: 6, address: 0 };
                let bytes = 1 + u32::from(bytes) % RING_BYTES;
                let _asked = self.stream.replace_ring(NewRing { target, bytes });
            }
            Event::Poll => self.poll(),
        }
    }

    fn control(&mut self, credits: u16, body: ControlBody) {
        let _ = self.stream.handle_control(&Control { credits, body }.emit());
    }

    fn notice(&mut self, notice: Notice) {
        let Ok(Arrival::Direct { id, bytes, done, .. }) = self.stream.handle_notice(notice) else {
            return;
        };
        let head = self
            .posted
            .front_mut()
            .expect("a direct arrival names a posted receive");
        assert_eq!(id.0, head.id);
        head.room = head.room.checked_sub(bytes).expect("no more than the buffer takes");
        if done {
            self.posted.pop_front();
        }
    }

    fn send(&mut self, indirect: u32, direct: u32) {
        let (direct_room, indirect_room) = (self.stream.direct_room(), self.stream.indirect_room());
        let Some(transfer) = self.stream.poll_transfer(Offer { indirect, direct }) else {
            return;
        };
        let bytes = transfer.notice.bytes;
        assert!(bytes > 0);
        if transfer.notice.direct {
            assert!(bytes <= direct && Some(bytes) <= direct_room);
        } else {
            assert!(bytes <= indirect.min(indirect_room));
        }
    }

    fn post(&mut self, bytes: u32, fill: bool) {
        let id = self.next_id;
        self.next_id += 1;
        let target = RemoteAddress {
            key: 1,
            address: u64::MAX - 3,
        };
        self.stream.post_receive(Receive {
            id: ReceiveId(id),
            target,
            bytes,
            fill,
        });
        self.posted.push_back(OwnReceive { id, room: bytes });
    }

    fn copy(&mut self, wanted: u32) {
        let [run, _] = self.stream.ring_readable();
        assert!(run.offset + run.bytes <= RING_BYTES);
        self.stream.handle_copied(wanted.min(run.bytes));
    }

    fn withdraw(&mut self) {
        if let Some(id) = self.stream.withdraw() {
            self.posted.retain(|posted| posted.id != id.0);
        }
    }

    fn poll(&mut self) {
        while let Some(control) = self.stream.poll_control() {
            assert_eq!(Control::parse(&control.emit()), Ok(control));
        }
    }
}

fn advert(phase: Phase, seq: Seq, bytes: u32, fill: bool, address: u64) -> Advert {
    Advert {
        target: RemoteAddress { key: 2, address },
        bytes,
        fill,
        seq,
        phase,
    }
}
