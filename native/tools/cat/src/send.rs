//! `rdma-cat send`.

use std::time::Duration;

use crossbeam_channel::{TryRecvError, select};

use crate::arguments::{Common, Send};
use crate::connect::{connect, greet, pollers};
use crate::failure::Failure;
use crate::frame::Head;
use crate::input::{Input, Piece, Sources};
use crate::link::{KEEPALIVE, Link};
use crate::report::Report;
use crate::shape::Shape;

/// Sends all input; returns when the receiver has written it.
pub fn run(send: &Send) -> Result<(), Failure> {
    let shape = Shape::new(&send.common)?;
    // A file that cannot be opened is found before the receiver gets a connection.
    let sources = Sources::open(&send.files)?;
    let timeout = send.connecting.timeout();
    let mut link = connect(&pollers()?, &send.to, &send.common, shape, timeout)?;
    let done = transfer(&mut link, sources, shape, timeout, send.no_verify, &send.common);
    if let Err(failure @ Failure::Local { .. }) = &done {
        link.give_up(&failure.to_string());
    }
    done
}

fn transfer(
    link: &mut Link,
    sources: Sources,
    shape: Shape,
    timeout: Duration,
    no_verify: bool,
    common: &Common,
) -> Result<(), Failure> {
    let total = sources.total();
    let data_bytes = greet(link, shape, total, !no_verify, timeout)?;
    let mut report = Report::start("send", common, total);
    let input = sources.read(data_bytes, shape.buffers(), !no_verify)?;
    let (length, digest) = loop {
        match next_piece(&input, link)? {
            Piece::Data { buffer, bytes } => {
                link.send(Head::Data, |gather| gather.push(&buffer[..bytes]), None)?;
                input.give_back(buffer);
                report.add(bytes);
            }
            Piece::End { length, digest } => break (length, digest),
        }
    };
    link.say(Head::End { length, digest }, None)?;
    match link.next(None)?.head {
        Head::Done { length: written } if written == length => {}
        Head::Done { length: written } => {
            return Err(Failure::Differs(format!(
                "{length} bytes were sent, but the receiver wrote {written}"
            )));
        }
        _ => return Err(Failure::Peer("does not say whether it received everything".into())),
    }
    report.finish(link, digest.is_some());
    Ok(())
}

/// Waits for the next piece of input. Err: the receiver has given up meanwhile.
fn next_piece(input: &Input, link: &mut Link) -> Result<Piece, Failure> {
    loop {
        link.listen_for_failure()?;
        match input.pieces.try_recv() {
            Ok(piece) => return piece,
            Err(TryRecvError::Disconnected) => return Err(reader_is_gone()),
            Err(TryRecvError::Empty) => {}
        }
        if !link.arm() {
            continue;
        }
        select! {
            recv(input.pieces) -> piece => return piece.unwrap_or_else(|_| Err(reader_is_gone())),
            recv(link.notified()) -> _ => {}
            default(KEEPALIVE) => link.keep_alive()?,
        }
    }
}

fn reader_is_gone() -> Failure {
    let failed = std::io::Error::other("the thread that reads it failed");
    Failure::local("reading the input", failed)
}
