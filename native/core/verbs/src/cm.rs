//! The connection manager: ids, which are to queue pairs what sockets are to TCP, and the channels of their events.

mod address;
mod kind;
mod open_devices;

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use rdma_sys::{
    rdma_accept, rdma_ack_cm_event, rdma_bind_addr, rdma_cm_event, rdma_cm_id, rdma_conn_param, rdma_connect,
    rdma_create_event_channel, rdma_create_id, rdma_destroy_event_channel, rdma_destroy_id, rdma_disconnect,
    rdma_event_channel, rdma_get_cm_event, rdma_get_local_addr, rdma_get_peer_addr, rdma_listen, rdma_migrate_id,
    rdma_port_space, rdma_reject, rdma_resolve_addr, rdma_resolve_route, rdma_set_option,
};
use socket2::SockAddr;

use self::address::{raw, socket_address};
pub use self::kind::Kind;
use crate::VerbsError;
use crate::device::Device;
use crate::error::{check, nothing_yet};

/// The channel of the events of ids. Never blocks.
///
/// # Invariants
///
/// `raw` is a channel until drop.
#[derive(Debug)]
pub struct EventChannel {
    raw: NonNull<rdma_event_channel>,
}

// SAFETY: librdmacm may be called from any thread.
unsafe impl Send for EventChannel {}
// SAFETY: as above.
unsafe impl Sync for EventChannel {}

impl EventChannel {
    /// Opens `/dev/infiniband/rdma_cm`.
    pub fn create() -> Result<EventChannel, VerbsError> {
        // SAFETY: no arguments.
        let raw = unsafe { rdma_create_event_channel() };
        let raw = NonNull::new(raw).ok_or_else(|| VerbsError::last("opening the connection manager"))?;
        let channel = EventChannel { raw };
        set_nonblocking(channel.as_fd())?;
        Ok(channel)
    }

    /// The next event; None: none waits now.
    pub fn next_event(self: &Arc<Self>) -> Result<Option<Event>, VerbsError> {
        const DOING: &str = "asking the connection manager for an event";
        let mut raw: *mut rdma_cm_event = std::ptr::null_mut();
        // SAFETY: a channel that lives, and a place to be filled.
        let result = unsafe { rdma_get_cm_event(self.raw.as_ptr(), &raw mut raw) };
        if result != 0 {
            return nothing_yet(VerbsError::last(DOING)).map(|()| None);
        }
        // SAFETY: success means an event, which lives until it is acknowledged.
        let event = unsafe { &*raw };
        let kind = Kind::of(event.event);
        if kind == Kind::DeviceRemoval {
            // SAFETY: an event names an id, which lives until the event is acknowledged.
            let context = NonNull::new(event.id).and_then(|id| NonNull::new(unsafe { id.as_ref().verbs }));
            context.into_iter().for_each(open_devices::remove);
        }
        let private_data = if kind.has_private_data() {
            // SAFETY: these events carry connection parameters; their private data lives as long as the event.
            unsafe {
                let conn = &event.param.conn;
                if conn.private_data.is_null() {
                    Vec::new()
                } else {
                    std::slice::from_raw_parts(conn.private_data.cast::<u8>(), conn.private_data_len.into()).to_vec()
                }
            }
        } else {
            Vec::new()
        };
        let request = match NonNull::new(event.id) {
            Some(id) if kind == Kind::ConnectRequest => Some(CmId {
                raw: id,
                channel: Mutex::new(Arc::clone(self)),
                counted: OnceLock::new(),
            }),
            _ => None,
        };
        let taken = Event {
            kind,
            status: event.status,
            id: event.id as usize,
            request,
            private_data,
        };
        // SAFETY: an event of `rdma_get_cm_event`, acknowledged once; all that is kept of it was copied.
        unsafe { rdma_ack_cm_event(raw) };
        Ok(Some(taken))
    }
}

impl AsFd for EventChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel owns the descriptor and lives as long as `self`.
        unsafe { BorrowedFd::borrow_raw(self.raw.as_ref().fd) }
    }
}

