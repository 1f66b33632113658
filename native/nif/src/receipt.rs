//! The data that an operation keeps of its caller: the process that gets the message of its end, and the binaries of a
//! send.

use inet_rdma_assembly::Gather;
use inet_rdma_socket::stream_socket::Parcel;
use rustler::env::SavedTerm;
use rustler::{Binary, Env, LocalPid, NifResult, OwnedEnv, Term};

use crate::messages;

pub struct Receipt {
    /// Keeps all of them; a reference-counted binary by a reference, without a copy.
    env: OwnedEnv,
    /// None: no process waits for the end.
    poster: Option<Poster>,
    binaries: Option<Binaries>,
}

/// The process to tell, and the terms of its message.
struct Poster {
    pid: LocalPid,
    socket: SavedTerm,
    reference: SavedTerm,
}

struct Binaries {
    bytes: usize,
    /// The rest of the list that begins with the binary of the next byte.
    rest: SavedTerm,
    /// Bytes of the send before that binary.
    rest_at: usize,
}

impl Receipt {
    /// The receipt of an operation without a message at its end.
    pub fn silent() -> Self {
        Self {
            env: OwnedEnv::new(),
            poster: None,
            binaries: None,
        }
    }

    /// The receipt of an operation of which this process is told.
    pub fn to(pid: LocalPid, socket: Term<'_>, reference: Term<'_>) -> Self {
        let mut receipt = Self::silent();
        receipt.poster = Some(Poster {
            pid,
            socket: receipt.env.save(socket),
            reference: receipt.env.save(reference),
        });
        receipt
    }

    pub fn with_binaries(mut self, list: Term<'_>) -> NifResult<Self> {
        let mut bytes = 0;
        for binary in list.into_list_iterator()? {
            bytes += Binary::from_term(binary)?.len();
        }
        self.binaries = Some(Binaries {
            bytes,
            rest: self.env.save(list),
            rest_at: 0,
        });
        Ok(self)
    }

    /// Whether the operation has this reference.
    pub fn is(&self, reference: Term<'_>) -> bool {
        let Some(poster) = &self.poster else { return false };
        self.env.run(|env| poster.reference.load(env) == reference)
    }

    /// Sends what `build` makes of socket and reference.
    pub fn tell(&self, build: impl for<'b> FnOnce(Env<'b>, Term<'b>, Term<'b>) -> Term<'b>) {
        let Some(poster) = &self.poster else { return };
        messages::send(&poster.pid, |env| {
            let (socket, reference) = self.env.run(|own| {
                let (socket, reference) = (poster.socket.load(own), poster.reference.load(own));
                (socket.in_env(env), reference.in_env(env))
            });
            build(env, socket, reference)
        });
    }
}

impl Parcel for Receipt {
    fn bytes(&self) -> usize {
        self.binaries.as_ref().map_or(0, |binaries| binaries.bytes)
    }

    fn gather<'a>(&'a self, from: usize, gather: &mut Gather<'a>, max: usize) {
        let Some(binaries) = &self.binaries else { return };
        let mut skip = from - binaries.rest_at;
        self.env.run(|env: Env<'a>| {
            let mut rest = binaries.rest.load(env);
            while gather.total() < max {
                let Some((slice, tail)) = first(rest) else {
                    break;
                };
                gather.push(&slice[skip..]);
                skip = 0;
                rest = tail;
            }
        });
    }

    fn advance(&mut self, to: usize) {
        let Some(binaries) = &mut self.binaries else { return };
        let mut at = binaries.rest_at;
        binaries.rest = self.env.run(|env| {
            let mut rest = binaries.rest.load(env);
            while let Some((slice, tail)) = first(rest) {
                if at + slice.len() > to {
                    break;
                }
                at += slice.len();
                rest = tail;
            }
            // The term lies in this environment already, so this makes no copy.
            self.env.save(rest)
        });
        binaries.rest_at = at;
    }
}

/// The first binary of a list, and the others; it was checked when the send was posted.
fn first(list: Term<'_>) -> Option<(&[u8], Term<'_>)> {
    let (head, tail) = list.list_get_cell().ok()?;
    Some((Binary::from_term(head).ok()?.as_slice(), tail))
}
