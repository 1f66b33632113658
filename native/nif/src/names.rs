//! Enums of the crates below as atoms, so that none needs a twin here.

use inet_rdma_engine::connection::ZeroCopy;
use inet_rdma_fabric::FabricName;
use inet_rdma_stream::Mode;
use rustler::{Decoder, Encoder, Env, NifResult, Term};

use crate::terms::atom;

/// A value that Erlang knows by a name of its own.
pub trait Named: Copy + 'static {
    const ALL: &'static [Self];

    /// The text of the atom.
    fn name(self) -> &'static str;
}

/// Names the variants of an enum. A variant that is missing does not compile.
macro_rules! named {
    ($type:ident { $($variant:ident => $name:ident,)+ }) => {
        impl $crate::names::Named for $type {
            const ALL: &'static [Self] = &[$($type::$variant),+];

            fn name(self) -> &'static str {
                match self {
                    $($type::$variant => stringify!($name),)+
                }
            }
        }
    };
}
pub(crate) use named;

named!(Mode {
    Dynamic => dynamic,
    DirectOnly => direct_only,
    IndirectOnly => indirect_only,
});

named!(ZeroCopy {
    Auto => auto,
    Windows => windows,
    Always => always,
    Never => never,
});

impl Named for FabricName {
    const ALL: &'static [Self] = &FabricName::ALL;

    fn name(self) -> &'static str {
        FabricName::name(self)
    }
}

/// A value, which is its name in Erlang.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ByName<T>(pub T);

impl<'a, T: Named> Decoder<'a> for ByName<T> {
    fn decode(term: Term<'a>) -> NifResult<Self> {
        let name = term.atom_to_string()?;
        let value = T::ALL.iter().copied().find(|value| value.name() == name);
        // The error of rustler's derived decoder of atoms.
        value.map(ByName).ok_or(rustler::Error::RaiseAtom("invalid_variant"))
    }
}

impl<T: Named> Encoder for ByName<T> {
    fn encode<'a>(&self, env: Env<'a>) -> Term<'a> {
        atom(env, self.0.name())
    }
}
