//! Queue pairs: reliable connected, made by the connection manager.

mod inline;

use std::ptr::NonNull;
use std::sync::Arc;

use rdma_sys::{
    ibv_modify_qp, ibv_post_recv, ibv_post_send, ibv_qp, ibv_qp_attr, ibv_qp_attr_mask, ibv_qp_cap, ibv_qp_init_attr,
    ibv_qp_state, ibv_qp_type, ibv_query_qp, ibv_recv_wr, ibv_send_flags, ibv_send_wr, ibv_sge, ibv_wr_opcode,
    imm_data_invalidated_rkey_union_t, rdma_create_qp, rdma_destroy_qp, rdma_t, wr_t,
};

use crate::VerbsError;
use crate::cm::CmId;
use crate::cq::CompletionQueue;
use crate::error::{check, check_errno};
use crate::memory::{MemoryRegion, Sge};
use crate::pd::ProtectionDomain;
use crate::window::MemoryWindow;

/// How much a queue pair holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capacity {
    /// Work requests to send.
    pub sends: u32,
    /// Work requests to receive.
    pub receives: u32,
    /// Scatter/gather elements of one send, at most 2: the two ends of a ring.
    pub sges: u32,
    /// Bytes that can be sent along with their work request.
    pub inline_bytes: u32,
}

/// Most scatter/gather elements of one send: the two ends of a ring.
const SGES_MAX: usize = 2;

/// Work requests to receive that are posted at once, at most.
pub const RECEIVES_MAX: usize = 16;

/// The source of the bytes of a send.
#[derive(Debug, Clone, Copy)]
pub enum Source<'a> {
    /// The device fetches them from its memory until the work request is complete.
    Region(&'a [Sge]),
    /// They go along with the work request and may be reused at once. At most [`QueuePair::inline_bytes`].
    Inline(&'a [u8]),
}

/// The operation on the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// A send: a receive of the peer gets the bytes.
    Send,
    /// A write into the peer's memory.
    Write {
        /// The key of the peer's memory region.
        key: u32,
        /// The target in the peer's address space.
        address: u64,
        /// The number that a receive of the peer gets; None: the write uses no receive. InfiniBand and RoCE only.
        immediate: Option<u32>,
    },
    /// A read of the peer's memory. iWARP devices want one element, also where no byte is read.
    Read {
        /// The key of the peer's memory region.
        key: u32,
        /// The source in the peer's address space.
        address: u64,
    },
}

/// A queue pair.
///
/// # Invariants
///
/// `raw` is `id`'s queue pair until drop; its completions go to the two queues.
pub struct QueuePair {
    raw: NonNull<ibv_qp>,
    id: Arc<CmId>,
    inline_bytes: usize,
    _pd: Arc<ProtectionDomain>,
    _send_queue: Arc<CompletionQueue>,
    _receive_queue: Arc<CompletionQueue>,
}

// SAFETY: libibverbs may be called from any thread: providers lock their shared state.
unsafe impl Send for QueuePair {}
// SAFETY: as above.
unsafe impl Sync for QueuePair {}

impl QueuePair {
    /// Makes `id`'s queue pair. Where the device cannot send that many bytes inline, it is asked for fewer.
    /// See `rdma_create_qp(3)`.
    pub fn create(
        id: &Arc<CmId>,
        pd: &Arc<ProtectionDomain>,
        send_queue: &Arc<CompletionQueue>,
        receive_queue: &Arc<CompletionQueue>,
        capacity: Capacity,
    ) -> Result<QueuePair, VerbsError> {
        let granted = inline::with_fewer_bytes(capacity.inline_bytes, |inline_bytes| {
            let capacity = Capacity {
                inline_bytes,
                ..capacity
            };
            Self::try_create(id, pd, send_queue, receive_queue, capacity)
        })?;
        // SAFETY: an id that lives; its queue pair was made a moment ago.
        let raw = unsafe { NonNull::new_unchecked(id.raw().as_ref().qp) };
        Ok(QueuePair {
            raw,
            id: Arc::clone(id),
            // Some providers grant more than was asked for, even where 0 was.
            inline_bytes: granted.max_inline_data.min(capacity.inline_bytes) as usize,
            _pd: Arc::clone(pd),
            _send_queue: Arc::clone(send_queue),
            _receive_queue: Arc::clone(receive_queue),
        })
    }

