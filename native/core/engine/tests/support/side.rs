//! The two sides of a connection, and queue pairs between them, over any fabric.

#![allow(dead_code, reason = "no test uses all of it")]

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use inet_rdma_assembly::Framing;
use inet_rdma_engine::VerbsFabric;
use inet_rdma_engine::connection::{Connection, Notifier, ReadHalf, Settings, WriteHalf, ZeroCopy};
use inet_rdma_fabric::{Fabric, ListenOptions, Listener, Parameters, QueuePair};
use inet_rdma_fabric_shm::ShmFabric;
use inet_rdma_records::{Cipher, KEY_BYTES, Key, Protection, Renewal};
use inet_rdma_stream::{Limits, Mode};

/// Nothing that works takes as long as this; whatever takes longer hangs.
pub const BOUND: Duration = Duration::from_secs(30);

/// What one side brings, in the words of the options.
#[derive(Debug, Clone, Copy)]
pub struct Side {
    pub mode: Mode,
    pub ring_bytes: u32,
    pub receive_slots: u16,
    pub landing_buffers: u16,
    pub landing_bytes: u32,
    pub direct_bytes: usize,
    pub packet_max_bytes: usize,
    pub zero_copy: ZeroCopy,
    pub busy: bool,
    pub framing: Framing,
    /// None: the stream is plain.
    pub keys: Option<Keys>,
}

/// How one side of a sealed stream seals.
#[derive(Debug, Clone, Copy)]
pub struct Keys {
    pub cipher: Cipher,
    pub send: [u8; KEY_BYTES],
    pub receive: [u8; KEY_BYTES],
    pub renewal: Renewal,
}

impl Keys {
    /// The keys of the side that connects, then of the side that accepts.
    pub fn pair(cipher: Cipher) -> [Keys; 2] {
        let (there, back) = ([7; KEY_BYTES], [9; KEY_BYTES]);
        [(there, back), (back, there)].map(|(send, receive)| Keys {
            cipher,
            send,
            receive,
            renewal: Renewal::RAREST,
        })
    }

    pub fn protection(&self) -> Protection {
        Protection {
            cipher: self.cipher,
            send_key: key(self.send),
            receive_key: key(self.receive),
            renewal: self.renewal,
        }
    }
}

/// A key of these bytes.
pub fn key(bytes: [u8; KEY_BYTES]) -> Key {
    Key::new(&bytes).expect("32 bytes")
}

impl Default for Side {
    fn default() -> Self {
        Self {
            mode: Mode::Dynamic,
            ring_bytes: 262_144,
            receive_slots: 256,
            landing_buffers: 32,
            landing_bytes: 69_632,
            direct_bytes: 16_384,
            packet_max_bytes: 1 << 30,
            zero_copy: ZeroCopy::Auto,
            busy: false,
            framing: Framing::Length4,
            keys: None,
        }
    }
}

impl Side {
    /// With the sizes that links of the distribution have by default (docs/OPTIONS.md).
    pub fn of_link() -> Self {
        Self {
            ring_bytes: 524_288,
            landing_buffers: 0,
            ..Self::default()
        }
    }

    pub fn limits(&self) -> Limits {
        Limits {
            ring_bytes: self.ring_bytes,
            receive_slots: self.receive_slots,
            adverts: self.landing_buffers.max(1),
        }
    }

    pub fn parameters(&self) -> Parameters {
        Parameters {
            landing_area_bytes: self.landing_bytes * u32::from(self.landing_buffers),
            connection_id: 1,
            ..Parameters::of(self.limits())
        }
    }

    #[allow(clippy::needless_update, reason = "a setting that no test sets has its default")]
    pub fn settings(&self) -> Settings {
        Settings {
            mode: self.mode,
            landing_buffer_bytes: self.landing_bytes,
            direct_bytes: self.direct_bytes,
            packet_max_bytes: self.packet_max_bytes,
            zero_copy: self.zero_copy,
            busy: self.busy,
            ..Settings::default()
        }
    }

    pub fn halves(&self, qp: Box<dyn QueuePair>, notifier: Arc<dyn Notifier>) -> Halves {
        let protection = self.keys.map(|keys| keys.protection());
        let (parameters, settings) = (self.parameters(), self.settings());
        let made = Connection::new(qp, &parameters, settings, self.framing, protection.as_ref(), notifier);
        let (connection, reader, writer) = made.expect("a connection");
        Halves {
            connection,
            reader,
            writer,
        }
    }
}

/// A connection and its directions.
pub struct Halves {
    pub connection: Arc<Connection>,
    pub reader: ReadHalf<Vec<u8>>,
    pub writer: WriteHalf,
}

/// What a program that measures pairs is called with: two numbers, then, for the fabric verbs, an address of a device.
pub struct Arguments {
    pub numbers: [usize; 2],
    /// By which the listener is reached.
    pub address: IpAddr,
    verbs: bool,
}

impl Arguments {
    /// Missing numbers are the defaults, a missing address means shm.
    pub fn new(defaults: [usize; 2]) -> Self {
        let mut words = std::env::args().skip(1);
        let numbers = defaults.map(|default| words.next().map_or(default, |word| word.parse().expect("a number")));
        let device: Option<IpAddr> = words
            .next()
            .map(|word| word.parse().expect("an address of an RDMA device"));
        Self {
            numbers,
            address: device.unwrap_or(Ipv4Addr::LOCALHOST.into()),
            verbs: device.is_some(),
        }
    }

    pub fn fabric(&self) -> Box<dyn Fabric> {
        if self.verbs {
            Box::new(VerbsFabric)
        } else {
            Box::new(ShmFabric)
        }
    }
}

/// A listener on any free port.
pub fn listen(fabric: &dyn Fabric, server: &Side) -> Box<dyn Listener> {
    let options = ListenOptions {
        address: None,
        ports: 0..=0,
        backlog: 128,
        hello_timeout: BOUND,
        parameters: server.parameters(),
    };
    fabric.listen(&options).expect("a free port")
}

/// Two connected queue pairs: first the pair that connected, then the pair that accepted.
pub fn join(
    fabric: &dyn Fabric,
    listener: &mut dyn Listener,
    client: &Side,
) -> (Box<dyn QueuePair>, Box<dyn QueuePair>) {
    join_at(fabric, listener, client, Ipv4Addr::LOCALHOST.into())
}

/// The same by an address of this host.
pub fn join_at(
    fabric: &dyn Fabric,
    listener: &mut dyn Listener,
    client: &Side,
    address: IpAddr,
) -> (Box<dyn QueuePair>, Box<dyn QueuePair>) {
    let port = listener.port();
    let parameters = client.parameters();
    std::thread::scope(|scope| {
        let connecting = scope.spawn(move || fabric.connect((address, port).into(), &parameters, BOUND));
        let end = Instant::now() + BOUND;
        let accepted = loop {
            match listener.poll_accept() {
                Some(accepted) => break accepted.expect("an accepted connection"),
                None => assert!(Instant::now() < end, "nobody came"),
            }
            std::thread::yield_now();
        };
        (connecting.join().expect("no panic").expect("a connection"), accepted)
    })
}

/// Two connected queue pairs.
pub fn queue_pairs(fabric: &dyn Fabric, client: &Side, server: &Side) -> (Box<dyn QueuePair>, Box<dyn QueuePair>) {
    join(fabric, &mut *listen(fabric, server), client)
}
