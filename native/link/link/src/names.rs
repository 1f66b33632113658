//! Names that the carrier's modules know, too.

/// Defines an enum whose variants have names, and the list of these. The library is loaded only by modules that know
/// the same names (native/nif/src/interface.rs).
#[macro_export]
macro_rules! named {
    (
        $(#[$text:meta])*
        $visibility:vis enum $type:ident {
            $($(#[$of:meta])* $variant:ident $(($detail:ty))? = $name:literal,)*
        }
    ) => {
        $(#[$text])*
        $visibility enum $type {
            $($(#[$of])* $variant $(($detail))?,)*
        }

        impl $type {
            /// The names of all variants.
            pub const NAMES: &'static [&'static ::std::ffi::CStr] = &[$($name),*];

            /// The name of this one.
            pub fn name(&self) -> &'static ::std::ffi::CStr {
                match self {
                    $($type::$variant { .. } => $name,)*
                }
            }
        }
    };
}
