//! `ReportRegionStateTransition`: regions that have come, gone, or want to be split.

use std::sync::{Arc, Weak};

use halcyon_contract::{Assignments, RegionStateTransition, Unasked};
use halcyon_proto::pb;
use halcyon_proto::pb::region_state_transition::TransitionCode;
use halcyon_rpc::{RpcError, exceptions};
use halcyon_schema::{RegionInfo, ServerName};

use crate::remote_server::RemoteServer;
use crate::waiters::Opened;

/// Transitions in one report.
const TRANSITIONS_MAX: usize = 10_000;
/// HBase's number for "no procedure".
const NO_PROCEDURE: i64 = -1;

/// Why a transition is not taken.
enum NotTaken {
    /// The same report would be refused again. A server closes the region that it has opened.
    Refused(String),
    /// The server reports it again.
    Later(String),
}

type Taken = Result<(), NotTaken>;

/// Takes transitions in their order. A refusal is the error message of the answer, and ends the request, as in HBase.
pub(crate) async fn take_all(
    remote: &Arc<RemoteServer>,
    server: &ServerName,
    master: &Weak<dyn Assignments>,
    transitions: Vec<pb::RegionStateTransition>,
) -> Result<Option<String>, RpcError> {
    if transitions.len() > TRANSITIONS_MAX {
        return Ok(Some(format!("{} transitions in one report", transitions.len())));
    }
    for transition in transitions {
        match take(remote, server, master, &transition).await {
            Ok(()) => {}
            Err(NotTaken::Refused(why)) => {
                tracing::warn!(%server, code = transition.transition_code, why, "a transition is refused");
                return Ok(Some(why));
            }
            Err(NotTaken::Later(why)) => return Err(RpcError::new(&exceptions::PLEASE_HOLD, why)),
        }
    }
    Ok(None)
}

async fn take(
    remote: &Arc<RemoteServer>,
    server: &ServerName,
    master: &Weak<dyn Assignments>,
    transition: &pb::RegionStateTransition,
) -> Taken {
    let refused = |why: String| Err(NotTaken::Refused(why));
    let Ok(code) = TransitionCode::try_from(transition.transition_code) else {
        return refused(format!("transition {} is not known", transition.transition_code));
    };
    let regions = transition.region_info.iter().take(3).map(RegionInfo::from_pb);
    let regions = regions.collect::<Result<Vec<_>, _>>();
    let regions = regions.map_err(|error| NotTaken::Refused(format!("region of a transition: {error}")))?;
    let procedure = transition.proc_id.first().copied().unwrap_or(NO_PROCEDURE);
    match (code, &regions[..]) {
        (TransitionCode::Opened, [region]) => {
            opened(remote, server, master, region, procedure, transition.open_seq_num).await
        }
        (TransitionCode::FailedOpen, [region]) => {
            if !remote.waiters.failed_open(region.encoded_name(), procedure) {
                tracing::info!(%server, %region, procedure, "a failed opening that is not waited for");
            }
            Ok(())
        }
        (TransitionCode::Closed, [region]) => {
            if !remote.waiters.closed(region.encoded_name(), procedure) {
                tracing::info!(%server, %region, procedure, "a close that is not waited for");
            }
            Ok(())
        }
        (TransitionCode::ReadyToSplit, [parent, first, second]) => {
            ready_to_split(server, master, parent, first, second)
        }
        (
            TransitionCode::Opened
            | TransitionCode::FailedOpen
            | TransitionCode::Closed
            | TransitionCode::ReadyToSplit,
            _,
        ) => refused(format!("{} with {} regions", code.as_str_name(), regions.len())),
        _ => refused(format!("{}: the master splits and merges regions, servers do not", code.as_str_name())),
    }
}

async fn opened(
    remote: &Arc<RemoteServer>,
    server: &ServerName,
    master: &Weak<dyn Assignments>,
    region: &RegionInfo,
    procedure: i64,
    open_seq_num: Option<u64>,
) -> Taken {
    // HBase: a sequence number is positive, and -1 is none.
    let Some(open_seq_num) = open_seq_num.filter(|&number| i64::try_from(number).is_ok()) else {
        return Err(NotTaken::Refused(format!("{region} is open without an open sequence number")));
    };
    let later = |why: &str| Err(NotTaken::Later(format!("{region} of {server}: {why}")));
    match remote.waiters.opened(region.encoded_name(), procedure, open_seq_num) {
        Opened::Known => Ok(()),
        Opened::Later => later("it is being announced"),
        Opened::Superseded => {
            let text =
                format!("the opening {procedure} of {region} on {server} has ended; another one waits");
            Err(NotTaken::Refused(text))
        }
        Opened::Closing => {
            let text = format!("{region} was not opened by {server} in time, and is to be closed there");
            Err(NotTaken::Refused(text))
        }
        Opened::Announcing(answer) => match answer.await {
            Ok(verdict) => verdict.map_err(NotTaken::Refused),
            Err(_) => later("the caller that waited for it is gone"),
        },
        Opened::Unasked if remote.waiters.is_ended() => later("its server has been declared dead"),
        Opened::Unasked => match master.upgrade().map(|it| it.opened_unasked(server, region, open_seq_num)) {
            Some(Unasked::Accepted) => {
                remote.waiters.answered(procedure);
                Ok(())
            }
            Some(Unasked::Refused) => {
                remote.waiters.answered(procedure);
                Err(NotTaken::Refused(format!("{region} is not to be open on {server}; close it")))
            }
            Some(Unasked::Later) | None => later("the master does not know yet whose it is"),
        },
    }
}

fn ready_to_split(
    server: &ServerName,
    master: &Weak<dyn Assignments>,
    parent: &RegionInfo,
    first: &RegionInfo,
    second: &RegionInfo,
) -> Taken {
    let row = second.start_key();
    let is_split = first.end_key() == row
        && first.start_key() == parent.start_key()
        && second.end_key() == parent.end_key()
        && row > parent.start_key()
        && parent.contains_row(row);
    if !is_split {
        return Err(NotTaken::Refused(format!("{parent} cannot be split as {server} proposes")));
    }
    let Some(master) = master.upgrade() else {
        return Err(NotTaken::Later("the master is not ready".to_string()));
    };
    let transition = RegionStateTransition::ReadyToSplit { parent: parent.clone(), split_row: row.clone() };
    master.report_region_state_transition(server, transition);
    Ok(())
}
