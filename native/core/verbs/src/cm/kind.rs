//! The kinds of events of the connection manager.

use rdma_sys::rdma_cm_event_type;

/// An event of an id. See `rdma_get_cm_event(3)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// [`super::CmId::resolve_address`] is done.
    AddressResolved,
    /// It failed.
    AddressError,
    /// [`super::CmId::resolve_route`] is done.
    RouteResolved,
    /// It failed.
    RouteError,
    /// A peer wants to connect: [`super::Event::request`].
    ConnectRequest,
    /// The connection could not be made.
    ConnectError,
    /// No host answered.
    Unreachable,
    /// The peer said no.
    Rejected,
    /// The connection is up.
    Established,
    /// It is down.
    Disconnected,
    /// The device is going away.
    DeviceRemoval,
    /// The address has moved to other hardware.
    AddressChange,
    /// The queue pair's number may be used again.
    TimewaitExit,
    /// Something else, by its number.
    Other(u32),
}

impl Kind {
    pub(super) fn of(event: rdma_cm_event_type::Type) -> Kind {
        match event {
            rdma_cm_event_type::RDMA_CM_EVENT_ADDR_RESOLVED => Kind::AddressResolved,
            rdma_cm_event_type::RDMA_CM_EVENT_ADDR_ERROR => Kind::AddressError,
            rdma_cm_event_type::RDMA_CM_EVENT_ROUTE_RESOLVED => Kind::RouteResolved,
            rdma_cm_event_type::RDMA_CM_EVENT_ROUTE_ERROR => Kind::RouteError,
            rdma_cm_event_type::RDMA_CM_EVENT_CONNECT_REQUEST => Kind::ConnectRequest,
            rdma_cm_event_type::RDMA_CM_EVENT_CONNECT_ERROR => Kind::ConnectError,
            rdma_cm_event_type::RDMA_CM_EVENT_UNREACHABLE => Kind::Unreachable,
            rdma_cm_event_type::RDMA_CM_EVENT_REJECTED => Kind::Rejected,
            rdma_cm_event_type::RDMA_CM_EVENT_ESTABLISHED => Kind::Established,
            rdma_cm_event_type::RDMA_CM_EVENT_DISCONNECTED => Kind::Disconnected,
            rdma_cm_event_type::RDMA_CM_EVENT_DEVICE_REMOVAL => Kind::DeviceRemoval,
            rdma_cm_event_type::RDMA_CM_EVENT_ADDR_CHANGE => Kind::AddressChange,
            rdma_cm_event_type::RDMA_CM_EVENT_TIMEWAIT_EXIT => Kind::TimewaitExit,
            other => Kind::Other(other),
        }
    }

    pub(super) fn has_private_data(self) -> bool {
        matches!(self, Kind::ConnectRequest | Kind::Established | Kind::Rejected)
    }
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self:?}")
    }
}
