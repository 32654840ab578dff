//! Gets of a region with coprocessors (`HRegion.get`, `RSRpcServices.get`).

use std::sync::Arc;

use bytes::Bytes;
use halcyon_cell::Cell;
use halcyon_proto::coprocessor::{Frame, Method};
use halcyon_proto::pb;
use halcyon_region::ReadMode;
use halcyon_rpc::RpcError;
use prost::Message;

use super::frames;
use super::hooks::Hooks;
use super::operation::Operation;
use crate::convert;
use crate::errors;
use crate::regions::region_table::OnlineRegion;
use crate::service::CallError;

/// What a read found.
pub(crate) struct Read {
    pub cells: Vec<Cell>,
    /// Of a read that only asks whether there is something.
    pub exists: bool,
}

/// Reads a row with the hooks of its region. *Blocking*. `alone`: not in a batch, where HBase runs no hooks of existence.
pub(crate) fn get(
    operation: &mut Operation,
    online: &Arc<OnlineRegion>,
    get: &pb::Get,
    alone: bool,
) -> Result<Read, RpcError> {
    let coprocessors = online.coprocessors.clone().expect("a region with coprocessors");
    let (hooks, number) = (operation.hooks(&coprocessors)?, coprocessors.number);
    let asks_existence = alone && get.existence_only();
    let sent = |get: &pb::Get| Some(Bytes::from(get.encode_to_vec()));
    if convert::get(get).is_err() && get.filter.is_some() {
        // A filter that only the JVM may have; if it does not, either, its exception says so.
        let frame = Frame { get: sent(get), ..frames::call(Method::WholeGet, number) };
        let answer = operation.call(frame)?;
        return read_of(operation, &answer);
    }
    let mut get = get.clone();
    let pre_exists = asks_existence && hooks.any(Hooks::PRE_EXISTS);
    if hooks.any(Hooks::PRE_GET) || pre_exists {
        let frame = Frame { get: sent(&get), flag: Some(pre_exists), ..frames::call(Method::PreGet, number) };
        let answer = operation.call(frame)?;
        if !answer.more() {
            let read = read_of(operation, &answer)?;
            return Ok(Read { exists: answer.flag() || read.exists, ..read });
        }
        if let Some(changed) = &answer.get {
            get = pb::Get::decode(changed.clone()).map_err(|error| errors::undecodable("Get", &error))?;
        }
    }
    let mut scan = convert::get(&get).map_err(CallError::into_rpc)?;
    if hooks.any(Hooks::STORE_SCANNER) {
        let frame = Frame { get: sent(&get), ..frames::call(Method::ReadOptions, number) };
        let answer = operation.call(frame)?;
        scan.options = operation.checked(frames::options(&answer))?;
    }
    let cells = online.region.get(scan, ReadMode::AnyDisk);
    let cells = cells.map_err(|error| errors::to_rpc(&error))?;
    let post_exists = asks_existence && hooks.any(Hooks::POST_EXISTS);
    if !hooks.any(Hooks::POST_GET) && !post_exists {
        return Ok(Read { exists: !cells.is_empty(), cells });
    }
    let frame = Frame {
        get: sent(&get),
        cells: vec![frames::cells_of(&cells)],
        flag: Some(post_exists),
        ..frames::call(Method::PostGet, number)
    };
    let answer = operation.call(frame)?;
    let read = read_of(operation, &answer)?;
    Ok(Read { exists: answer.flag(), ..read })
}

fn read_of(operation: &mut Operation, answer: &Frame) -> Result<Read, RpcError> {
    let cells = operation.checked(frames::first(answer))?;
    Ok(Read { exists: !cells.is_empty(), cells })
}
