//! How a server joins a cluster whose master is another process, and what it reports from then on.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use halcyon_cell::{Error, ErrorKind, Result};
use halcyon_contract::{RegionServerStatus, RegionStateTransition};
use halcyon_env::Clock;
use halcyon_proto::pb;
use halcyon_schema::ServerName;

use super::link::{MasterError, MasterLink};
use super::orders::Orders;
use crate::RegionServer;
use crate::background::workers::{Priority, Worker};

/// Between two attempts to join, at first and later. A server that starts with its cluster knows of the master in a moment.
const JOIN_PAUSE_MIN: Duration = Duration::from_millis(50);
const JOIN_PAUSE_MAX: Duration = Duration::from_secs(1);

/// The master of a cluster, as a region server sees it.
pub struct RemoteMaster {
    server: Weak<RegionServer>,
    link: Arc<MasterLink>,
    orders: Arc<Orders>,
    report_period: Duration,
}

impl MasterLink {
    /// Announces a server to the master (HBase: `RegionServerStartup`), and returns the settings that it answers with, such
    /// as `hbase.rootdir`. Waits for a master while `go_on` is true. *Blocking*.
    ///
    /// An error if the master refuses the server: its clock differs by too much, or a server of this name is alive.
    pub fn join(
        &self,
        server: &ServerName,
        clock: &dyn Clock,
        go_on: &dyn Fn() -> bool,
    ) -> Result<HashMap<String, String>> {
        let (mut waited_for, mut pause) = (String::new(), JOIN_PAUSE_MIN);
        while go_on() {
            let request = pb::RegionServerStartupRequest {
                port: u32::from(server.port),
                server_start_code: server.start_code as u64,
                server_current_time: clock.now_ms() as u64,
                use_this_hostname_instead: Some(server.host.clone()),
            };
            match self.startup(&request) {
                Ok(answer) => {
                    return Ok(answer.map_entries.into_iter().map(|pair| (pair.name, pair.value)).collect());
                }
                Err(MasterError::Later(why)) => {
                    if why != waited_for {
                        tracing::info!(%server, why, "waiting for the master");
                    }
                    waited_for = why;
                    clock.sleep(pause);
                    pause = (pause * 2).min(JOIN_PAUSE_MAX);
                }
                Err(error) => return Err(Error::invalid(format!("the master refuses {server}: {error}"))),
            }
        }
        Err(Error::new(ErrorKind::Stopping, "stopped while waiting for the master"))
    }
}

impl RemoteMaster {
    /// Lets a server that has joined obey the master of `link`, and reports its load each `report_period`
    /// (`hbase.regionserver.msginterval`).
    pub fn start(
        server: &Arc<RegionServer>,
        link: Arc<MasterLink>,
        report_period: Duration,
    ) -> Result<Arc<RemoteMaster>> {
        let orders = Orders::new(server, Arc::clone(&link));
        orders.start(server)?;
        let remote = Arc::new(RemoteMaster { server: Arc::downgrade(server), link, orders, report_period });
        server.background.start_worker("master-report", Priority::Raised, Arc::clone(&remote))?;
        let status: Weak<RemoteMaster> = Arc::downgrade(&remote);
        server.report_to(status);
        Ok(remote)
    }

    pub(crate) fn orders(&self) -> &Arc<Orders> {
        &self.orders
    }

    /// The master that was reached last.
    pub fn master(&self) -> Option<ServerName> {
        self.link.master()
    }

    fn report(&self, server: &RegionServer) {
        let request = pb::RegionServerReportRequest {
            server: server.server_name().to_pb(),
            load: Some(server.server_load()),
        };
        match self.link.report(&request) {
            Ok(()) => {}
            Err(MasterError::Dead(why)) => {
                server.give_up(&format!("the master has declared this server dead: {why}"));
            }
            Err(error) => tracing::warn!(%error, "the master did not take a report"),
        }
    }
}

impl Worker for RemoteMaster {
    fn run_once(&self, _timeout: Duration) {
        let Some(server) = self.server.upgrade() else { return };
        self.report(&server);
        server.pause(self.report_period);
    }

    /// The pause between reports ends with the server.
    fn wake(&self) {}
}

impl RegionServerStatus for RemoteMaster {
    fn report_region_state_transition(&self, _server: &ServerName, transition: RegionStateTransition) {
        let Some(server) = self.server.upgrade() else { return };
        let RegionStateTransition::ReadyToSplit { parent, split_row } = transition;
        self.orders.propose_split(&server, &parent, &split_row);
    }
}
