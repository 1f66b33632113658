//! Memory that the peer may write through windows, on fabrics that have them.

use std::sync::Arc;

use inet_rdma_fabric::{
    Completion, Exposed, Fabric, FabricError, FabricName, Parameters, QueuePair, Window, WindowState,
};
use inet_rdma_stream::{CONTROL_BYTES, Notice, RemoteAddress};

use super::support::*;

const AREA_BYTES: usize = 8_192;
const PART_BYTES: usize = 4_096;

const DIRECT: Notice = Notice {
    direct: true,
    bytes: 10,
};

/// A connection whose accepting end has an area with two windows.
struct Windowed {
    client: Box<dyn QueuePair>,
    server: Box<dyn QueuePair>,
    area: Box<dyn Exposed>,
    windows: Vec<Arc<dyn Window>>,
}

impl Windowed {
    /// None: this fabric has no windows.
    fn of(fabric: &dyn Fabric) -> Option<Windowed> {
        // Two areas may be there at a time.
        let landing_area_bytes = 2 * AREA_BYTES as u32;
        let server = Parameters {
            landing_area_bytes,
            ..parameters()
        };
        let (client, server) = pair_of(fabric, parameters(), server);
        if !server.capabilities().windows {
            println!("skipped: no windows of type 2");
            return None;
        }
        let area = server.exposer().expose_windows(AREA_BYTES, PART_BYTES).expect("memory");
        let windows = area.windows();
        assert_eq!(windows.len(), 2);
        Some(Windowed {
            client,
            server,
            area,
            windows,
        })
    }

    /// After a control of the side with the windows, as is an advertisement: what it has asked for before is done.
    fn write(&self, bytes: &[u8; 10], target: RemoteAddress) -> Result<(), FabricError> {
        self.server.post_control(&[7; CONTROL_BYTES]).expect("room");
        assert_eq!(poll_one(&*self.client), Completion::Control([7; CONTROL_BYTES]));
        self.client.post(&[bytes], target, DIRECT)
    }

    /// Tries a write that must change nothing: it fails, or ends the connection.
    fn is_refused(&self, target: RemoteAddress, what: &str) {
        let before = read(self.area.memory(), 0, AREA_BYTES);
        match self.write(b"!!!!!!!!!!", target) {
            Err(FabricError::PeerMisbehaved(_)) => {}
            Err(other) => panic!("{what}: {other}"),
            Ok(()) => {
                // Over TCP the peer's poll acts as its device.
                eventually(what, || {
                    self.client.fabric() != FabricName::Tcp || self.server.poll(&mut []).is_err()
                });
                let error = await_end(&*self.client);
                println!("{what}: {error}");
                if let FabricError::Completion { status, .. } = error {
                    assert_eq!(status, "rem_access_err", "{what}");
                }
            }
        }
        assert!(read(self.area.memory(), 0, AREA_BYTES) == before, "{what}");
    }

    /// Writes, and checks that the bytes arrive.
    fn is_taken(&self, bytes: &[u8; 10], target: RemoteAddress, offset: usize) {
        self.write(bytes, target).expect("room");
        assert_eq!(poll_one(&*self.server), Completion::Notice(DIRECT));
        assert_eq!(read(self.area.memory(), offset, 10), bytes);
    }

    /// Polls until a window is closed.
    fn await_closed(&self, window: &dyn Window) {
        eventually("the window is closed", || {
            let taken = self
                .server
                .poll(&mut [Completion::Notice(NOTICE)])
                .expect("an honest peer");
            assert_eq!(taken, 0, "nothing was sent");
            window.state() == WindowState::Closed
        });
    }
}

pub fn the_peer_writes_through_an_open_window(fabric: &dyn Fabric) {
    let Some(windowed) = Windowed::of(fabric) else { return };
    for (part, window) in windowed.windows.iter().enumerate() {
        assert_eq!(window.state(), WindowState::Closed);
        let target = window.open().expect("a window");
        assert_eq!(window.state(), WindowState::Open);
        windowed.is_taken(b"0123456789", target, part * PART_BYTES);
        windowed.is_taken(b"abcdefghij", target, part * PART_BYTES);
    }
}

/// The last step shows the purpose of windows: while a window is open the peer can change the bytes that it has
/// written.
pub fn nothing_is_written_through_a_closed_window(fabric: &dyn Fabric) {
    let Some(windowed) = Windowed::of(fabric) else { return };
    let window = &windowed.windows[1];
    let target = window.open().expect("a window");
    windowed.is_taken(b"0123456789", target, PART_BYTES);
    windowed.is_taken(b"abcdefghij", target, PART_BYTES);
    window.close();
    windowed.await_closed(&**window);
    windowed.is_refused(target, "a write through a closed window");
}

pub fn a_window_that_is_opened_again_has_another_key(fabric: &dyn Fabric) {
    let Some(windowed) = Windowed::of(fabric) else { return };
    let window = &windowed.windows[0];
    let first = window.open().expect("a window");
    // After its end, and without it.
    window.close();
    windowed.await_closed(&**window);
    let second = window.open().expect("a window");
    let third = window.open().expect("a window");
    assert!(first.key != second.key && second.key != third.key);
    windowed.is_taken(b"0123456789", third, 0);
    windowed.is_refused(second, "a write with an old key");
}

pub fn a_window_opens_its_own_part_alone(fabric: &dyn Fabric) {
    for offset in [PART_BYTES as i64, PART_BYTES as i64 - 9, -10, -1] {
        let Some(windowed) = Windowed::of(fabric) else { return };
        let target = windowed.windows[0].open().expect("a window");
        let other = windowed.windows[1].open().expect("a window");
        windowed.is_taken(b"0123456789", other, PART_BYTES);
        let beside = RemoteAddress {
            address: target.address.wrapping_add_signed(offset),
            ..target
        };
        windowed.is_refused(beside, &format!("a write at {offset}"));
    }
}

