//! Splits and merges between the steps of a script. The oracle knows nothing of regions, so they must change
//! nothing.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use halcyon_client::ClientError;
use halcyon_proto::pb;
use halcyon_schema::RegionInfo;

use super::ServerEngine;
use crate::common::{Client, specifier};

/// Between, at and around the rows of the scripts.
const SPLIT_ROWS: [&[u8]; 7] = [b"a\0", b"b", b"b\0", b"b\x01", b"c", b"long-row-one", b"long-row-p"];
/// Why a region stays as it is: the row begins it, or it has references, which only a compaction takes away, or had them a moment ago.
const REFUSALS: [&str; 4] = ["equal to startkey", "NOT splittable", "not mergeable", "has a merge qualifier"];

/// Splits and merges that were carried through.
pub(super) static RESHAPED: AtomicU64 = AtomicU64::new(0);

impl ServerEngine {
    /// Begins to split a region or to merge two, and returns the procedure's number; `None` if that was refused.
    pub(super) async fn begin_reshape(&mut self, client: &Client) -> Result<Option<u64>, String> {
        let row = self.random.pick(&SPLIT_ROWS);
        let first = self.random.below(self.regions.len());
        let merges = self.random.one_in(2) && first + 1 < self.regions.len();
        let begun = if merges {
            merge(client, &self.regions[first..first + 2]).await
        } else {
            split(client, self.region_of(row), row).await
        };
        match begun {
            Ok(id) => Ok(Some(id)),
            Err(error) => {
                let text = error.to_string();
                if REFUSALS.iter().any(|refusal| text.contains(refusal)) { Ok(None) } else { Err(text) }
            }
        }
    }

    /// Splits a region, merges two, or leaves them as they are.
    pub(super) async fn reshape(&mut self, client: &Client) -> Result<(), String> {
        if let Some(id) = self.begin_reshape(client).await? {
            client.finish(id).await;
            RESHAPED.fetch_add(1, Ordering::Relaxed);
            self.regions = client.regions(&self.table).await;
        }
        self.check_regions()
    }

    /// Waits for procedures that a server goes on with when it starts, and looks for the regions.
    pub(super) async fn find_regions(&mut self, client: &Client) -> Result<(), String> {
        for _ in 0..5_000 {
            let all: Result<pb::GetProceduresResponse, _> =
                client.master.call("GetProcedures", &pb::GetProceduresRequest {}).await;
            let all = all.map_err(|error| error.to_string())?;
            let ended = |procedure: &pb::Procedure| {
                matches!(procedure.state(), pb::ProcedureState::Success | pb::ProcedureState::Failed)
            };
            if all.procedure.iter().all(ended) {
                self.regions = client.regions(&self.table).await;
                return self.check_regions();
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        Err("procedures do not end".to_string())
    }

    /// Every row must belong to one region.
    fn check_regions(&self) -> Result<(), String> {
        let regions = &self.regions;
        let ends = regions.first().is_some_and(|region| region.start_key().is_empty())
            && regions.last().is_some_and(|region| region.end_key().is_empty());
        if ends && regions.windows(2).all(|pair| pair[0].end_key() == pair[1].start_key()) {
            return Ok(());
        }
        Err(format!("the regions are {regions:?}"))
    }
}

async fn split(client: &Client, region: &RegionInfo, row: &[u8]) -> Result<u64, ClientError> {
    let request = pb::SplitTableRegionRequest {
        region_info: region.to_pb(),
        split_row: Some(Bytes::copy_from_slice(row)),
        ..Default::default()
    };
    let begun: pb::SplitTableRegionResponse = client.master.call("SplitRegion", &request).await?;
    Ok(begun.proc_id())
}

async fn merge(client: &Client, regions: &[RegionInfo]) -> Result<u64, ClientError> {
    let request = pb::MergeTableRegionsRequest {
        region: regions.iter().map(specifier).collect(),
        ..Default::default()
    };
    let begun: pb::MergeTableRegionsResponse = client.master.call("MergeTableRegions", &request).await?;
    Ok(begun.proc_id())
}
