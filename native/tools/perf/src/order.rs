//! The order: what both sides measure, and how.

use std::time::Duration;

use clap::{Args, ValueEnum};
use inet_rdma_engine::connection::{Settings, ZeroCopy};
use inet_rdma_fabric::{Fabric, FabricName, Parameters};
use inet_rdma_fabric_fault::{FaultFabric, FaultPlan};
use inet_rdma_records::{Cipher, KEY_BYTES, Key, Protection, Renewal};
use inet_rdma_socket::auto::AutoFabric;
use inet_rdma_socket::poller;
use inet_rdma_stream::Limits;
use serde::{Deserialize, Serialize};

use crate::failure::Failure;

/// Size of the length before each message on the wire.
pub const LENGTH_BYTES: usize = 4;

/// Landing buffers start on cache lines.
const LINE_BYTES: u32 = 64;

/// Maximum size of all landing buffers of a side together.
const LANDING_AREA_BYTES_MAX: u64 = 1 << 31;

/// Maximum size of all messages on offer together.
const OFFERED_BYTES_MAX: u64 = 1 << 31;

/// What is measured, and how.
#[derive(Debug, Clone, Args, Serialize, Deserialize)]
pub struct Order {
    /// What happens
    #[arg(long, value_enum, default_value_t = Test::Blast)]
    pub test: Test,
    /// Bytes of a message
    #[arg(long, default_value_t = 65_536, value_parser = clap::value_parser!(u32).range(1..=1 << 30))]
    pub size: u32,
    /// Before each run of --large messages of --size come this many of --small-size (blast)
    #[arg(long, default_value_t = 0)]
    pub small: u32,
    /// Bytes of these
    #[arg(long, default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..=1 << 30))]
    pub small_size: u32,
    /// Length of a run of messages of --size (blast, with --small)
    #[arg(long, default_value_t = 1)]
    pub large: u32,
    /// Measured seconds
    #[arg(long, default_value_t = 1.0)]
    pub seconds: f64,
    /// Seconds of traffic before that
    #[arg(long, default_value_t = 0.2)]
    pub warmup: f64,
    /// Messages that the sender offers at a time (blast)
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub sends: u32,
    /// Landing buffers of each side, all of which are advertised
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=16_384))]
    pub receives: u16,
    /// Size of a landing buffer [a message]
    #[arg(long)]
    pub landing_bytes: Option<u32>,
    /// Minimum size of a message that may go direct, in bytes
    #[arg(long, default_value_t = 1)]
    pub direct_bytes: u32,
    /// Which kinds of transfers are used
    #[arg(long, value_enum, default_value_t = Mode::Dynamic)]
    pub mode: Mode,
    /// Size of each side's ring
    #[arg(long, default_value_t = 524_288)]
    pub ring_bytes: u32,
    /// Depth of each side's receive queue
    #[arg(long, default_value_t = 256)]
    pub receive_slots: u16,
    /// How a side waits: whether it polls or sleeps
    #[arg(long, value_enum, default_value_t = Polling::Adaptive)]
    pub polling: Polling,
    /// How long adaptive polling looks on after an arrival, in microseconds
    #[arg(long, default_value_t = 100)]
    pub spin_us: u64,
    /// The receiver looks at one word of this many bytes of each message, and at its last (blast)
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(8..))]
    pub stride: u32,
    /// Added to each round trip, in microseconds: half of it on the way in at each side
    #[arg(long, default_value_t = 0)]
    pub distance_us: u64,
    /// How the stream is encrypted
    #[arg(long, value_enum, default_value_t = Seal::Plain)]
    pub seal: Seal,
    /// Which fabric: auto, shm, verbs or tcp
    #[arg(long, default_value_t = FabricName::Auto)]
    #[serde(with = "fabric_name")]
    pub fabric: FabricName,
}

/// What happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Test {
    /// The client sends without pause, the server consumes
    Blast,
    /// One message goes to and fro
    Pingpong,
}

/// Which kinds of transfers are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub enum Mode {
    /// Both
    Dynamic,
    /// Into landing buffers
    DirectOnly,
    /// Into the ring
    IndirectOnly,
}

/// How the stream is encrypted. The keys are no secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Seal {
    /// Not at all
    Plain,
    /// AES-256-GCM
    Aes,
    /// ChaCha20-Poly1305
    Chacha,
}

/// A side of the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Client,
    Server,
}

