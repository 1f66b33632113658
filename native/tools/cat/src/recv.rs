//! `rdma-cat recv`.

use crc32fast::Hasher;

use crate::arguments::Recv;
use crate::connect::pollers;
use crate::failure::Failure;
use crate::frame::Head;
use crate::listen::{Door, Visitor};
use crate::output::Output;
use crate::report::Report;
use crate::shape::Shape;

pub fn run(recv: &Recv) -> Result<(), Failure> {
    let shape = Shape::new(&recv.common)?;
    let door = Door::open(&pollers()?, &recv.on, &recv.common, shape)?;
    let output = Output::open(&recv.file)?;
    door.serve(recv.listening.count, |visitor| transfer(visitor, recv, &output, shape))
}

fn transfer(visitor: &mut Visitor, recv: &Recv, output: &Output, shape: Shape) -> Result<(), Failure> {
    visitor.welcome(shape.buffer_bytes())?;
    let link = &mut visitor.link;
    let mut report = Report::start("recv", &recv.common, visitor.total);
    let mut hasher = visitor.verify.then(Hasher::new);
    let digest = loop {
        let packet = link.next(None)?;
        match packet.head {
            Head::Data => {
                if let Some(hasher) = &mut hasher {
                    packet.look(|piece| hasher.update(piece));
                }
                output.write(&packet)?;
                report.add(packet.len());
            }
            Head::End { length, digest } => {
                compare(report.bytes(), length, hasher.map(Hasher::finalize), digest)?;
                break digest;
            }
            _ => return Err(Failure::Peer("sent something in the middle of its data".into())),
        }
    };
    if recv.sync {
        output.sync()?;
    }
    let length = report.bytes();
    link.say(Head::Done { length }, None)?;
    report.finish(link, digest.is_some());
    Ok(())
}

/// Fails unless length and checksum are those that the sender has sent.
fn compare(received: u64, sent: u64, computed: Option<u32>, digest: Option<u32>) -> Result<(), Failure> {
    if received != sent {
        return Err(Failure::Differs(format!("{sent} bytes were sent, {received} arrived")));
    }
    if computed != digest {
        let text = |digest: Option<u32>| digest.map_or("none".into(), |digest| format!("{digest:08x}"));
        let (computed, digest) = (text(computed), text(digest));
        let what = format!("the checksum of what was sent is {digest}, of what arrived {computed}");
        return Err(Failure::Differs(what));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::compare;

    #[test]
    fn a_wrong_length_or_checksum_is_an_error() {
        assert!(compare(5, 5, Some(1), Some(1)).is_ok());
        assert!(compare(5, 5, None, None).is_ok());
        assert!(compare(5, 6, None, None).is_err());
        assert!(compare(5, 5, Some(1), Some(2)).is_err());
        assert!(compare(5, 5, Some(1), None).is_err());
    }
}