impl Drop for EventChannel {
    fn drop(&mut self) {
        // SAFETY: created in `create`, destroyed once; ids hold a reference to their channel, so none is left.
        unsafe { rdma_destroy_event_channel(self.raw.as_ptr()) };
    }
}

/// Something that happened to an id, taken and acknowledged.
#[derive(Debug)]
pub struct Event {
    /// The kind of event.
    pub kind: Kind,
    /// The reason: an error's number, negative, or the reason of a rejection; 0: success.
    pub status: i32,
    /// The token of the id: see [`CmId::token`].
    pub id: usize,
    /// With [`Kind::ConnectRequest`]: the new id.
    pub request: Option<CmId>,
    /// The peer's private data. Padded with zeros, so it may be longer than sent.
    pub private_data: Vec<u8>,
}

/// How often a message is sent again before the connection fails: the largest value. With 0 the first lost packet would
/// end the connection.
const RETRIES: u8 = 7;

/// How often a message is sent again when the peer has no receive posted; 7: for ever. Credits of the stream protocol
/// see to it that the peer always has one.
const RNR_RETRIES: u8 = 7;

/// The parameters of a connection, the same on both sides.
fn parameters(private_data: &[u8]) -> Result<rdma_conn_param, VerbsError> {
    Ok(rdma_conn_param {
        private_data: private_data.as_ptr().cast(),
        private_data_len: u8::try_from(private_data.len()).map_err(|_| VerbsError::of("connecting", libc::EINVAL))?,
        // One read at a time asks the peer's device over iWARP; some want one for the first message of a connection.
        responder_resources: 1,
        initiator_depth: 1,
        flow_control: 0,
        retry_count: RETRIES,
        rnr_retry_count: RNR_RETRIES,
        srq: 0,
        qp_num: 0,
    })
}

/// A connection's identity, or a listener's.
///
/// # Invariants
///
/// `raw` lives until drop. Its channel is `channel`.
#[derive(Debug)]
pub struct CmId {
    raw: NonNull<rdma_cm_id>,
    channel: Mutex<Arc<EventChannel>>,
    /// Set if the id counts as a user of its device.
    counted: OnceLock<()>,
}

// SAFETY: librdmacm may be called from any thread; the fields that are read here change only in calls that make a
// connection, which its one owner makes.
unsafe impl Send for CmId {}
// SAFETY: as above.
unsafe impl Sync for CmId {}

/// Level and names of options: rdma_cma.h.
const OPTION_ID: i32 = 0;
const OPTION_ID_TOS: i32 = 0;
const OPTION_ID_AFONLY: i32 = 2;
const OPTION_ID_ACK_TIMEOUT: i32 = 3;

impl CmId {
    /// A new id for reliable connections, whose events go to `channel`.
    pub fn create(channel: &Arc<EventChannel>) -> Result<CmId, VerbsError> {
        const DOING: &str = "creating a connection id";
        let mut raw = std::ptr::null_mut();
        // SAFETY: a channel that lives, and a place to be filled.
        let result = unsafe {
            rdma_create_id(
                channel.raw.as_ptr(),
                &raw mut raw,
                std::ptr::null_mut(),
                rdma_port_space::RDMA_PS_TCP,
            )
        };
        check(DOING, result)?;
        Ok(CmId {
            raw: NonNull::new(raw).ok_or(VerbsError::of(DOING, libc::ENOMEM))?,
            channel: Mutex::new(Arc::clone(channel)),
            counted: OnceLock::new(),
        })
    }

    pub(crate) fn raw(&self) -> NonNull<rdma_cm_id> {
        self.raw
    }

    /// The id's name in [`Event::id`].
    pub fn token(&self) -> usize {
        self.raw.as_ptr() as usize
    }