pub fn an_armed_queue_is_woken_when_a_window_is_closed(fabric: &dyn Fabric) {
    let Some(windowed) = Windowed::of(fabric) else { return };
    let window = &windowed.windows[0];
    for _ in 0..times(fabric, 500) {
        let target = window.open().expect("a window");
        windowed.is_taken(b"0123456789", target, 0);
        window.close();
        while windowed.server.arm().expect("an honest peer") {
            if window.state() == WindowState::Closed {
                break;
            }
            assert!(
                readable_within(windowed.server.event_fd(), BOUND),
                "the end does not show"
            );
            windowed.server.drain_event();
        }
        windowed.await_closed(&**window);
    }
}

/// Requests of windows take places in the send queue: they wait, and so do controls behind them.
pub fn windows_leave_controls_and_transfers_their_places(fabric: &dyn Fabric) {
    let Some(windowed) = Windowed::of(fabric) else { return };
    let slots = u64::from(windowed.server.remote_hello().receive_slots);
    let mut sent = 0;
    for round in 0..times(fabric, 200) {
        let mut target = None;
        for count in 0..slots {
            for window in &windowed.windows {
                target = Some(window.open().expect("a window"));
                if count % 2 == 0 {
                    window.close();
                }
            }
            windowed.server.post_control(&numbered(sent)).expect("a place");
            sent += 1;
        }
        for number in sent - slots..sent {
            let Completion::Control(message) = poll_with(&*windowed.client, &*windowed.server) else {
                panic!("round {round}: not a control");
            };
            assert_eq!(number_of(&message), number);
        }
        // The window that was opened last was not closed.
        windowed.is_taken(b"0123456789", target.expect("a window"), PART_BYTES);
        eventually("there is room to write", || {
            let _nothing = windowed
                .server
                .poll(&mut [Completion::Notice(NOTICE)])
                .expect("an honest peer");
            windowed.server.write_room().is_some()
        });
        let ring = windowed.client.memory().remote_address(0);
        windowed.server.post(&[b"x"], ring, notice(1)).expect("room");
        assert_eq!(poll_one(&*windowed.client), Completion::Notice(notice(1)));
    }
}

/// One completion, while the other end sends what waits.
fn poll_with(queue_pair: &dyn QueuePair, other: &dyn QueuePair) -> Completion {
    let mut out = [Completion::Notice(NOTICE)];
    eventually("it arrives", || {
        let _nothing = other.poll(&mut [Completion::Notice(NOTICE)]).expect("an honest peer");
        queue_pair.poll(&mut out).expect("an honest peer") == 1
    });
    out[0]
}

pub fn memory_with_windows_can_be_revoked(fabric: &dyn Fabric) {
    let Some(windowed) = Windowed::of(fabric) else { return };
    let pinned = || windowed.server.pinned_bytes();
    let before = pinned();
    for _ in 0..3 {
        let area = windowed
            .server
            .exposer()
            .expose_windows(AREA_BYTES, PART_BYTES)
            .expect("memory");
        let windows = area.windows();
        let target = windows[1].open().expect("a window");
        windowed.write(b"0123456789", target).expect("room");
        assert_eq!(poll_one(&*windowed.server), Completion::Notice(DIRECT));
        windows[0].open().expect("a window");
        windows[0].close();
        windowed.await_closed(&*windows[0]);
        let memory = Arc::clone(area.memory());
        area.revoke();
        assert_eq!(read(&memory, PART_BYTES, 10), b"0123456789");
        assert_eq!(pinned(), before);
    }
    // The other area still works, and ends, still open, with the connection.
    let target = windowed.windows[0].open().expect("a window");
    windowed.is_taken(b"0123456789", target, 0);
}

/// The device fails a work request whose window is gone, and with it the connection.
pub fn memory_is_revoked_behind_the_requests_of_its_windows(fabric: &dyn Fabric) {
    let Some(windowed) = Windowed::of(fabric) else { return };
    let pinned = || windowed.server.pinned_bytes();
    let expose = || {
        let area = windowed
            .server
            .exposer()
            .expose_windows(AREA_BYTES, PART_BYTES)
            .expect("memory");
        for window in area.windows() {
            // An invalidation that no caller waits for, between two binds.
            window.open().expect("a window");
            window.open().expect("a window");
        }
        area
    };
    let before = pinned();
    for _ in 0..times(fabric, 500) {
        let area = expose();
        eventually("its requests are done", || area.is_unused());
        area.revoke();
        assert_eq!(pinned(), before);
    }
    // Nothing has told yet that they are done.
    expose().revoke();
    let stays = windowed.server.capabilities().pins;
    assert_eq!(pinned() > before, stays);
    let target = windowed.windows[0].open().expect("a window");
    windowed.is_taken(b"0123456789", target, 0);
    windowed.server.check_alive().expect("no request has failed");
}

/// However late the end of the connection finds them.
pub fn windows_that_are_being_closed_end_with_the_connection(fabric: &dyn Fabric) {
    let Some(windowed) = Windowed::of(fabric) else { return };
    for window in &windowed.windows {
        window.open().expect("a window");
    }
    windowed.windows[0].close();
    let Windowed {
        client,
        server,
        area,
        windows,
    } = windowed;
    let memory = Arc::clone(area.memory());
    drop((client, server, area));
    eventually("the queue pair is gone", || windows[1].open().is_err());
    windows[1].close();
    assert_eq!(read(&memory, 0, 10), [0; 10]);
}