/// How a side waits: whether it polls or sleeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Polling {
    /// It looks by itself and never sleeps
    Busy,
    /// It looks by itself for a while, then sleeps until a polling thread wakes it: as a link of the distribution
    Reader,
    /// It sleeps; the polling thread that wakes it looks for a while before it sleeps itself
    Adaptive,
    /// It sleeps, and the polling thread, too
    Event,
}

impl Order {
    /// Refuses orders that take too much memory.
    pub fn check(&self) -> Result<(), Failure> {
        if self.small_size > self.size && self.small > 0 {
            return Err(Failure::Usage("--small-size is more than --size".into()));
        }
        let area = u64::from(self.landing_buffer_bytes()) * u64::from(self.receives);
        let offered = self.size as u64 * u64::from(self.sends);
        if area > LANDING_AREA_BYTES_MAX || offered > OFFERED_BYTES_MAX {
            return Err(Failure::Usage(format!(
                "--receives take {area} bytes and --sends {offered}: {LANDING_AREA_BYTES_MAX} is the most for either"
            )));
        }
        Ok(())
    }

    /// Bytes of the message with this number.
    pub fn message_bytes(&self, number: u64) -> usize {
        let (small, large) = (u64::from(self.small), u64::from(self.large));
        let is_small = small > 0 && number % (small + large) < small;
        (if is_small { self.small_size } else { self.size }) as usize
    }

    fn landing_buffer_bytes(&self) -> u32 {
        let least = self.size + LENGTH_BYTES as u32;
        self.landing_bytes.unwrap_or(least).next_multiple_of(LINE_BYTES)
    }

    pub fn parameters(&self) -> Parameters {
        let limits = Limits {
            ring_bytes: self.ring_bytes,
            receive_slots: self.receive_slots,
            adverts: self.receives,
        };
        Parameters {
            landing_area_bytes: self.landing_buffer_bytes() * u32::from(self.receives),
            connection_id: std::process::id(),
            ..Parameters::of(limits)
        }
    }

    pub fn settings(&self) -> Settings {
        Settings {
            mode: match self.mode {
                Mode::Dynamic => inet_rdma_stream::Mode::Dynamic,
                Mode::DirectOnly => inet_rdma_stream::Mode::DirectOnly,
                Mode::IndirectOnly => inet_rdma_stream::Mode::IndirectOnly,
            },
            landing_buffer_bytes: self.landing_buffer_bytes(),
            direct_bytes: self.direct_bytes as usize,
            packet_max_bytes: self.size as usize,
            zero_copy: ZeroCopy::Always,
            // Not busy: `Link` looks by itself while it waits.
            ..Settings::default()
        }
    }

    /// Keys and cipher of one side; None: the stream is plain.
    pub fn protection(&self, role: Role) -> Option<Protection> {
        let cipher = match self.seal {
            Seal::Plain => return None,
            Seal::Aes => Cipher::Aes256Gcm,
            Seal::Chacha => Cipher::ChaCha20Poly1305,
        };
        let key = |of: Role| Key::new(&[of as u8; KEY_BYTES]);
        let peer = match role {
            Role::Client => Role::Server,
            Role::Server => Role::Client,
        };
        Some(Protection {
            cipher,
            send_key: key(role)?,
            receive_key: key(peer)?,
            renewal: Renewal::RAREST,
        })
    }

    /// How the polling thread behaves.
    pub fn engine_polling(&self) -> poller::Polling {
        match self.polling {
            Polling::Adaptive => poller::Polling::Adaptive { spin: self.spin() },
            Polling::Busy | Polling::Reader | Polling::Event => poller::Polling::Event,
        }
    }

    /// The time for which a waiting side looks before it sleeps.
    pub fn spin(&self) -> Duration {
        Duration::from_micros(self.spin_us)
    }

    /// The fabric under test, with the distance that the order asks for.
    pub fn fabric(&self) -> Box<dyn Fabric> {
        let fabric = AutoFabric(self.fabric);
        if self.distance_us == 0 {
            return Box::new(fabric);
        }
        let plan = FaultPlan {
            distance: Duration::from_micros(self.distance_us) / 2,
            ..FaultPlan::default()
        };
        Box::new(FaultFabric::new(fabric, plan))
    }
}

/// A fabric is its name in an order.
mod fabric_name {
    use inet_rdma_fabric::FabricName;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub fn serialize<S: Serializer>(fabric: &FabricName, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(fabric.name())
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<FabricName, D::Error> {
        String::deserialize(from)?.parse().map_err(D::Error::custom)
    }
}
