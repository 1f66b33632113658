//! Tests of the paths of a link.

mod exploration;
mod looks;
