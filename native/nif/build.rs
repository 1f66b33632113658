//! Keeps the library mapped once it was loaded: its threads run on when the VM unloads a module or a driver that came
//! with it.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