    fn try_create(
        id: &CmId,
        pd: &ProtectionDomain,
        send_queue: &CompletionQueue,
        receive_queue: &CompletionQueue,
        capacity: Capacity,
    ) -> Result<ibv_qp_cap, VerbsError> {
        let mut attributes = ibv_qp_init_attr {
            qp_context: std::ptr::null_mut(),
            send_cq: send_queue.raw().as_ptr(),
            recv_cq: receive_queue.raw().as_ptr(),
            srq: std::ptr::null_mut(),
            cap: ibv_qp_cap {
                max_send_wr: capacity.sends,
                max_recv_wr: capacity.receives,
                max_send_sge: capacity.sges,
                max_recv_sge: 1,
                max_inline_data: capacity.inline_bytes,
            },
            qp_type: ibv_qp_type::IBV_QPT_RC,
            sq_sig_all: 0,
        };
        // SAFETY: an id, a protection domain and completion queues that live, all of one device.
        let result = unsafe { rdma_create_qp(id.raw().as_ptr(), pd.raw().as_ptr(), &raw mut attributes) };
        check("creating a queue pair", result)?;
        Ok(attributes.cap)
    }

    /// The queue pair's name in asynchronous events.
    pub fn token(&self) -> usize {
        self.raw.as_ptr() as usize
    }

    /// Bytes that can go along with a work request.
    pub fn inline_bytes(&self) -> usize {
        self.inline_bytes
    }

    /// Sets how long the peer waits before it tries again when this side was not ready, in the code of
    /// `ibv_modify_qp(3)`. Only on a connection that is up.
    pub fn set_min_rnr_timer(&self, code: u8) -> Result<(), VerbsError> {
        // SAFETY: all zeros are a value of this C struct of numbers.
        let mut attributes: ibv_qp_attr = unsafe { std::mem::zeroed() };
        attributes.min_rnr_timer = code;
        let mask = ibv_qp_attr_mask::IBV_QP_MIN_RNR_TIMER.0;
        // SAFETY: a queue pair that lives; the mask names the field that is set.
        let result = unsafe { ibv_modify_qp(self.raw.as_ptr(), &raw mut attributes, mask as i32) };
        check_errno("setting the timer of a queue pair", result)
    }

    /// Moves it to the error state from any other state: posted work requests complete as flushed, after the
    /// completions that are there.
    pub fn move_to_error(&self) -> Result<(), VerbsError> {
        // SAFETY: all zeros are a value of this C struct of numbers.
        let mut attributes: ibv_qp_attr = unsafe { std::mem::zeroed() };
        attributes.qp_state = ibv_qp_state::IBV_QPS_ERR;
        let mask = ibv_qp_attr_mask::IBV_QP_STATE.0;
        // SAFETY: a queue pair that lives; the mask names the field that is set.
        let result = unsafe { ibv_modify_qp(self.raw.as_ptr(), &raw mut attributes, mask as i32) };
        check_errno("moving a queue pair to the error state", result)
    }

    /// Whether it is in an error state, as the device says. siw does not say in which state it is.
    pub fn is_in_error(&self) -> bool {
        // SAFETY: all zeros are a value of these C structs of numbers and pointers.
        let (mut attributes, mut initial): (ibv_qp_attr, ibv_qp_init_attr) = unsafe { std::mem::zeroed() };
        let mask = ibv_qp_attr_mask::IBV_QP_STATE.0;
        // SAFETY: a queue pair that lives, and two structs to be filled.
        let result = unsafe { ibv_query_qp(self.raw.as_ptr(), &raw mut attributes, mask as i32, &raw mut initial) };
        let is_error = |state| matches!(state, ibv_qp_state::IBV_QPS_SQE | ibv_qp_state::IBV_QPS_ERR);
        result == 0 && is_error(attributes.qp_state)
    }

