//! Terms that outlive the call that brought them.

use rustler::env::SavedTerm;
use rustler::{Env, OwnedEnv, Term};

/// A term in an environment of its own.
pub struct KeptTerm {
    env: OwnedEnv,
    term: SavedTerm,
}

impl KeptTerm {
    pub fn new(term: Term<'_>) -> Self {
        let env = OwnedEnv::new();
        let term = env.save(term);
        Self { env, term }
    }

    pub fn copy<'a>(&self, env: Env<'a>) -> Term<'a> {
        self.env.run(|own| self.term.load(own).in_env(env))
    }
}
