//! Options from Erlang for connecting and listening. Erlang has validated them; ranges are checked again where a wrong
//! value could do harm.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use inet_rdma_engine::connection::{Settings, ZeroCopy};
use inet_rdma_fabric::{FabricError, FabricName, Network, Parameters};
use inet_rdma_socket::endpoint::Pollers;
use inet_rdma_socket::poller::Polling;
use inet_rdma_socket::stream_socket::Bounds;
use inet_rdma_stream::{Limits, Mode};
use parking_lot::Mutex;
use rustler::{Env, NifMap, Term};

use crate::names::{ByName, Named, named};
use crate::terms::atom;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum PollingOption {
    Adaptive,
    Event,
    Busy,
}

named!(PollingOption {
    Adaptive => adaptive,
    Event => event,
    Busy => busy,
});

/// All options of connections, validated. `inet_rdma_options:list/0` has them, too: errors_SUITE compares both.
#[derive(NifMap, Clone)]
pub struct Config {
    pub fabric: ByName<FabricName>,
    pub mode: ByName<Mode>,
    pub ring_bytes: u32,
    pub receive_slots: u16,
    pub landing_buffers: u16,
    pub landing_bytes: u32,
    pub pinned_max_bytes: u64,
    pub direct_bytes: u32,
    pub zero_copy: ByName<ZeroCopy>,
    pub packet_max_bytes: u32,
    pub polling: ByName<PollingOption>,
    pub spin_us: u32,
    pub polling_threads: u16,
    pub backlog: u16,
    pub call_bytes: u32,
    pub sends_max: u16,
    pub receives_max: u16,
    pub connect_timeout_ms: u32,
    pub ack_timeout_ms: u32,
    pub type_of_service: u8,
}

impl Config {
    /// The parameters of this side. Token 0: no token. The peer gets the low half of the id.
    pub fn parameters(&self, connection_id: u64, token: u64) -> Parameters {
        Parameters {
            limits: Limits {
                ring_bytes: self.ring_bytes,
                receive_slots: self.receive_slots,
                // Each takes a receive slot on its way: a quarter of them at most.
                adverts: self.landing_buffers.min(self.receive_slots / 4).max(1),
            },
            landing_area_bytes: self.landing_bytes.saturating_mul(self.landing_buffers.into()),
            connection_id: connection_id as u32,
            token,
            pinned_max_bytes: self.pinned_max_bytes,
            // 0: the system's choice.
            network: Network {
                ack_timeout: (self.ack_timeout_ms > 0).then(|| Duration::from_millis(self.ack_timeout_ms.into())),
                type_of_service: (self.type_of_service > 0).then_some(self.type_of_service),
            },
        }
    }

    /// How a connection behaves.
    pub fn settings(&self) -> Settings {
        Settings {
            mode: self.mode.0,
            landing_buffer_bytes: self.landing_bytes,
            direct_bytes: self.direct_bytes as usize,
            packet_max_bytes: self.packet_max_bytes as usize,
            zero_copy: self.zero_copy.0,
            busy: self.polling.0 == PollingOption::Busy,
        }
    }

    /// How much may be posted on a stream.
    pub fn bounds(&self) -> Bounds {
        Bounds {
            call_bytes: self.call_bytes as usize,
            sends: self.sends_max.into(),
            receives: self.receives_max.into(),
        }
    }

    fn polling(&self) -> Polling {
        match self.polling.0 {
            PollingOption::Adaptive => Polling::Adaptive {
                spin: Duration::from_micros(self.spin_us.into()),
            },
            PollingOption::Event => Polling::Event,
            PollingOption::Busy => Polling::Busy,
        }
    }
}

/// `taken(Config) -> Config`: the options as this library has decoded them. A test compares them.
#[rustler::nif]
fn taken(config: Config) -> Config {
    config
}

/// `option_values() -> [{Option, [Value]}]`: the values of the options that are atoms. A test makes sure that
/// `inet_rdma_options:list/0` has the same.
#[rustler::nif]
fn option_values(env: Env<'_>) -> Vec<(Term<'_>, Vec<Term<'_>>)> {
    fn row<'a, T: Named>(env: Env<'a>, option: &str) -> (Term<'a>, Vec<Term<'a>>) {
        let values = T::ALL.iter().map(|value| atom(env, value.name()));
        (atom(env, option), values.collect())
    }
    vec![
        row::<FabricName>(env, "fabric"),
        row::<Mode>(env, "mode"),
        row::<ZeroCopy>(env, "zero_copy"),
        row::<PollingOption>(env, "polling"),
    ]
}

/// The polling threads of this node. The first stream or listener starts them, with its options.
pub fn pollers(config: &Config) -> Result<&'static Arc<Pollers>, FabricError> {
    static POLLERS: OnceLock<Arc<Pollers>> = OnceLock::new();
    static STARTING: Mutex<()> = Mutex::new(());
    let _one_starts = STARTING.lock();
    if let Some(pollers) = POLLERS.get() {
        return Ok(pollers);
    }
    let pollers = Pollers::start(config.polling_threads.into(), config.polling())?;
    Ok(POLLERS.get_or_init(|| Arc::new(pollers)))
}
