//! Numbers that a link's port answers with, each by its key in `inet_rdma:info/1`. The carrier's module
//! `inet_rdma_counts` has the kind and the meaning of each; `errors_SUITE` compares both lists.

/// Numbers in one answer: the VM's buffer has 64 bytes.
pub(crate) const ANSWER_NUMBERS: usize = 8;
/// Stands for a number that is unknown: the carrier leaves its key out.
pub(crate) const UNKNOWN: u64 = u64::MAX;

/// A number of `S` by its key.
pub(crate) type Number<S> = (&'static str, fn(&S) -> u64);

/// The keys of a table.
pub(crate) fn keys<S>(table: &[Number<S>]) -> Vec<&'static str> {
    table.iter().map(|(key, _)| *key).collect()
}

/// The numbers of a table, in its order.
pub(crate) fn values<S>(table: &[Number<S>], of: &S) -> Vec<u64> {
    table.iter().map(|(_, value)| value(of)).collect()
}
