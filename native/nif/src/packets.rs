//! Packets between Erlang terms and buffers.

use bytes::buf::UninitSlice;
use inet_rdma_assembly::{Buffer, Framing, Gather, Header, LandingBuffer, Received};
use rustler::sys::{ErlNifBinary, enif_alloc_binary, enif_release_binary};
use rustler::{Binary, Encoder, Env, Error, ListIterator, NifResult, OwnedBinary, Resource, ResourceArc, Term};

use crate::atoms;

/// Initial capacity of lists of packets: about as many as one read of a busy socket collects.
const PACKETS: usize = 32;

/// A reference-counted binary in the making.
///
/// # Invariants
/// It came from `enif_alloc_binary`, and this value owns it.
pub struct Block(ErlNifBinary);

// SAFETY: a binary belongs to no thread.
unsafe impl Send for Block {}

impl Block {
    /// The binary, all of whose bytes have been written.
    fn into_binary(self) -> OwnedBinary {
        let binary = std::mem::ManuallyDrop::new(self).0;
        // SAFETY: the type's invariant: the ownership goes on.
        unsafe { OwnedBinary::from_raw(binary) }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: by the type's invariant; nothing refers to the binary now.
        unsafe { enif_release_binary(&raw mut self.0) };
    }
}

impl Buffer for Block {
    fn allocate(bytes: usize) -> Option<Self> {
        let mut binary = std::mem::MaybeUninit::<ErlNifBinary>::uninit();
        // SAFETY: enif_alloc_binary may be called from any thread; it fills `binary` when it returns non-zero, and only
        // then is `binary` taken as initialized, and owned from here on.
        unsafe { (enif_alloc_binary(bytes, binary.as_mut_ptr()) != 0).then(|| Block(binary.assume_init())) }
    }

    fn bytes(&self) -> usize {
        self.0.size
    }

    fn memory(&mut self) -> &mut UninitSlice {
        // SAFETY: a binary of `size` bytes at `data`, which this value owns and which is borrowed mutably for as long.
        unsafe { UninitSlice::from_raw_parts_mut(self.0.data, self.0.size) }
    }
}

/// A landing buffer that binaries refer to: it goes back to its pool when the last of them is collected.
pub struct Landed(LandingBuffer);

#[rustler::resource_impl]
impl Resource for Landed {}

/// The packets as binaries, in order: those of a batch are parts of one, a landed one is the landing buffer itself.
pub fn encode_packets<'a>(env: Env<'a>, received: Vec<Received<Block>>) -> NifResult<Term<'a>> {
    let mut list = Term::list_new_empty(env);
    for received in received.into_iter().rev() {
        match received {
            Received::Whole(block) => list = list.list_prepend(block.into_binary().release(env).to_term(env)),
            Received::Batch { bytes, packets } => {
                let binary = bytes.into_binary().release(env);
                for range in packets.into_iter().rev() {
                    list = list.list_prepend(binary.make_subbinary(range.start, range.len())?.to_term(env));
                }
            }
            Received::Landed(buffer, range) => list = list.list_prepend(landed(env, buffer, range)),
        }
    }
    Ok(list)
}

fn landed<'a>(env: Env<'a>, buffer: LandingBuffer, range: std::ops::Range<usize>) -> Term<'a> {
    let resource = ResourceArc::new(Landed(buffer));
    // SAFETY: the range lies inside the buffer (the connection made it so), and the buffer lives as long as the
    // resource, which the binary keeps alive. The bytes do not change: a landed buffer is handed over in three cases.
    // Its window is closed, and the device no longer lets the peer write. Or the peer is a process of the same user
    // over shm, or the option `zero_copy` is `always`: such a peer writes here again only if it breaks the protocol.
    // A process of the same user can change this process's memory in other ways, too. With `always` the user trusts the
    // peer.
    let binary = unsafe {
        resource.make_binary_unsafe(env, |landed| {
            std::slice::from_raw_parts(landed.0.as_ptr().add(range.start), range.len())
        })
    };
    binary.to_term(env)
}

/// Packets to send: the slices lie in the caller's binaries.
pub struct Outgoing<'a> {
    /// For each packet the rest of the list that begins with it; then the rest that was not decoded.
    cells: Vec<Term<'a>>,
    binaries: Vec<Binary<'a>>,
    /// Where the binaries of each packet end.
    ends: Vec<usize>,
    headers: Vec<Header>,
}

impl<'a> Outgoing<'a> {
    /// Decodes a list of packets (each a binary, a list of binaries, or `{Size, Binaries}`) until it has `max` bytes.
    pub fn decode(list: Term<'a>, framing: Framing, max: usize) -> NifResult<Self> {
        let mut out = Self {
            cells: Vec::with_capacity(PACKETS),
            binaries: Vec::with_capacity(4 * PACKETS),
            ends: Vec::with_capacity(PACKETS),
            headers: Vec::with_capacity(PACKETS),
        };
        let mut total = 0;
        let mut rest = list;
        while total < max && !rest.is_empty_list() {
            let (head, tail) = rest.list_get_cell()?;
            let bytes = out.decode_packet(head)?;
            if framing.header_bytes() > 0 {
                // Its size does not fit the framing's length field.
                let too_large = || Error::Term(Box::new(atoms::emsgsize()));
                out.headers.push(framing.header(bytes).ok_or_else(too_large)?);
            }
            out.cells.push(rest);
            out.ends.push(out.binaries.len());
            total += bytes;
            rest = tail;
        }
        out.cells.push(rest);
        Ok(out)
    }

    fn decode_packet(&mut self, packet: Term<'a>) -> NifResult<usize> {
        if packet.is_tuple() {
            let (_size, data): (Term<'a>, Term<'a>) = packet.decode()?;
            return self.decode_packet(data);
        }
        let first = self.binaries.len();
        if packet.is_binary() {
            self.binaries.push(Binary::from_term(packet)?);
        } else {
            for binary in packet.decode::<ListIterator<'a>>()? {
                self.binaries.push(Binary::from_term(binary)?);
            }
        }
        Ok(self.binaries[first..].iter().map(|binary| binary.len()).sum())
    }

    /// The packets as slices, with headers.
    pub fn gather(&self) -> Gather<'_> {
        let mut gather = Gather::with_capacity(self.binaries.len() + self.headers.len(), self.ends.len());
        let mut start = 0;
        for (index, &end) in self.ends.iter().enumerate() {
            if let Some(header) = self.headers.get(index) {
                gather.push(header.as_slice());
            }
            self.binaries[start..end]
                .iter()
                .for_each(|binary| gather.push(binary.as_slice()));
            gather.end_packet();
            start = end;
        }
        gather
    }

    /// The rest of the list that begins with the packet of this index.
    pub fn list_from(&self, index: usize) -> Term<'a> {
        self.cells[index]
    }
}

pub fn encode_packet<'a>(env: Env<'a>, received: Received<Block>) -> Option<Term<'a>> {
    let (head, _) = encode_packets(env, vec![received]).ok()?.list_get_cell().ok()?;
    Some(head.encode(env))
}
