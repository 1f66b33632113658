//! Two processes exchange a message: `cargo run --example minimal`. The first listens, and starts itself once more with
//! the number of its port; the second connects. Each sends a message, and prints what the other says.

use std::net::Ipv4Addr;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use inet_rdma_assembly::{Framing, Gather, ReadLimit, Received};
use inet_rdma_engine::connection::{Connection, ReadEnd, Settings};
use inet_rdma_fabric::{Fabric, ListenOptions, Parameters, QueuePair};
use inet_rdma_fabric_shm::ShmFabric;
use inet_rdma_stream::Limits;

const BOUND: Duration = Duration::from_secs(10);
const PARAMETERS: Parameters = Parameters::of(Limits {
    ring_bytes: 65_536,
    receive_slots: 64,
    adverts: 1,
});

fn main() -> Result<(), Box<dyn std::error::Error>> {
    if let Some(port) = std::env::args().nth(1) {
        let to = (Ipv4Addr::LOCALHOST, port.parse()?).into();
        return talk(
            ShmFabric.connect(to, &PARAMETERS, BOUND)?,
            "hello from the process that connects",
        );
    }
    let options = ListenOptions {
        address: None,
        ports: 0..=0,
        backlog: 1,
        hello_timeout: BOUND,
        parameters: PARAMETERS,
    };
    let mut listener = ShmFabric.listen(&options)?;
    let mut child = Command::new(std::env::current_exe()?)
        .arg(listener.port().to_string())
        .spawn()?;
    let queue_pair = loop {
        // A program with more to do waits for `event_fd`: see `Engine::listen`.
        match listener.poll_accept() {
            Some(accepted) => break accepted?,
            None => std::thread::yield_now(),
        }
    };
    talk(queue_pair, "hello from the process that listens")?;
    assert!(child.wait()?.success(), "the other process failed");
    Ok(())
}

/// Sends a message, and prints the peer's.
fn talk(queue_pair: Box<dyn QueuePair>, message: &str) -> Result<(), Box<dyn std::error::Error>> {
    let settings = Settings {
        packet_max_bytes: 1_024,
        busy: true,
        ..Settings::default()
    };
    let (_, mut reader, mut writer) =
        Connection::new::<Vec<u8>>(queue_pair, &PARAMETERS, settings, Framing::Raw, None, Arc::new(()))?;
    let mut gather = Gather::with_capacity(1, 1);
    gather.push(message.as_bytes());
    gather.end_packet();
    let written = writer.write(&gather, 0, gather.total())?;
    assert!(!written.blocked, "a new connection has room");
    let mut received = Vec::new();
    while received.is_empty() {
        // A program with more to do lets a polling thread wake it: see `Engine::attach`.
        let end = reader.read(ReadLimit::bytes(1_024), &mut received);
        if let ReadEnd::Closed(why) = end {
            if received.is_empty() {
                return Err(why.into());
            }
        }
    }
    // So few bytes come at once, and through the ring: nothing is advertised.
    if let Some(Received::Whole(bytes) | Received::Batch { bytes, .. }) = received.pop() {
        println!("{}", String::from_utf8_lossy(&bytes));
    }
    writer.close();
    Ok(())
}
