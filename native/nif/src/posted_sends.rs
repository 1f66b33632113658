//! Sends that are posted: the binaries stay where they are, kept by a reference, until the last byte is written.

use std::collections::VecDeque;

use inet_rdma_engine::assembly::{Framing, Header};
use inet_rdma_engine::connection::{Closed, Connection, Wakes};
use inet_rdma_engine::gather::Gather;
use rustler::env::SavedTerm;
use rustler::{Binary, Encoder, NifResult, Term};

use crate::atoms;
use crate::packets::{self, Block};
use crate::receipt::Receipt;
use crate::voice::Voice;

/// Sends that share a write at most: their slices are gathered anew for each.
const GATHERED_MAX: usize = 64;
/// Slices are gathered for so much more than a write takes, so that the peer's largest landing buffer is filled.
const AHEAD_BYTES: usize = 1 << 20;

/// One of them.
pub struct PostedSend {
    receipt: Receipt,
    header: Header,
    /// Its bytes, without the header.
    bytes: usize,
    /// Bytes that have gone, the header's included.
    sent: usize,
    /// The list from the binary on in which the next byte lies.
    rest: SavedTerm,
    /// Bytes before that binary.
    rest_at: usize,
}

impl PostedSend {
    /// Of a list of binaries, behind the header that `framing` asks for.
    pub fn new(receipt: Receipt, binaries: Term<'_>, framing: Framing) -> NifResult<Self> {
        let mut bytes = 0;
        for binary in binaries.into_list_iterator()? {
            bytes += Binary::from_term(binary)?.len();
        }
        let header = packets::header(framing, bytes)?;
        let rest = receipt.keep(binaries);
        Ok(Self {
            receipt,
            header,
            bytes,
            sent: 0,
            rest,
            rest_at: 0,
        })
    }

    fn header(&self) -> &[u8] {
        self.header.as_slice()
    }

    /// Bytes that have not gone.
    pub fn left(&self) -> usize {
        self.header().len() + self.bytes - self.sent
    }

    /// Adds what has not gone, as one packet, of which the slices cover about `max` bytes.
    fn gather<'a>(&'a self, gather: &mut Gather<'a>, max: usize) {
        if self.sent > 0 {
            // The first of all, or it would not have gone in part.
            gather.goes_on_behind(self.sent);
        }
        let end = gather.total() + self.left();
        let header = self.header();
        gather.push(&header[self.sent.min(header.len())..]);
        let mut skip = self.sent.saturating_sub(header.len()) - self.rest_at;
        self.receipt.with(&self.rest, |mut rest| {
            while gather.total() < max
                && let Some((slice, tail)) = first(rest)
            {
                gather.push(&slice[skip..]);
                skip = 0;
                rest = tail;
            }
        });
        gather.end_packet_at(end);
    }

    /// So many more have gone.
    pub fn advance(&mut self, bytes: usize) {
        self.sent += bytes;
        let gone = self.sent.saturating_sub(self.header().len());
        let mut at = self.rest_at;
        let rest = self.receipt.with(&self.rest, |mut rest| {
            while let Some((slice, tail)) = first(rest)
                && at + slice.len() <= gone
            {
                at += slice.len();
                rest = tail;
            }
            // In the environment it lies in already: no copy.
            self.receipt.keep(rest)
        });
        (self.rest, self.rest_at) = (rest, at);
    }
}

/// The first binary of a list, and the others; it was checked when the send was posted.
fn first(list: Term<'_>) -> Option<(&[u8], Term<'_>)> {
    let (head, tail) = list.list_get_cell().ok()?;
    Some((Binary::from_term(head).ok()?.as_slice(), tail))
}

/// All of one connection, in order.
#[derive(Default)]
pub struct PostedSends(VecDeque<PostedSend>);

impl PostedSends {
    /// How many.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// None.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Bytes that have not gone.
    pub fn bytes(&self) -> usize {
        self.0.iter().map(PostedSend::left).sum()
    }

    /// Behind the others.
    pub fn push(&mut self, send: PostedSend) {
        self.0.push_back(send);
    }

    /// Before the others.
    pub fn push_front(&mut self, send: PostedSend) {
        self.0.push_front(send);
    }

    /// Writes about `call_bytes` at most; whom to tell, and whether there is more to write at once.
    pub fn write(&mut self, connection: &Connection<Block>, call_bytes: usize, voice: Voice<'_>) -> (Wakes, bool) {
        let mut wakes = Wakes::default();
        let mut left = call_bytes;
        while !self.0.is_empty() {
            if left == 0 {
                return (wakes, true);
            }
            let tried = connection.write(&self.gather(left), 0, left);
            let written = match tried {
                Ok(written) => written,
                Err(closed) => {
                    self.end(voice, &closed);
                    break;
                }
            };
            wakes.merge(written.wakes);
            left = left.saturating_sub(written.at);
            self.advance(written.at, voice);
            if written.blocked && !self.0.is_empty() {
                let (armed, more) = connection.arm_writer();
                wakes.merge(more);
                if armed {
                    break;
                }
            }
        }
        (wakes, false)
    }

    fn gather(&self, bytes: usize) -> Gather<'_> {
        let sends = self.0.len().min(GATHERED_MAX);
        let mut gather = Gather::with_capacity(3 * sends, sends);
        for send in self.0.iter().take(GATHERED_MAX) {
            if gather.total() >= bytes {
                break;
            }
            send.gather(&mut gather, bytes + AHEAD_BYTES);
        }
        gather
    }

    /// So many bytes, of the first ones, have gone.
    fn advance(&mut self, mut bytes: usize, voice: Voice<'_>) {
        while let Some(send) = self.0.front_mut() {
            let part = bytes.min(send.left());
            send.advance(part);
            bytes -= part;
            if send.left() > 0 {
                return;
            }
            let sent = send.bytes;
            send.receipt
                .tell(voice, atoms::inet_rdma_sent(), |env| (atoms::ok(), sent).encode(env));
            self.0.pop_front();
        }
    }

    /// Takes one back that is untouched. None: it is not there; false: bytes of it have gone.
    pub fn cancel(&mut self, reference: Term<'_>) -> Option<bool> {
        let index = self.0.iter().position(|send| send.receipt.is(reference))?;
        let untouched = self.0[index].sent == 0;
        if untouched {
            self.0.remove(index);
        }
        Some(untouched)
    }

    /// None of them will go.
    pub fn end(&mut self, voice: Voice<'_>, closed: &Closed) {
        for send in self.0.drain(..) {
            send.receipt.tell_end(voice, atoms::inet_rdma_sent(), closed);
        }
    }
}
