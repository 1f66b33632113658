//! What the poster of a send or a receive gets when it is over: one message.

use inet_rdma_engine::connection::Closed;
use rustler::env::SavedTerm;
use rustler::{Atom, Encoder, Env, LocalPid, OwnedEnv, Term};

use crate::atoms;
use crate::terms;
use crate::voice::Voice;

/// Whom to tell, and the names to tell it by.
pub struct Receipt {
    poster: LocalPid,
    /// Keeps all terms of one operation.
    env: OwnedEnv,
    socket: SavedTerm,
    reference: SavedTerm,
}

impl Receipt {
    /// For an operation that the calling process posts.
    pub fn new(env: Env<'_>, socket: Term<'_>, reference: Term<'_>) -> Self {
        let own = OwnedEnv::new();
        let (socket, reference) = (own.save(socket), own.save(reference));
        Self {
            poster: env.pid(),
            env: own,
            socket,
            reference,
        }
    }

    /// Whether this is its reference.
    pub fn is(&self, reference: Term<'_>) -> bool {
        self.env.run(|env| self.reference.load(env) == reference)
    }

    /// Keeps another term for as long. Of a binary that is counted it keeps a reference, no copy.
    pub fn keep(&self, term: Term<'_>) -> SavedTerm {
        self.env.save(term)
    }

    /// Runs `look` with a term that was kept. What it finds lives as long as the receipt.
    pub fn with<'a, R>(&'a self, kept: &SavedTerm, look: impl FnOnce(Term<'a>) -> R) -> R {
        self.env.run(|env: Env<'a>| look(kept.load(env)))
    }

    /// Sends `{What, Socket, Reference, Result}`.
    pub fn tell(&self, voice: Voice<'_>, what: Atom, result: impl for<'b> FnOnce(Env<'b>) -> Term<'b>) {
        voice.tell(&self.poster, |env| {
            let (socket, reference) = self.env.run(|own| {
                let (socket, reference) = (self.socket.load(own), self.reference.load(own));
                (socket.in_env(env), reference.in_env(env))
            });
            (what, socket, reference, result(env)).encode(env)
        });
    }

    /// The result of what the connection's end leaves undone.
    pub fn tell_end(&self, voice: Voice<'_>, what: Atom, closed: &Closed) {
        self.tell(voice, what, |env| {
            (atoms::error(), terms::closed(env, closed)).encode(env)
        });
    }
}
