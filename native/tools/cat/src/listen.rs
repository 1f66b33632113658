//! Waiting for senders, one after the other.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded};
use inet_rdma_engine::connection::Closed;
use inet_rdma_fabric::{Fabric, FabricError, ListenOptions};
use inet_rdma_socket::acceptor::{AcceptWaker, Acceptor};
use inet_rdma_socket::endpoint::Pollers;

use crate::arguments::Common;
use crate::failure::Failure;
use crate::frame::Head;
use crate::link::Link;
use crate::shape::Shape;

/// Senders that may wait for their turn.
const BACKLOG: u16 = 128;

/// How long a peer may take to say hello.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);

struct Waker {
    notify: Sender<()>,
    quiet: bool,
}

impl AcceptWaker for Waker {
    fn accepted(&self) {
        // Full: an earlier notification waits.
        let _ = self.notify.try_send(());
    }

    fn refused(&self, error: &FabricError) {
        if !self.quiet {
            eprintln!("rdma-cat: refused a peer: {error}");
        }
    }
}

/// A port where senders arrive.
pub struct Door {
    acceptor: Acceptor,
    notified: Receiver<()>,
    pollers: Arc<Pollers>,
    shape: Shape,
    quiet: bool,
}

/// A sender that has said hello and awaits an answer.
pub struct Visitor {
    pub link: Link,
    /// Bytes that the sender will send; None: it does not know.
    pub total: Option<u64>,
    pub verify: bool,
}

impl Visitor {
    /// Answers the hello. `data_bytes`: the most data that this side takes in one packet.
    pub fn welcome(&mut self, data_bytes: usize) -> Result<(), Failure> {
        let answer = Head::Hello {
            data_bytes: data_bytes as u64,
            total: None,
            verify: self.verify,
        };
        self.link.say(answer, Some(Instant::now() + HELLO_TIMEOUT))
    }
}

impl Door {
    /// Listens on `[ADDR:]PORT`.
    pub fn open(pollers: &Arc<Pollers>, on: &str, common: &Common, shape: Shape) -> Result<Self, Failure> {
        let (address, port) = parse(on)?;
        let options = ListenOptions {
            address,
            ports: port..=port,
            backlog: BACKLOG,
            hello_timeout: HELLO_TIMEOUT,
            parameters: shape.parameters(),
        };
        let (notify, notified) = bounded(1);
        let waker = Box::new(Waker {
            notify,
            quiet: common.quiet,
        });
        let acceptor = common
            .fabric()
            .listen(&options)
            .and_then(|listener| Acceptor::start(listener, BACKLOG.into(), waker))
            .map_err(Failure::connect(format!("listening on {on}")))?;
        if port == 0 {
            // The user has asked for any free port.
            eprintln!("rdma-cat: listening on port {}", acceptor.port());
        }
        Ok(Self {
            acceptor,
            notified,
            pollers: Arc::clone(pollers),
            shape,
            quiet: common.quiet,
        })
    }

    /// Serves `count` senders (0: any number), one after the other. The first failure ends it; the sender gets the
    /// reason.
    pub fn serve(
        &self,
        count: u64,
        mut transfer: impl FnMut(&mut Visitor) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let mut served = 0;
        while count == 0 || served < count {
            let mut visitor = self.next()?;
            if let Err(failure) = transfer(&mut visitor) {
                visitor.link.give_up(&failure.to_string());
                return Err(failure);
            }
            visitor.link.take_leave();
            served += 1;
        }
        Ok(())
    }

    /// Waits for the next sender. A peer that ends the connection, or stays silent, before its hello does not count.
    fn next(&self) -> Result<Visitor, Failure> {
        loop {
            let Some(qp) = self.acceptor.accept().map_err(Closed::from)? else {
                // The other end lives in `acceptor`.
                let _ = self.notified.recv();
                continue;
            };
            let why = format!("the peer chose it: {}", qp.route());
            let mut link = Link::new(&self.pollers, qp, self.shape, why)?;
            match link.next(Some(Instant::now() + HELLO_TIMEOUT)) {
                Ok(packet) => match packet.head {
                    Head::Hello { total, verify, .. } => return Ok(Visitor { link, total, verify }),
                    _ => {
                        let failure = Failure::Peer("is no rdma-cat that sends".into());
                        link.give_up(&failure.to_string());
                        return Err(failure);
                    }
                },
                Err(failure @ Failure::Peer(_)) if failure.to_string() != "the peer does not answer" => {
                    link.give_up(&failure.to_string());
                    return Err(failure);
                }
                Err(failure) => {
                    if !self.quiet {
                        eprintln!("rdma-cat: a peer came and sent nothing: {failure}");
                    }
                }
            }
        }
    }
}

/// `[ADDR:]PORT`; an IPv6 address stands in brackets.
fn parse(on: &str) -> Result<(Option<IpAddr>, u16), Failure> {
    let wrong = || Failure::Usage(format!("{on}: not [ADDR:]PORT with an address in numbers"));
    let (address, port) = match on.rsplit_once(':') {
        Some((address, port)) => {
            let bare = address
                .strip_prefix('[')
                .map_or(Some(address), |rest| rest.strip_suffix(']'));
            let address = bare.and_then(|bare| bare.parse().ok()).ok_or_else(wrong)?;
            (Some(address), port)
        }
        None => (None, on),
    };
    Ok((address, port.parse().map_err(|_| wrong())?))
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::parse;

    #[test]
    fn addresses_are_optional_and_in_brackets_for_version_6() {
        assert_eq!(parse("7000").expect("a port"), (None, 7000));
        assert_eq!(
            parse("127.0.0.1:7000").expect("both"),
            (Some(Ipv4Addr::LOCALHOST.into()), 7000)
        );
        assert_eq!(parse("[::1]:1").expect("both"), (Some(Ipv6Addr::LOCALHOST.into()), 1));
        for wrong in ["", "host:7000", "70000", "-1", "[::1]", "[::1:1", "1.2.3.4:"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
