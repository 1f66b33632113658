//! What the poster of a send or a receive gets when it is over: one message.

use inet_rdma_engine::connection::Closed;
use rustler::env::SavedTerm;
use rustler::{Atom, Encoder, Env, LocalPid, OwnedEnv, Term};

use crate::atoms;
use crate::terms;
use crate::voice::Voice;

/// The terms of one operation, and whom to tell of its end.
pub struct Receipt {
    /// Keeps all terms of the operation.
    env: OwnedEnv,
    /// None: no process waits for the end.
    poster: Option<Poster>,
}

/// Whom to tell, and the names to tell it by.
struct Poster {
    pid: LocalPid,
    socket: SavedTerm,
    reference: SavedTerm,
}

impl Receipt {
    /// For an operation that the calling process posts.
    pub fn new(env: Env<'_>, socket: Term<'_>, reference: Term<'_>) -> Self {
        let own = OwnedEnv::new();
        let poster = Poster {
            pid: env.pid(),
            socket: own.save(socket),
            reference: own.save(reference),
        };
        Self {
            env: own,
            poster: Some(poster),
        }
    }

    /// For an operation whose end no process is told of.
    pub fn silent() -> Self {
        Self {
            env: OwnedEnv::new(),
            poster: None,
        }
    }

    /// Whether this is its reference.
    pub fn is(&self, reference: Term<'_>) -> bool {
        let Some(poster) = &self.poster else { return false };
        self.env.run(|env| poster.reference.load(env) == reference)
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
        let Some(poster) = &self.poster else { return };
        voice.tell(&poster.pid, |env| {
            let (socket, reference) = self.env.run(|own| {
                let (socket, reference) = (poster.socket.load(own), poster.reference.load(own));
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