    /// The device, once the address is resolved or bound to one; it stays open as long as the id. From now on the id is
    /// one of the device's users, of which the last one gives up a device that was removed.
    pub fn device(&self) -> Option<Device<'_>> {
        // SAFETY: the id lives.
        let context = NonNull::new(unsafe { self.raw.as_ref().verbs })?;
        self.counted.get_or_init(|| open_devices::enter(context));
        // SAFETY: librdmacm keeps the device of an id open as long as the id.
        Some(unsafe { Device::of(context) })
    }

    /// Makes asking the device for asynchronous events never block.
    pub fn watch_device(&self) -> Result<(), VerbsError> {
        match self.device() {
            Some(device) => set_nonblocking(device.async_fd()),
            None => Err(VerbsError::of("watching a device", libc::ENODEV)),
        }
    }

    /// ENOSYS: the kernel does not know the option.
    fn set_option<T>(&self, option: i32, mut value: T) -> Result<(), VerbsError> {
        let (value, bytes) = ((&raw mut value).cast(), size_of::<T>());
        // SAFETY: an id that lives. The value is copied before the call returns; the kernel refuses a value that has
        // not the option's size.
        let result = unsafe { rdma_set_option(self.raw.as_ptr(), OPTION_ID, option, value, bytes) };
        check("setting an option of a connection id", result)
    }

    /// Makes an id that is bound to an IPv6 address take no IPv4 connections.
    pub fn one_family(&self) -> Result<(), VerbsError> {
        self.set_option(OPTION_ID_AFONLY, 1i32)
    }

    /// Sets the type of service of its packets. Call it before the address is resolved, or before the id is accepted.
    pub fn set_type_of_service(&self, type_of_service: u8) -> Result<(), VerbsError> {
        self.set_option(OPTION_ID_TOS, type_of_service)
    }

    /// Sets how long its queue pair waits for an acknowledgement of this side's packets: 4.096 µs times 2 to the power
    /// of `code`, which is 1 to 31. Call it before the id connects, or is accepted.
    pub fn set_ack_timeout(&self, code: u8) -> Result<(), VerbsError> {
        self.set_option(OPTION_ID_ACK_TIMEOUT, code)
    }

    /// Binds it to an address of this machine. See `rdma_bind_addr(3)`.
    pub fn bind(&self, address: SocketAddr) -> Result<(), VerbsError> {
        let address = SockAddr::from(address);
        // SAFETY: an id that lives, and an address of its family's length.
        let result = unsafe { rdma_bind_addr(self.raw.as_ptr(), raw(&address)) };
        check("binding an address", result)
    }

    /// Listens; requests come as events.
    pub fn listen(&self, backlog: u16) -> Result<(), VerbsError> {
        // SAFETY: an id that lives.
        let result = unsafe { rdma_listen(self.raw.as_ptr(), backlog.into()) };
        check("listening", result)
    }

    /// The port to which the id is bound; 0: none yet.
    pub fn port(&self) -> u16 {
        self.local_address().map_or(0, |address| address.port())
    }

    /// Begins to look for the device and the hardware address of a peer: [`Kind::AddressResolved`]. `from`: the own
    /// address; None: the route chooses.
    pub fn resolve_address(&self, from: Option<IpAddr>, to: SocketAddr, timeout: Duration) -> Result<(), VerbsError> {
        let from = from.map(|from| SockAddr::from(SocketAddr::new(from, 0)));
        let source = from.as_ref().map_or(std::ptr::null_mut(), raw);
        let to = SockAddr::from(to);
        // SAFETY: an id that lives; no source address, or one of its family's length; a destination of its family's
        // length.
        let result = unsafe { rdma_resolve_addr(self.raw.as_ptr(), source, raw(&to), milliseconds(timeout)) };
        check("resolving the address", result)
    }

    /// Begins to look for the way to the peer: [`Kind::RouteResolved`].
    pub fn resolve_route(&self, timeout: Duration) -> Result<(), VerbsError> {
        // SAFETY: an id that lives.
        let result = unsafe { rdma_resolve_route(self.raw.as_ptr(), milliseconds(timeout)) };
        check("resolving the route", result)
    }

    /// Begins to connect: [`Kind::Established`], or one of the refusals. It must have a queue pair. `private_data`: for
    /// the peer; at most 56 bytes over InfiniBand.
    pub fn connect(&self, private_data: &[u8]) -> Result<(), VerbsError> {
        let mut parameters = parameters(private_data)?;
        // SAFETY: an id that lives; the private data is copied before the call returns.
        let result = unsafe { rdma_connect(self.raw.as_ptr(), &raw mut parameters) };
        check("connecting", result)
    }

    /// Accepts a request: [`Kind::Established`]. The id must have a queue pair. `private_data`: for the peer.
    pub fn accept(&self, private_data: &[u8]) -> Result<(), VerbsError> {
        let mut parameters = parameters(private_data)?;
        // SAFETY: as in `connect`.
        let result = unsafe { rdma_accept(self.raw.as_ptr(), &raw mut parameters) };
        check("accepting", result)
    }

    /// Rejects a request, with the reason.
    pub fn reject(&self, why: &[u8]) -> Result<(), VerbsError> {
        let bytes = u8::try_from(why.len()).map_err(|_| VerbsError::of("rejecting", libc::EINVAL))?;
        // SAFETY: an id that lives; the private data is copied before the call returns.
        let result = unsafe { rdma_reject(self.raw.as_ptr(), why.as_ptr().cast(), bytes) };
        check("rejecting", result)
    }

    /// Ends the connection; work requests that are not complete are flushed.
    pub fn disconnect(&self) -> Result<(), VerbsError> {
        // SAFETY: an id that lives.
        let result = unsafe { rdma_disconnect(self.raw.as_ptr()) };
        check("disconnecting", result)
    }

    /// Moves the id's events to `channel`, also those that were not taken yet. All events of the id that were taken
    /// must have been acknowledged, which [`EventChannel::next_event`] does. An event that is moved does not wake a
    /// thread that waits for `channel`: look there afterwards.
    pub fn migrate(&self, channel: &Arc<EventChannel>) -> Result<(), VerbsError> {
        let mut current = self.channel.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: an id and a channel that live.
        let result = unsafe { rdma_migrate_id(self.raw.as_ptr(), channel.raw.as_ptr()) };
        check("moving a connection id", result)?;
        *current = Arc::clone(channel);
        Ok(())
    }

    /// Its own address, where it has one.
    pub fn local_address(&self) -> Option<SocketAddr> {
        // SAFETY: an id that lives has both addresses in place, of family 0 until they are known; the union that they
        // are part of has room for the longest.
        unsafe { socket_address(rdma_get_local_addr(self.raw.as_ref())) }
    }

    /// The peer's address, where it has one.
    pub fn peer_address(&self) -> Option<SocketAddr> {
        // SAFETY: as in `local_address`.
        unsafe { socket_address(rdma_get_peer_addr(self.raw.as_ref())) }
    }
}

impl Drop for CmId {
    fn drop(&mut self) {
        if let (Some(()), Some(device)) = (self.counted.get(), self.device()) {
            // Before the id's end, as librdmacm may close the device then.
            open_devices::leave(device);
        }
        // SAFETY: created by `create` or with a request, destroyed once; queue pairs, protection domains and channels
        // of its device hold a reference to it, so none is left. Its events were acknowledged as they were taken.
        let _ = unsafe { rdma_destroy_id(self.raw.as_ptr()) };
    }
}

fn milliseconds(timeout: Duration) -> i32 {
    i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX).max(1)
}

pub(crate) fn set_nonblocking(fd: BorrowedFd<'_>) -> Result<(), VerbsError> {
    let set = || {
        let flags = rustix::fs::fcntl_getfl(fd)?;
        rustix::fs::fcntl_setfl(fd, flags | rustix::fs::OFlags::NONBLOCK)
    };
    set().map_err(|errno: rustix::io::Errno| VerbsError::of("making a descriptor non-blocking", errno.raw_os_error()))
}
