//! Asynchronous events: those of a device that belong to no work request.

use std::ffi::CStr;

use rdma_sys::{ibv_ack_async_event, ibv_async_event, ibv_event_type, ibv_event_type_str, ibv_get_async_event};

use crate::VerbsError;
use crate::device::Device;
use crate::error::nothing_yet;

/// The object of an asynchronous event. See `ibv_get_async_event(3)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Concerns {
    /// The queue pair of this address has come to its end.
    QueuePair(usize),
    /// The completion queue of this address has come to its end, and with it the queue pairs that it serves.
    CompletionQueue(usize),
    /// The whole device has come to its end.
    Device,
    /// An event that ends no connection: a port went up or down, an address changed, a first message came early.
    News,
}

/// An asynchronous event, taken and acknowledged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AsyncEvent {
    /// The object that it concerns.
    pub concerns: Concerns,
    /// The event in words.
    pub what: String,
}

/// The next event of this device; None: none waits now. The descriptor must not block
/// ([`crate::cm::CmId::watch_device`] sees to it). Err: no further events will come, as the device was removed.
pub fn take(device: Device<'_>) -> Result<Option<AsyncEvent>, VerbsError> {
    // SAFETY: all zeros are a value: a null pointer and the first kind of event.
    let mut event: ibv_async_event = unsafe { std::mem::zeroed() };
    // SAFETY: an open context, and a struct to be filled.
    if unsafe { ibv_get_async_event(device.context().as_ptr(), &raw mut event) } != 0 {
        return nothing_yet(VerbsError::last("asking a device for an event")).map(|()| None);
    }
    let (kind, concerns) = concerns(&event);
    let text = if kind <= ibv_event_type::IBV_EVENT_WQ_FATAL as u32 {
        // SAFETY: the kind is one that the enum has.
        unsafe { ibv_event_type_str(event.event_type) }
    } else {
        std::ptr::null()
    };
    let what = if text.is_null() {
        format!("event {kind}")
    } else {
        // SAFETY: not null, and a C string that lives for ever.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    };
    // SAFETY: an event of `ibv_get_async_event`, acknowledged once.
    unsafe { ibv_ack_async_event(&raw mut event) };
    Ok(Some(AsyncEvent { concerns, what }))
}

/// The event's kind as a number, and the object that it concerns.
fn concerns(event: &ibv_async_event) -> (u32, Concerns) {
    // A kernel newer than the binding may report events that its enum does not know: never read as the enum.
    // SAFETY: the field is initialised, and of the size and alignment of a C enum.
    let kind = unsafe { (&raw const event.event_type).cast::<u32>().read() };
    let is = |one: ibv_event_type| kind == one as u32;
    let concerns = if is(ibv_event_type::IBV_EVENT_QP_FATAL)
        || is(ibv_event_type::IBV_EVENT_QP_REQ_ERR)
        || is(ibv_event_type::IBV_EVENT_QP_ACCESS_ERR)
    {
        // SAFETY: with these events the element is a queue pair. Only its address is taken: it may be gone.
        Concerns::QueuePair(unsafe { event.element.qp }.addr())
    } else if is(ibv_event_type::IBV_EVENT_CQ_ERR) {
        // SAFETY: with this event the element is a completion queue. Only its address is taken: it may be gone.
        Concerns::CompletionQueue(unsafe { event.element.cq }.addr())
    } else if is(ibv_event_type::IBV_EVENT_DEVICE_FATAL) {
        Concerns::Device
    } else {
        Concerns::News
    };
    (kind, concerns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_concerns_no_more_than_what_has_failed() {
        let concerns = |kind| {
            // SAFETY: all zeros are a value: a null pointer and the first kind of event.
            let mut event: ibv_async_event = unsafe { std::mem::zeroed() };
            event.event_type = kind;
            event.element.cq = std::ptr::without_provenance_mut(4_096);
            super::concerns(&event).1
        };
        assert_eq!(
            concerns(ibv_event_type::IBV_EVENT_CQ_ERR),
            Concerns::CompletionQueue(4_096)
        );
        assert_eq!(concerns(ibv_event_type::IBV_EVENT_QP_FATAL), Concerns::QueuePair(4_096));
        assert_eq!(concerns(ibv_event_type::IBV_EVENT_DEVICE_FATAL), Concerns::Device);
        assert_eq!(concerns(ibv_event_type::IBV_EVENT_PORT_ERR), Concerns::News);
    }
}
