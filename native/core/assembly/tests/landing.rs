//! Bytes of landing buffers are copied, written and sent, and no bytes beside the range.

#[path = "support/heap_memory.rs"]
mod heap_memory;

use std::io::{Read, Seek};
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};

use inet_rdma_assembly::Gather;

#[test]
fn any_part_is_copied_written_and_sent() {
    let pool = heap_memory::pool(2, 16);
    let _first = pool.take();
    let buffer = heap_memory::filled(&pool, 3, b"0123456789");
    for at in 0..=10 {
        for end in at..=10 {
            let (part, expected) = (3 + at..3 + end, &b"0123456789"[at..end]);
            let mut copied = vec![0; end - at];
            buffer.copy_out(part.start, &mut copied);
            assert_eq!(copied, expected);
            let mut gather = Gather::with_capacity(2, 1);
            gather.push(b"<");
            gather.push_landed(&buffer, part.clone());
            gather.end_packet();
            assert_eq!(gather.slices().concat(), [b"<", expected].concat());
            let memfd = rustix::fs::memfd_create("written", rustix::fs::MemfdFlags::CLOEXEC).expect("a file");
            assert_eq!(buffer.write_to(part, memfd.as_fd()).expect("it takes all"), end - at);
            let (mut file, mut written) = (std::fs::File::from(memfd), Vec::new());
            file.rewind()
                .and_then(|()| file.read_to_end(&mut written))
                .expect("a file");
            assert_eq!(written, expected);
        }
    }
}

#[test]
fn a_write_that_fails_says_why() {
    let buffer = heap_memory::filled(&heap_memory::pool(1, 16), 0, b"x");
    let full = std::fs::File::options()
        .write(true)
        .open("/dev/full")
        .expect("/dev/full");
    let error = buffer.write_to(0..1, full.as_fd()).expect_err("no space");
    assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
}

#[test]
fn nothing_beyond_the_buffer_can_be_reached() {
    let pool = heap_memory::pool(2, 16);
    let buffer = pool.take().expect("a free one");
    let beyond = |what: &dyn Fn()| assert!(catch_unwind(AssertUnwindSafe(what)).is_err());
    beyond(&|| buffer.copy_out(10, &mut [0; 7]));
    beyond(&|| buffer.copy_out(usize::MAX, &mut [0; 2]));
    beyond(&|| Gather::with_capacity(1, 1).push_landed(&buffer, 16..17));
    beyond(&|| {
        let _ = buffer.write_to(0..17, std::io::stdin().as_fd());
    });
}
