//! Gives an order and does the client's part.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use inet_rdma_socket::endpoint::Pollers;
use serde::Serialize;

use crate::control::{Answer, Control};
use crate::failure::Failure;
use crate::gauge::Seen;
use crate::link::Link;
use crate::order::{Order, Role, Test};
use crate::pingpong::Latency;
use crate::server::CONNECT_TIMEOUT;
use crate::{blast, pingpong};

#[derive(Serialize)]
struct Outcome<'a> {
    order: &'a Order,
    client: Seen,
    server: Seen,
    #[serde(skip_serializing_if = "Option::is_none")]
    latency: Option<Latency>,
}

pub fn run(to: &str, order: &Order) -> Result<(), Failure> {
    let failed = Failure::control("reaching the server");
    order.check()?;
    let stream = TcpStream::connect(to).map_err(failed)?;
    let peer = stream.peer_addr().map_err(failed)?;
    let mut control = Control::new(stream);
    control.say(order)?;
    let port = match control.hear()? {
        Answer::Port(port) => port,
        other => return Err(unexpected(other)),
    };
    let (mut link, _engine) = connect(SocketAddr::new(peer.ip(), port), order)?;
    let done = match order.test {
        Test::Blast => blast::send(&mut link, order).map(|seen| (seen, None)),
        Test::Pingpong => pingpong::lead(&mut link, order).map(|(seen, latency)| (seen, Some(latency))),
    };
    // If this side has lost the connection, the server may know the reason.
    let (client, latency) = match done {
        Ok(done) => done,
        Err(failure @ Failure::Lost(_)) => {
            return Err(control.hear().map_or(failure, unexpected));
        }
        Err(failure) => return Err(failure),
    };
    let server = match control.hear()? {
        Answer::Seen(seen) => seen,
        other => return Err(unexpected(other)),
    };
    if client.messages != server.messages {
        let (sent, received) = (client.messages, server.messages);
        return Err(Failure::Differs(format!(
            "{sent} messages were sent, {received} arrived"
        )));
    }
    let result = Outcome {
        order,
        client,
        server,
        latency,
    };
    print(&result)
}

fn connect(to: SocketAddr, order: &Order) -> Result<(Link, Arc<Pollers>), Failure> {
    let failed = Failure::fabric("connecting over the fabric");
    let pollers = Arc::new(Pollers::start(1, order.engine_polling()).map_err(failed)?);
    let qp = order
        .fabric()
        .connect(to, &order.parameters(), CONNECT_TIMEOUT)
        .map_err(failed)?;
    Ok((Link::new(&pollers, qp, order, Role::Client)?, pollers))
}

fn unexpected(answer: Answer) -> Failure {
    match answer {
        Answer::Failed(why) => Failure::Server(why),
        other => Failure::Server(format!("said {other:?}")),
    }
}

fn print(result: &Outcome<'_>) -> Result<(), Failure> {
    let text = serde_json::to_string(result).map_err(io::Error::from);
    println!("{}", text.map_err(Failure::control("printing the result"))?);
    Ok(())
}