    /// Its connection id.
    pub fn id(&self) -> &CmId {
        &self.id
    }

    /// The code of the time after which a message that is not acknowledged is sent again; see
    /// [`CmId::set_ack_timeout`]. Only on a connection that is up.
    pub fn ack_timeout(&self) -> Result<u8, VerbsError> {
        // SAFETY: all zeros are a value of these C structs of numbers and pointers.
        let (mut attributes, mut initial): (ibv_qp_attr, ibv_qp_init_attr) = unsafe { std::mem::zeroed() };
        let mask = ibv_qp_attr_mask::IBV_QP_TIMEOUT.0;
        // SAFETY: a queue pair that lives, and two structs to be filled.
        let result = unsafe { ibv_query_qp(self.raw.as_ptr(), &raw mut attributes, mask as i32, &raw mut initial) };
        check_errno("asking for the timeout of a queue pair", result)?;
        Ok(attributes.timeout)
    }

    /// Posts an operation. Err(ENOMEM): the queue is full. See `ibv_post_send(3)`.
    ///
    /// # Panics
    ///
    /// With more than two elements.
    pub fn post_send(
        &self,
        number: u64,
        operation: Operation,
        source: Source<'_>,
        signalled: bool,
    ) -> Result<(), VerbsError> {
        let mut sges = [Sge::NONE.raw(); SGES_MAX];
        let mut request = request(number, ibv_wr_opcode::IBV_WR_SEND, signalled);
        request.num_sge = match source {
            Source::Region(from) => {
                for (place, sge) in sges[..from.len()].iter_mut().zip(from) {
                    *place = sge.raw();
                }
                from.len() as i32
            }
            Source::Inline(bytes) => {
                sges[0] = ibv_sge {
                    addr: bytes.as_ptr() as u64,
                    length: bytes.len() as u32,
                    lkey: 0,
                };
                request.send_flags |= ibv_send_flags::IBV_SEND_INLINE.0;
                1
            }
        };
        request.sg_list = sges.as_mut_ptr();
        let at = |address, key| wr_t {
            rdma: rdma_t {
                remote_addr: address,
                rkey: key,
            },
        };
        match operation {
            Operation::Send => {}
            Operation::Write {
                key,
                address,
                immediate,
            } => {
                request.wr = at(address, key);
                request.opcode = ibv_wr_opcode::IBV_WR_RDMA_WRITE;
                if let Some(word) = immediate {
                    request.opcode = ibv_wr_opcode::IBV_WR_RDMA_WRITE_WITH_IMM;
                    request.imm_data_invalidated_rkey_union =
                        imm_data_invalidated_rkey_union_t { imm_data: word.to_be() };
                }
            }
            Operation::Read { key, address } => {
                request.wr = at(address, key);
                request.opcode = ibv_wr_opcode::IBV_WR_RDMA_READ;
            }
        }
        self.post_request(&mut request, "posting a send")
    }

    /// Posts the bind of `window`, which must no longer be bound when the device comes to the request. From then on
    /// the peer may write through it with `key`, see [`MemoryWindow::key_after`]. Later requests are carried out later.
    pub fn post_bind(
        &self,
        number: u64,
        window: &mut MemoryWindow,
        key: u32,
        signalled: bool,
    ) -> Result<(), VerbsError> {
        let mut request = request(number, ibv_wr_opcode::IBV_WR_BIND_MW, signalled);
        request.bind_mw_tso_union = window.bind(key);
        self.post_request(&mut request, "binding a memory window")?;
        window.bound(key);
        Ok(())
    }

