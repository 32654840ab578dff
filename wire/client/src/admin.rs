//! Tables as the master knows them: there or not, made, removed, flushed.

use std::time::Duration;

use bytes::Bytes;
use halcyon_proto::pb;
use halcyon_schema::{TableDescriptor, TableName};
use prost::Message;
use tokio::time::Instant;

use crate::cluster::Cluster;
use crate::{ClientError, Connection, RemoteException};

/// Longest a table action may take (`hbase.client.sync.wait.timeout.msec`).
const ACTION_TIME_MAX: Duration = Duration::from_secs(10 * 60);
const POLL_PERIOD: Duration = Duration::from_millis(20);

/// The master of a cluster. One connection; not kept longer than a piece of work.
pub struct Admin {
    cluster: Cluster,
    master: Connection,
}

impl Cluster {
    /// Connects to the active master.
    pub async fn admin(&self) -> Result<Admin, ClientError> {
        let address = self.active_master().await?.address();
        Ok(Admin { master: self.service(&address, "MasterService").await?, cluster: self.clone() })
    }
}

impl Admin {
    /// A table's descriptor; `None` if there is no such table.
    pub async fn descriptor(&self, table: &TableName) -> Result<Option<TableDescriptor>, ClientError> {
        let request =
            pb::GetTableDescriptorsRequest { table_names: vec![table.to_pb()], ..Default::default() };
        let answer: pb::GetTableDescriptorsResponse = self.call("GetTableDescriptors", &request).await?;
        let found = answer.table_schema.first().map(TableDescriptor::from_pb).transpose();
        found.map_err(|error| ClientError::Malformed(error.to_string()))
    }

    /// Makes a table and waits until it can be used.
    pub async fn create_table(&self, table: &TableDescriptor, splits: Vec<Bytes>) -> Result<(), ClientError> {
        let request = pb::CreateTableRequest {
            table_schema: table.to_pb(),
            split_keys: splits,
            nonce_group: Some(0),
            nonce: Some(0),
        };
        let answer: pb::CreateTableResponse = self.call("CreateTable", &request).await?;
        self.finish(answer.proc_id).await
    }

    /// Disables a table, if it is enabled, and deletes it.
    pub async fn drop_table(&self, table: &TableName) -> Result<(), ClientError> {
        let request = pb::GetTableStateRequest { table_name: table.to_pb() };
        let state: pb::GetTableStateResponse = self.call("GetTableState", &request).await?;
        if state.table_state.state() == pb::table_state::State::Enabled {
            let request = pb::DisableTableRequest { table_name: table.to_pb(), ..Default::default() };
            let answer: pb::DisableTableResponse = self.call("DisableTable", &request).await?;
            self.finish(answer.proc_id).await?;
        }
        let request = pb::DeleteTableRequest { table_name: table.to_pb(), ..Default::default() };
        let answer: pb::DeleteTableResponse = self.call("DeleteTable", &request).await?;
        self.finish(answer.proc_id).await
    }

    /// Flushes all regions of a table.
    pub async fn flush(&self, table: &TableName) -> Result<(), ClientError> {
        for location in self.cluster.table_locations(table).await? {
            let admin = self.cluster.service(location.server.address(), "AdminService").await?;
            let request = pb::FlushRegionRequest { region: location.specifier.clone(), ..Default::default() };
            let _: pb::FlushRegionResponse = admin.call("FlushRegion", &request).await?;
        }
        Ok(())
    }

    /// How many regions a table has.
    pub async fn regions_count(&self, table: &TableName) -> Result<usize, ClientError> {
        Ok(self.cluster.table_locations(table).await?.len())
    }

    /// Waits for a procedure; its exception is the error.
    async fn finish(&self, proc_id: Option<u64>) -> Result<(), ClientError> {
        let Some(proc_id) = proc_id else { return Ok(()) };
        let deadline = Instant::now() + ACTION_TIME_MAX;
        loop {
            let request = pb::GetProcedureResultRequest { proc_id };
            let answer: pb::GetProcedureResultResponse = self.call("getProcedureResult", &request).await?;
            if answer.state == pb::get_procedure_result_response::State::Finished as i32 {
                return match answer.exception {
                    None => Ok(()),
                    Some(exception) => Err(foreign(&exception)),
                };
            }
            if Instant::now() > deadline {
                let text = format!("procedure {proc_id} has not ended within {ACTION_TIME_MAX:?}");
                return Err(std::io::Error::new(std::io::ErrorKind::TimedOut, text).into());
            }
            tokio::time::sleep(POLL_PERIOD).await;
        }
    }

    /// A call that is made again while the master still starts.
    async fn call<M: Message + Default>(
        &self,
        method: &str,
        request: &impl Message,
    ) -> Result<M, ClientError> {
        let (deadline, mut number) = (self.cluster.deadline(), 0);
        let timeout = self.cluster.inner.options.operation_timeout;
        loop {
            match self.master.call_with_cells(method, request, None, Some(timeout)).await {
                Ok(answer) => return crate::table::decode(&answer),
                // a broken connection is not made again here: whether the call was carried out is unknown
                Err(error) if error.remote().is_none() => return Err(error),
                Err(error) => self.cluster.wait_to_retry(error, number, deadline).await?,
            };
            number += 1;
        }
    }
}

fn foreign(message: &pb::ForeignExceptionMessage) -> ClientError {
    let generic = message.generic_exception.as_ref();
    let class = generic.and_then(|e| e.class_name.clone()).unwrap_or_default();
    let text = generic.and_then(|e| e.message.clone()).unwrap_or_default();
    let trace = format!("{class}: {text}");
    ClientError::Remote(Box::new(RemoteException {
        class,
        trace,
        do_not_retry: true,
        server_overloaded: false,
    }))
}
