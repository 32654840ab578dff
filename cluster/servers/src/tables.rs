//! Rows of system tables, over the network.

use std::sync::Arc;

use bytes::Bytes;
use halcyon_cell::{Cell, Error, ErrorKind, Result};
use halcyon_client::ClientError;
use halcyon_contract::SystemTables;
use halcyon_proto::pb;
use halcyon_schema::{RegionInfo, ServerName};
use prost::Message;

use crate::errors;
use crate::links::Links;
use crate::mutations::{self, Multi, Row};
use crate::orders::specifier;
use crate::scan::{self, RegionScan, ScanError};
use crate::{Servers, Target};

/// System tables on region servers. *Thread safety*: all methods from any thread that may block.
pub struct RemoteTables {
    servers: Arc<Servers>,
}

impl RemoteTables {
    pub fn new(servers: Arc<Servers>) -> RemoteTables {
        RemoteTables { servers }
    }

    fn links(&self, at: &ServerName) -> Result<Arc<Links>> {
        Ok(Arc::clone(self.servers.remote(at)?.links()))
    }

    fn put(&self, at: &ServerName, region: &RegionInfo, cells: Vec<Cell>) -> Result<()> {
        let links = self.links(at)?;
        let rows = mutations::rows_of(cells)?;
        for Multi { request, cells } in mutations::multis(&specifier(region), &rows) {
            let expected = mutations::expected(&request);
            let timeout = self.servers.common.settings.call_timeout;
            let answer = links.call_blocking(Target::Client, "Multi", request, Some(cells), timeout);
            let (response, _) = answer.map_err(|error| errors::of_call(at, "Multi", &error))?;
            if let Some(exception) = mutations::exception_of(&response, &expected)? {
                return Err(errors::of_pair(at, "Multi", exception));
            }
        }
        Ok(())
    }

    fn scan(&self, at: &ServerName, scan: &RegionScan) -> Result<Vec<Vec<Cell>>> {
        let timeout = self.servers.common.settings.call_timeout;
        scan::run(&self.links(at)?, scan, timeout).map_err(|error| match error {
            ScanError::Call(error) => errors::of_call(at, "Scan", &error),
            ScanError::Answer(error) => error.context(at),
        })
    }
}

impl SystemTables for RemoteTables {
    fn meta_put(&self, at: &ServerName, cells: Vec<Cell>) -> Result<()> {
        self.put(at, &RegionInfo::meta(), cells)
    }

    fn meta_put_together(&self, at: &ServerName, cells: Vec<Cell>) -> Result<()> {
        self.put_rows_together(at, &RegionInfo::meta(), cells)
    }

    /// By the service of a coprocessor that every HBase has for meta.
    fn put_rows_together(&self, at: &ServerName, region: &RegionInfo, cells: Vec<Cell>) -> Result<()> {
        let links = self.links(at)?;
        let rows = mutations::rows_of(cells)?;
        let Some(first) = rows.first().map(|row| row.key().clone()) else { return Ok(()) };
        let region = specifier(region);
        let request = pb::MutateRowsRequest {
            mutation_request: rows.iter().flat_map(Row::inline).collect(),
            region: Some(region.clone()),
            ..Default::default()
        };
        let call = pb::CoprocessorServiceCall {
            row: first,
            service_name: "hbase.pb.MultiRowMutationService".to_string(),
            method_name: "MutateRows".to_string(),
            request: request.encode_to_vec().into(),
        };
        let request = pb::CoprocessorServiceRequest { region, call };
        let timeout = self.servers.common.settings.call_timeout;
        let answer = links.call_blocking::<pb::CoprocessorServiceResponse>(
            Target::Client,
            "ExecService",
            request,
            None,
            timeout,
        );
        let failed = |error: &ClientError| errors::of_call(at, "MutateRows", error);
        let (response, _) = answer.map_err(|error| failed(&error))?;
        let response = pb::MutateRowsResponse::decode(response.value.value.unwrap_or_default())
            .map_err(|error| failed(&ClientError::Malformed(error.to_string())))?;
        match response.processed {
            Some(false) => Err(Error::new(ErrorKind::Io, format!("MutateRows at {at}: not processed"))),
            _ => Ok(()),
        }
    }

    fn meta_scan(&self, at: &ServerName, start_row: &[u8], stop_row: &[u8]) -> Result<Vec<Vec<Cell>>> {
        let scan = RegionScan {
            region: specifier(&RegionInfo::meta()),
            start_row: Bytes::copy_from_slice(start_row),
            stop_row: Bytes::copy_from_slice(stop_row),
            families: vec!["info", "table"],
        };
        self.scan(at, &scan)
    }

    fn put_rows(&self, at: &ServerName, region: &RegionInfo, cells: Vec<Cell>) -> Result<()> {
        self.put(at, region, cells)
    }

    fn scan_rows(&self, at: &ServerName, region: &RegionInfo) -> Result<Vec<Vec<Cell>>> {
        let (start_row, stop_row) = (Bytes::new(), Bytes::new());
        self.scan(at, &RegionScan { region: specifier(region), start_row, stop_row, families: Vec::new() })
    }
}