    /// Posts the invalidation of the window that is bound with `key`: when the request is complete the peer can no
    /// longer write through it.
    pub fn post_invalidate(&self, number: u64, key: u32, signalled: bool) -> Result<(), VerbsError> {
        let mut request = request(number, ibv_wr_opcode::IBV_WR_LOCAL_INV, signalled);
        request.imm_data_invalidated_rkey_union = imm_data_invalidated_rkey_union_t { invalidated_rkey: key };
        self.post_request(&mut request, "invalidating a memory window")
    }

    /// Posts a request. All objects that it names, its list of elements and inline bytes must live.
    #[inline]
    fn post_request(&self, request: &mut ibv_send_wr, doing: &'static str) -> Result<(), VerbsError> {
        let mut refused = std::ptr::null_mut();
        // SAFETY: a queue pair that lives. The request, its list of elements and inline bytes are copied before the
        // call returns. The bytes that the device fetches later lie in registered memory, which it does not touch after
        // the deregistration.
        let result = unsafe { ibv_post_send(self.raw.as_ptr(), request, &raw mut refused) };
        check_errno(doing, result)
    }

    /// Posts receives: for each its number and the part of `region` that it fills. See `ibv_post_recv(3)`.
    ///
    /// # Panics
    ///
    /// With more than [`RECEIVES_MAX`], or a part outside of the region.
    pub fn post_receives(
        &self,
        region: &MemoryRegion,
        bytes: usize,
        receives: impl ExactSizeIterator<Item = (u64, usize)>,
    ) -> Result<(), VerbsError> {
        let count = receives.len();
        if count == 0 {
            return Ok(());
        }
        assert!(count <= RECEIVES_MAX, "at most so many receives at once");
        let mut sges = [Sge::NONE.raw(); RECEIVES_MAX];
        let mut requests = [const { EMPTY_RECEIVE }; RECEIVES_MAX];
        let first_sge = sges.as_mut_ptr();
        let first = requests.as_mut_ptr();
        for (index, (number, offset)) in receives.enumerate() {
            // SAFETY: `index` is below `count`, and both arrays are that long; all through the same two pointers, which
            // the requests keep.
            unsafe {
                *first_sge.add(index) = region.sge(offset, bytes).raw();
                *first.add(index) = ibv_recv_wr {
                    wr_id: number,
                    next: if index + 1 < count {
                        first.add(index + 1)
                    } else {
                        std::ptr::null_mut()
                    },
                    sg_list: first_sge.add(index),
                    num_sge: 1,
                };
            }
        }
        let mut refused = std::ptr::null_mut();
        // SAFETY: a queue pair that lives; both lists are copied before the call returns; the device writes only into
        // registered memory.
        let result = unsafe { ibv_post_recv(self.raw.as_ptr(), first, &raw mut refused) };
        check_errno("posting receives", result)
    }
}

fn request(number: u64, opcode: ibv_wr_opcode::Type, signalled: bool) -> ibv_send_wr {
    // SAFETY: all zeros are a value of this C struct of numbers and pointers.
    let mut request: ibv_send_wr = unsafe { std::mem::zeroed() };
    request.wr_id = number;
    request.opcode = opcode;
    if signalled {
        request.send_flags = ibv_send_flags::IBV_SEND_SIGNALED.0;
    }
    request
}

const EMPTY_RECEIVE: ibv_recv_wr = ibv_recv_wr {
    wr_id: 0,
    next: std::ptr::null_mut(),
    sg_list: std::ptr::null_mut(),
    num_sge: 0,
};

impl Drop for QueuePair {
    fn drop(&mut self) {
        // SAFETY: made in `create`, destroyed once, and the id lives. After it the device touches nothing for this
        // queue pair.
        unsafe { rdma_destroy_qp(self.id.raw().as_ptr()) };
    }
}
