//! The cost of the protocol's bookkeeping per small transfer, of both sides together: `cargo bench -p
//! inet_rdma_stream`.

mod rounds;

use criterion::{Criterion, Throughput};

fn bookkeeping(bench: &mut Criterion) {
    let mut group = bench.benchmark_group("bookkeeping of a transfer, both sides");
    group.throughput(Throughput::Elements(1));
    for (name, round) in [("indirect", rounds::indirect as fn(&mut _)), ("direct", rounds::direct)] {
        let mut pair = rounds::pair();
        group.bench_function(name, |run| run.iter(|| round(&mut pair)));
    }
    group.finish();
}

fn main() {
    let mut bench = Criterion::default().configure_from_args();
    bookkeeping(&mut bench);
    bench.final_summary();
}
