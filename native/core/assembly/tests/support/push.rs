//! Pushes bytes into an assembly as a connection does: out of a ring, in two runs at the wrap.

use inet_rdma_assembly::{Arrived, Assembly, AssemblyError, ReadLimit, Received};

pub fn push(
    assembly: &mut Assembly<Vec<u8>>,
    bytes: &[u8],
    wrap: usize,
    limit: ReadLimit,
    out: &mut Vec<Received<Vec<u8>>>,
) -> Result<usize, AssemblyError> {
    let (before, after) = bytes.split_at(wrap);
    // SAFETY: both runs are slices that outlive the value.
    let arrived = unsafe { Arrived::new([(before.as_ptr(), before.len()), (after.as_ptr(), after.len())]) };
    assembly.push(&arrived, limit, out)
}
