//! Completion queues and the channels of their events.

use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::Arc;

use rdma_sys::{
    ibv_ack_cq_events, ibv_comp_channel, ibv_cq, ibv_create_comp_channel, ibv_create_cq, ibv_destroy_comp_channel,
    ibv_destroy_cq, ibv_get_cq_event, ibv_poll_cq, ibv_req_notify_cq, ibv_wc, ibv_wc_opcode, ibv_wc_status,
};

use crate::VerbsError;
use crate::cm::CmId;
use crate::error::{check_errno, nothing_yet};

/// The channel of events of completion queues. Never blocks.
///
/// # Invariants
///
/// `raw` is a channel on `id`'s device until drop.
pub struct CompletionChannel {
    raw: NonNull<ibv_comp_channel>,
    id: Arc<CmId>,
}

// SAFETY: libibverbs may be called from any thread.
unsafe impl Send for CompletionChannel {}
// SAFETY: as above.
unsafe impl Sync for CompletionChannel {}

impl CompletionChannel {
    /// A channel on the device of `id`.
    pub fn create(id: &Arc<CmId>) -> Result<CompletionChannel, VerbsError> {
        const DOING: &str = "creating a completion channel";
        let device = id.device().ok_or(VerbsError::of(DOING, libc::ENODEV))?;
        // SAFETY: an open context.
        let raw = unsafe { ibv_create_comp_channel(device.context().as_ptr()) };
        let channel = CompletionChannel {
            raw: NonNull::new(raw).ok_or_else(|| VerbsError::last(DOING))?,
            id: Arc::clone(id),
        };
        crate::cm::set_nonblocking(channel.as_fd())?;
        Ok(channel)
    }

    /// Takes all waiting events. Err: the device was removed and raises no further events; the descriptor stays
    /// readable.
    pub fn drain(&self) -> Result<(), VerbsError> {
        loop {
            let (mut cq, mut context) = (std::ptr::null_mut(), std::ptr::null_mut());
            // SAFETY: a channel that lives, and two places to be filled.
            if unsafe { ibv_get_cq_event(self.raw.as_ptr(), &raw mut cq, &raw mut context) } != 0 {
                return nothing_yet(VerbsError::last("taking completion events"));
            }
            // SAFETY: the queue of an event lives until that event is acknowledged: ibv_destroy_cq(3) waits for it.
            unsafe { ibv_ack_cq_events(cq, 1) };
        }
    }
}

impl AsFd for CompletionChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel owns the descriptor and lives as long as `self`.
        unsafe { BorrowedFd::borrow_raw(self.raw.as_ref().fd) }
    }
}

impl Drop for CompletionChannel {
    fn drop(&mut self) {
        // SAFETY: created in `create`, destroyed once; queues of it hold a reference to `self`, so none is left.
        let _ = unsafe { ibv_destroy_comp_channel(self.raw.as_ptr()) };
    }
}

/// A completion queue.
///
/// # Invariants
///
/// `raw` lives until drop, on the device of `channel`'s id.
pub struct CompletionQueue {
    raw: NonNull<ibv_cq>,
    _channel: Arc<CompletionChannel>,
}

// SAFETY: libibverbs may be called from any thread: providers lock their shared state.
unsafe impl Send for CompletionQueue {}
// SAFETY: as above.
unsafe impl Sync for CompletionQueue {}

impl CompletionQueue {
    /// The queue's name in asynchronous events.
    pub fn token(&self) -> usize {
        self.raw.as_ptr() as usize
    }

    /// A queue of at least `entries` entries, whose events go to `channel`. See `ibv_create_cq(3)`.
    pub fn create(channel: &Arc<CompletionChannel>, entries: u32) -> Result<CompletionQueue, VerbsError> {
        const DOING: &str = "creating a completion queue";
        let device = channel.id.device().ok_or(VerbsError::of(DOING, libc::ENODEV))?;
        let context = device.context().as_ptr();
        let entries = i32::try_from(entries).map_err(|_| VerbsError::of(DOING, libc::EINVAL))?;
        // SAFETY: an open context and a channel of the same device.
        let raw = unsafe { ibv_create_cq(context, entries, std::ptr::null_mut(), channel.raw.as_ptr(), 0) };
        Ok(CompletionQueue {
            raw: NonNull::new(raw).ok_or_else(|| VerbsError::last(DOING))?,
            _channel: Arc::clone(channel),
        })
    }

    pub(crate) fn raw(&self) -> NonNull<ibv_cq> {
        self.raw
    }

    /// Asks for one event at the next completion. Completions that arrive before this call may raise no event: poll
    /// again after it.
    pub fn request_event(&self) -> Result<(), VerbsError> {
        // SAFETY: a queue that lives.
        let result = unsafe { ibv_req_notify_cq(self.raw.as_ptr(), 0) };
        check_errno("asking for a completion event", result)
    }

    /// Takes completions, oldest first. Returns their number.
    pub fn poll(&self, out: &mut [Completion]) -> Result<usize, VerbsError> {
        let room = i32::try_from(out.len()).unwrap_or(i32::MAX);
        // SAFETY: a queue that lives; `Completion` is an `ibv_wc` with another name, and there is room for as many as
        // said.
        let taken = unsafe { ibv_poll_cq(self.raw.as_ptr(), room, out.as_mut_ptr().cast()) };
        // A negative number, without an errno: ibv_poll_cq(3).
        usize::try_from(taken).map_err(|_| VerbsError::of("polling a completion queue", libc::EIO))
    }
}

