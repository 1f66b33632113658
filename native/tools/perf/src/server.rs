//! Takes orders and does the server's part.

use std::io::{self, Write};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::Thread;
use std::time::{Duration, Instant};

use inet_rdma_engine::connection::Closed;
use inet_rdma_fabric::{FabricError, ListenOptions, QueuePair};
use inet_rdma_socket::acceptor::{AcceptWaker, Acceptor};
use inet_rdma_socket::endpoint::Pollers;

use crate::control::{Answer, Control};
use crate::failure::Failure;
use crate::gauge::Seen;
use crate::link::Link;
use crate::order::{Order, Role, Test};
use crate::{blast, pingpong};

/// How long a client may take to connect over the fabric.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a client may take to send its order.
const ORDER_TIMEOUT: Duration = Duration::from_secs(5);

/// Interval of the looks whether a client that has not connected yet is still there.
const HANG_UP_LOOK: Duration = Duration::from_millis(100);

struct Unpark(Thread);

impl AcceptWaker for Unpark {
    fn accepted(&self) {
        self.0.unpark();
    }

    fn refused(&self, error: &FabricError) {
        eprintln!("rdma-perf: refused a peer: {error}");
    }
}

/// Serves one client after the other. A failure is reported to the client alone.
pub fn run(on: &str) -> Result<(), Failure> {
    let failed = Failure::control("listening for orders");
    let listener = TcpListener::bind(on).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    println!("listening on {address}");
    io::stdout().flush().map_err(failed)?;
    loop {
        let (stream, _) = listener.accept().map_err(failed)?;
        // Listen over the fabric on the address at which the order came in.
        let on = stream.local_addr().map_err(failed)?.ip();
        if let Err(failure) = serve(stream, on) {
            eprintln!("rdma-perf: {failure}");
        }
    }
}

fn serve(stream: TcpStream, on: IpAddr) -> Result<(), Failure> {
    let timed = stream.set_read_timeout(Some(ORDER_TIMEOUT));
    timed.map_err(Failure::control("setting a timeout"))?;
    let mut control = Control::new(stream);
    let order = control.hear()?;
    let mut link = None;
    let answer = match measure(&mut control, &order, on, &mut link) {
        Ok(seen) => Answer::Seen(seen),
        Err(failure) => Answer::Failed(failure.to_string()),
    };
    control.say(&answer)?;
    // Keep the connection until the client has received everything and hangs up.
    let _over: Result<Answer, Failure> = control.hear();
    Ok(())
}

fn measure(control: &mut Control, order: &Order, on: IpAddr, link: &mut Option<Link>) -> Result<Seen, Failure> {
    let failed = Failure::fabric("listening over the fabric");
    order.check()?;
    let pollers = Arc::new(Pollers::start(1, order.engine_polling()).map_err(failed)?);
    let options = ListenOptions {
        address: Some(on),
        ports: 0..=0,
        backlog: 1,
        hello_timeout: CONNECT_TIMEOUT,
        parameters: order.parameters(),
    };
    let listener = order.fabric().listen(&options).map_err(failed)?;
    let waker = Box::new(Unpark(std::thread::current()));
    let acceptor = Acceptor::start(listener, 1, waker).map_err(failed)?;
    control.say(&Answer::Port(acceptor.port()))?;
    let link = link.insert(Link::new(&pollers, accept(&acceptor, control)?, order, Role::Server)?);
    match order.test {
        Test::Blast => blast::receive(link, order),
        Test::Pingpong => pingpong::follow(link, order),
    }
}

fn accept(acceptor: &Acceptor, control: &Control) -> Result<Box<dyn QueuePair>, Failure> {
    let deadline = Instant::now() + CONNECT_TIMEOUT;
    loop {
        if let Some(qp) = acceptor.accept().map_err(Closed::from)? {
            return Ok(qp);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Failure::Late(CONNECT_TIMEOUT.as_secs()));
        }
        if control.is_over() {
            return Err(Failure::Lost(Closed::PeerGone));
        }
        std::thread::park_timeout(left.min(HANG_UP_LOOK));
    }
}
