//! `rdma-cat relay`: data goes on to the receiver from the landing buffers in which it has arrived.

use std::sync::Arc;

use inet_rdma_socket::endpoint::Pollers;

use crate::arguments::Relay;
use crate::connect::{connect, greet, pollers};
use crate::failure::Failure;
use crate::frame::Head;
use crate::link::Link;
use crate::listen::{Door, Visitor};
use crate::report::Report;
use crate::shape::Shape;

/// Passes on what `count` senders send.
pub fn run(relay: &Relay) -> Result<(), Failure> {
    let shape = Shape::new(&relay.common)?;
    let pollers = pollers()?;
    let door = Door::open(&pollers, &relay.on, &relay.common, shape)?;
    door.serve(relay.listening.count, |visitor| serve(&pollers, visitor, relay, shape))
}

fn serve(pollers: &Arc<Pollers>, visitor: &mut Visitor, relay: &Relay, shape: Shape) -> Result<(), Failure> {
    let timeout = relay.connecting.timeout();
    let mut onward = connect(pollers, &relay.to, &relay.common, shape, timeout)?;
    let data_bytes = greet(&mut onward, shape, visitor.total, visitor.verify, timeout)?;
    let done = transfer(visitor, &mut onward, relay, data_bytes);
    if let Err(failure) = &done {
        onward.give_up(&failure.to_string());
    }
    done
}

/// Passes one transfer on. The receiver at the end of the chain verifies length and checksum.
fn transfer(visitor: &mut Visitor, onward: &mut Link, relay: &Relay, data_bytes: usize) -> Result<(), Failure> {
    visitor.welcome(data_bytes)?;
    let link = &mut visitor.link;
    let mut report = Report::start("relay", &relay.common, visitor.total);
    let digest = loop {
        let packet = link.next(None)?;
        match packet.head {
            Head::Data => {
                onward.send(Head::Data, |gather| packet.add_to(gather), None)?;
                report.add(packet.len());
            }
            Head::End { digest, .. } => {
                onward.say(packet.head, None)?;
                break digest;
            }
            _ => return Err(Failure::Peer("sent something in the middle of its data".into())),
        }
    };
    match onward.next(None)?.head {
        done @ Head::Done { .. } => link.say(done, None)?,
        _ => return Err(Failure::Peer("does not say whether it received everything".into())),
    }
    report.finish(onward, digest.is_some());
    Ok(())
}