impl Drop for CompletionQueue {
    fn drop(&mut self) {
        // SAFETY: created in `create`, destroyed once; queue pairs hold a reference to `self`, so none uses it. Events
        // of it were acknowledged as they were taken.
        let _ = unsafe { ibv_destroy_cq(self.raw.as_ptr()) };
    }
}

/// The result of a work request.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Completion(ibv_wc);

/// Why a work request failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failure {
    status: ibv_wc_status::Type,
    vendor: u32,
}

impl Default for Completion {
    fn default() -> Self {
        // SAFETY: all zeros are a value of this C struct of numbers.
        Completion(unsafe { std::mem::zeroed() })
    }
}

impl Completion {
    /// Number of the work request.
    pub fn id(&self) -> u64 {
        self.0.wr_id
    }

    /// Whether the request succeeded. After a failure only [`Self::id`] is valid.
    pub fn check(&self) -> Result<(), Failure> {
        match self.0.status {
            ibv_wc_status::IBV_WC_SUCCESS => Ok(()),
            status => Err(Failure {
                status,
                vendor: self.0.vendor_err,
            }),
        }
    }

    /// Number of bytes that a send of the peer brought.
    pub fn bytes(&self) -> usize {
        self.0.byte_len as usize
    }

    /// The immediate of a write of the peer; None: another completion.
    pub fn written(&self) -> Option<u32> {
        (self.0.opcode == ibv_wc_opcode::IBV_WC_RECV_RDMA_WITH_IMM).then(|| {
            // SAFETY: with this opcode the union is the immediate, in network order; any bits are a number anyway.
            u32::from_be(unsafe { self.0.imm_data_invalidated_rkey_union.imm_data })
        })
    }
}

impl Failure {
    /// The status as the manual of `ibv_poll_cq` names it, in small letters without `IBV_WC_`.
    pub fn status(self) -> &'static str {
        match self.status {
            ibv_wc_status::IBV_WC_SUCCESS => "success",
            ibv_wc_status::IBV_WC_LOC_LEN_ERR => "loc_len_err",
            ibv_wc_status::IBV_WC_LOC_QP_OP_ERR => "loc_qp_op_err",
            ibv_wc_status::IBV_WC_LOC_EEC_OP_ERR => "loc_eec_op_err",
            ibv_wc_status::IBV_WC_LOC_PROT_ERR => "loc_prot_err",
            ibv_wc_status::IBV_WC_WR_FLUSH_ERR => "wr_flush_err",
            ibv_wc_status::IBV_WC_MW_BIND_ERR => "mw_bind_err",
            ibv_wc_status::IBV_WC_BAD_RESP_ERR => "bad_resp_err",
            ibv_wc_status::IBV_WC_LOC_ACCESS_ERR => "loc_access_err",
            ibv_wc_status::IBV_WC_REM_INV_REQ_ERR => "rem_inv_req_err",
            ibv_wc_status::IBV_WC_REM_ACCESS_ERR => "rem_access_err",
            ibv_wc_status::IBV_WC_REM_OP_ERR => "rem_op_err",
            ibv_wc_status::IBV_WC_RETRY_EXC_ERR => "retry_exc_err",
            ibv_wc_status::IBV_WC_RNR_RETRY_EXC_ERR => "rnr_retry_exc_err",
            ibv_wc_status::IBV_WC_LOC_RDD_VIOL_ERR => "loc_rdd_viol_err",
            ibv_wc_status::IBV_WC_REM_INV_RD_REQ_ERR => "rem_inv_rd_req_err",
            ibv_wc_status::IBV_WC_REM_ABORT_ERR => "rem_abort_err",
            ibv_wc_status::IBV_WC_INV_EECN_ERR => "inv_eecn_err",
            ibv_wc_status::IBV_WC_INV_EEC_STATE_ERR => "inv_eec_state_err",
            ibv_wc_status::IBV_WC_FATAL_ERR => "fatal_err",
            ibv_wc_status::IBV_WC_RESP_TIMEOUT_ERR => "resp_timeout_err",
            ibv_wc_status::IBV_WC_GENERAL_ERR => "general_err",
            _ => "unknown",
        }
    }

    /// The number that the device's driver adds to the status.
    pub fn vendor(self) -> u32 {
        self.vendor
    }

    /// The request was flushed because the queue pair had come to its end.
    pub fn is_flush(self) -> bool {
        self.status == ibv_wc_status::IBV_WC_WR_FLUSH_ERR
    }

    /// The request itself was refused, by this side's device or by the peer's.
    pub fn is_of_request(self) -> bool {
        matches!(
            self.status,
            ibv_wc_status::IBV_WC_LOC_LEN_ERR
                | ibv_wc_status::IBV_WC_LOC_QP_OP_ERR
                | ibv_wc_status::IBV_WC_LOC_PROT_ERR
                | ibv_wc_status::IBV_WC_MW_BIND_ERR
                | ibv_wc_status::IBV_WC_LOC_ACCESS_ERR
                | ibv_wc_status::IBV_WC_REM_INV_REQ_ERR
                | ibv_wc_status::IBV_WC_REM_ACCESS_ERR
                | ibv_wc_status::IBV_WC_REM_OP_ERR
        )
    }

    /// The peer did not answer, or was not ready to receive for too long.
    pub fn is_unreachable(self) -> bool {
        matches!(
            self.status,
            ibv_wc_status::IBV_WC_RETRY_EXC_ERR | ibv_wc_status::IBV_WC_RNR_RETRY_EXC_ERR
        )
    }
}
