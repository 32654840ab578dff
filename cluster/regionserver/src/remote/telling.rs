//! What the master is told of its orders, again and again until it has taken it.
//!
//! A master that cannot take a report yet says so, and one that is not there says nothing. No thread waits for it: what is to be told is a
//! job of the queue, with a time before which it is not tried again. A master may take the report that a region is open only when other
//! orders are carried out, which need these threads.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use halcyon_cell::{Error, ErrorKind};
use halcyon_proto::pb;
use halcyon_proto::pb::region_state_transition::TransitionCode;

use super::link::MasterError;
use super::orders::{Job, Kind, OpenOrder, Order, Orders, Then};
use super::transits::{BUSY_PAUSE, transition};
use crate::RegionServer;
use crate::regions::region_table::OnlineRegion;
use crate::regionserver::Opening;

/// Between two attempts to tell the master: at first, at most.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// What the master is told.
#[derive(Debug)]
pub(super) enum Report {
    Transition(pb::RegionStateTransition),
    Done(pb::RemoteProcedureResult),
}

/// An order that has ended.
#[derive(Debug)]
pub(super) struct TellOrder {
    report: Report,
    pub(super) kind: Kind,
    pub(super) order: Order,
    /// Before the next attempt.
    pause: Duration,
}

/// An order to open a region that is open. It serves when the master has taken the report.
#[derive(Debug)]
pub(super) struct OpenedOrder {
    pub(super) open: OpenOrder,
    what: Opened,
    /// Before the next attempt.
    pause: Duration,
}

pub(super) enum Opened {
    New(Opening),
    /// It was open before. It may be closed meanwhile, and opened again: then the report is out of date.
    Known(Arc<OnlineRegion>),
}

impl fmt::Debug for Opened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Opened::New(opening) => write!(f, "{opening:?}"),
            Opened::Known(online) => write!(f, "{} is open", online.region.info()),
        }
    }
}

impl OpenedOrder {
    pub(super) fn new(open: OpenOrder, what: Opened) -> OpenedOrder {
        OpenedOrder { open, what, pause: PAUSE_MIN }
    }
}

/// What became of an attempt.
enum Said {
    Taken,
    /// The master refuses the report, or this server ends.
    NotTaken,
    Later,
}

impl Orders {
    /// One attempt.
    fn tell(&self, server: &RegionServer, report: &Report) -> Said {
        let (what, told) = match report {
            Report::Transition(transition) => {
                let request = pb::ReportRegionStateTransitionRequest {
                    server: server.server_name().to_pb(),
                    transition: vec![transition.clone()],
                };
                ("a transition of a region", self.master.transition(&request))
            }
            Report::Done(result) => {
                let request = pb::ReportProcedureDoneRequest { result: vec![result.clone()] };
                ("the end of a procedure", self.master.procedures_done(&request))
            }
        };
        match told {
            Ok(()) => Said::Taken,
            Err(MasterError::Dead(why)) => {
                server.give_up(&format!("the master has declared this server dead: {why}"));
                Said::NotTaken
            }
            Err(MasterError::Refused(why)) => {
                tracing::warn!(what, why, "the master refuses a report");
                Said::NotTaken
            }
            Err(MasterError::Later(_)) if !server.is_serving() => Said::NotTaken,
            Err(MasterError::Later(why)) => {
                tracing::info!(what, why, "the master cannot be told yet");
                Said::Later
            }
        }
    }

    /// Tells the master how an order has ended.
    pub(super) fn tell_end(&self, server: &RegionServer, report: Report, kind: Kind, order: Order) -> Then {
        self.tell_again(server, TellOrder { report, kind, order, pause: PAUSE_MIN })
    }

    pub(super) fn tell_again(&self, server: &RegionServer, told: TellOrder) -> Then {
        match self.tell(server, &told.report) {
            Said::Taken | Said::NotTaken => Then::Done,
            Said::Later => {
                let pause = told.pause;
                Then::again(Job::Tell(TellOrder { pause: longer(pause), ..told }), pause)
            }
        }
    }

    pub(super) fn tell_opened(&self, server: &Arc<RegionServer>, told: OpenedOrder) -> Then {
        let OpenedOrder { open, what, pause } = told;
        let is_so = || match &what {
            Opened::Known(online) => server.regions.serves(online),
            Opened::New(_) => true, // nobody closes it before
        };
        let seq = match &what {
            Opened::New(opening) => opening.seq(),
            Opened::Known(online) => online.region.open_seq_num().get(),
        };
        let opened = transition(TransitionCode::Opened, &open.region, Some(seq), open.order);
        let said = if is_so() { self.tell(server, &Report::Transition(opened)) } else { Said::NotTaken };
        match (said, what) {
            (Said::Later, what) => {
                let again = OpenedOrder { open, what, pause: longer(pause) };
                Then::again(Job::Opened(again), pause)
            }
            (Said::Taken, Opened::New(opening)) => match server.end_opening(opening, Ok(())) {
                Ok(_) => Then::Done,
                Err(error) => self.not_opened(server, open, error),
            },
            (Said::NotTaken, Opened::New(opening)) => {
                let text = "the master did not take the report that the region is open";
                let refused = Err(Error::new(ErrorKind::Stopping, text));
                match server.end_opening(opening, refused) {
                    Ok(_) => Then::Done,
                    Err(error) => self.not_opened(server, open, error),
                }
            }
            (Said::Taken, Opened::Known(_)) => Then::Done,
            // It is to be opened, and is not here any more.
            (Said::NotTaken, Opened::Known(online))
                if server.is_serving() && !server.regions.serves(&online) =>
            {
                Then::again(Job::Open(open), BUSY_PAUSE)
            }
            (Said::NotTaken, Opened::Known(_)) => Then::Done,
        }
    }

    /// Closes the regions that the master was to be told of. The server does not serve any more.
    pub(super) fn end_openings(&self, server: &RegionServer, jobs: Vec<Job>) {
        for job in jobs {
            let Job::Opened(OpenedOrder { open, what: Opened::New(opening), .. }) = job else { continue };
            let ends = Err(Error::new(ErrorKind::Stopping, "this server ends"));
            if let Err(error) = server.end_opening(opening, ends)
                && error.kind() != ErrorKind::Stopping
            {
                tracing::warn!(region = %open.region, %error, "a region that did not serve yet was not closed");
            }
        }
    }
}

fn longer(pause: Duration) -> Duration {
    (pause * 2).min(PAUSE_MAX)
}
