//! Settings of [`crate::Servers`].

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use halcyon_schema::ServerName;

/// Whether the master may act at this moment. It must not when its lease has ended: another one may be active then.
#[derive(Clone)]
pub struct Permit(Arc<dyn Fn() -> bool + Send + Sync>);

impl Permit {
    pub fn always() -> Permit {
        Permit::while_true(|| true)
    }

    /// The condition is looked at before each call to a region server. Must not block.
    pub fn while_true(condition: impl Fn() -> bool + Send + Sync + 'static) -> Permit {
        Permit(Arc::new(condition))
    }

    pub fn is_given(&self) -> bool {
        (self.0)()
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "given: {}", self.is_given())
    }
}

/// How a master treats its region servers.
#[derive(Clone, Debug)]
pub struct ServersSettings {
    /// The master itself.
    pub server_name: ServerName,
    /// When this master became active, in milliseconds since 1970. Orders carry it, and their answers bring it back.
    pub active_ms: i64,
    /// The epoch of this master, which region servers of Halcyon are told: they refuse calls of older ones.
    pub epoch: Option<u64>,
    /// The version of HBase that region servers are told.
    pub version: String,
    /// A server whose clock differs by more is refused (`hbase.master.maxclockskew`).
    pub clock_skew_max: Duration,
    /// One whose clock differs by more is logged (`hbase.master.warningclockskew`).
    pub clock_skew_warned: Duration,
    /// What a server is told when it starts: `hbase.rootdir`, `fs.defaultFS`, `hbase.wal.dir`, ...
    pub answers: Vec<(String, String)>,
    /// Orders to one server that come within this time are sent together (`hbase.procedure.remote.dispatcher.delay.msec`;
    /// HBase waits for 150 ms).
    pub order_pause: Duration,
    /// One call of a server, with the connection before it.
    pub call_timeout: Duration,
    /// An opening that takes longer is given up; the master may choose another server.
    pub open_timeout: Duration,
    /// An opening that was not reported for so long is looked after each time.
    pub open_check_period: Duration,
    /// Between two attempts to send orders to a server that does not answer.
    pub retry_pause: Duration,
    /// A close that was not reported for so long is looked after each time.
    pub close_check_period: Duration,
    /// A close that takes longer is ordered once more.
    pub close_timeout: Duration,
    /// A remote procedure that takes longer, such as the splitting of a WAL, is given up; the master may ask another server.
    pub run_timeout: Duration,
    /// Orders, and writes to tables such as `hbase:meta`, fail while it is not given.
    pub permit: Permit,
}

impl ServersSettings {
    /// With the defaults of this crate.
    pub fn new(server_name: ServerName, active_ms: i64) -> ServersSettings {
        ServersSettings {
            server_name,
            active_ms,
            epoch: None,
            version: "2.6.4".to_string(),
            clock_skew_max: Duration::from_secs(30),
            clock_skew_warned: Duration::from_secs(1),
            answers: Vec::new(),
            order_pause: Duration::from_millis(5),
            call_timeout: Duration::from_secs(10),
            open_timeout: Duration::from_secs(60),
            open_check_period: Duration::from_secs(1),
            retry_pause: Duration::from_millis(100),
            close_check_period: Duration::from_secs(1),
            close_timeout: Duration::from_secs(300),
            run_timeout: Duration::from_secs(600),
            permit: Permit::always(),
        }
    }
}
