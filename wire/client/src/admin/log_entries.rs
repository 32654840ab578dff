//! What servers remember: slow and large calls of region servers, runs of the master's balancer.

use bytes::Bytes;
use halcyon_proto::pb;
use halcyon_schema::ServerName;
use pb::slow_log_response_request::{FilterByOperator, LogType};
use prost::Message;

use super::Admin;
use crate::ClientError;

/// Package of the Java classes of messages: servers find the kind of a log by its class.
const PACKAGE: &str = "org.apache.hadoop.hbase.shaded.protobuf.generated.";

/// Calls that region servers remember. They do so only with `hbase.regionserver.slowlog.buffer.enabled`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallLog {
    /// Those that took long.
    Slow,
    /// Those with a large answer.
    Large,
}

/// Which of the remembered calls are wanted. Without names, all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallLogFilter {
    /// Name of the region.
    pub region: Option<String>,
    /// Name of the table.
    pub table: Option<String>,
    /// Address of the client, with or without its port.
    pub client: Option<String>,
    /// The user.
    pub user: Option<String>,
    /// Whether a call must fit all of these names, and not just one of them.
    pub must_fit_all: bool,
    /// How many calls of a server are wanted; 10 by default.
    pub limit: Option<u32>,
}

/// A call that a region server remembers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoggedCall {
    /// When the server began with it, in milliseconds since 1970.
    pub start_ms: i64,
    /// How long the server worked on it.
    pub processing_ms: i32,
    /// How long it waited before that.
    pub queue_ms: i32,
    /// Bytes of the answer.
    pub response_bytes: i64,
    /// Bytes of the blocks that it looked at.
    pub block_bytes: i64,
    /// How long it waited for the file system.
    pub fs_read_ms: i64,
    /// Address and port of the client.
    pub client: String,
    /// Class of the server.
    pub server_class: String,
    /// The method.
    pub method: String,
    /// The method and the class of its request.
    pub details: String,
    /// What was asked for.
    pub param: String,
    /// Name of the region; empty if it was for none or for several.
    pub region: String,
    /// The user.
    pub user: String,
    /// Gets of a batch.
    pub gets_count: i32,
    /// Mutations of a batch.
    pub mutations_count: i32,
    /// Calls of endpoints in a batch.
    pub service_calls_count: i32,
    /// Attributes of the request.
    pub request_attributes: Vec<(String, Bytes)>,
    /// Attributes of the connection.
    pub connection_attributes: Vec<(String, Bytes)>,
}

/// A run of the balancer that moved regions. HBase remembers them only with
/// `hbase.master.balancer.decision.buffer.enabled`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BalancerDecision {
    /// Costs before the moves, one after the other.
    pub initial_costs: String,
    /// Costs after the moves.
    pub final_costs: String,
    /// The sum of the costs before.
    pub initial_total: f64,
    /// The sum of the costs after.
    pub final_total: f64,
    /// How many moves were tried.
    pub steps_count: u64,
    /// The moves.
    pub moves: Vec<String>,
}

/// A run of the balancer that moved nothing. HBase remembers them only with
/// `hbase.master.balancer.rejection.buffer.enabled`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BalancerRejection {
    /// Why.
    pub reason: String,
    /// The costs.
    pub costs: Vec<String>,
}

impl CallLogFilter {
    fn to_pb(&self, log: CallLog) -> pb::SlowLogResponseRequest {
        let operator = if self.must_fit_all { FilterByOperator::And } else { FilterByOperator::Or };
        let log_type = match log {
            CallLog::Slow => LogType::SlowLog,
            CallLog::Large => LogType::LargeLog,
        };
        pb::SlowLogResponseRequest {
            region_name: self.region.clone(),
            table_name: self.table.clone(),
            client_address: self.client.clone(),
            user_name: self.user.clone(),
            limit: self.limit,
            filter_by_operator: Some(operator as i32),
            log_type: Some(log_type as i32),
        }
    }
}

impl LoggedCall {
    fn of_pb(message: pb::SlowLogPayload) -> LoggedCall {
        LoggedCall {
            block_bytes: message.block_bytes_scanned(),
            fs_read_ms: message.fs_read_time(),
            gets_count: message.multi_gets(),
            mutations_count: message.multi_mutations(),
            service_calls_count: message.multi_service_calls(),
            start_ms: message.start_time,
            processing_ms: message.processing_time,
            queue_ms: message.queue_time,
            response_bytes: message.response_size,
            client: message.client_address,
            server_class: message.server_class,
            method: message.method_name,
            details: message.call_details,
            param: message.param.unwrap_or_default(),
            region: message.region_name.unwrap_or_default(),
            user: message.user_name,
            request_attributes: attributes(message.request_attribute),
            connection_attributes: attributes(message.connection_attribute),
        }
    }
}

fn attributes(pairs: Vec<pb::NameBytesPair>) -> Vec<(String, Bytes)> {
    pairs.into_iter().map(|pair| (pair.name, pair.value.unwrap_or_default())).collect()
}

impl BalancerDecision {
    fn of_pb(message: pb::BalancerDecision) -> BalancerDecision {
        BalancerDecision {
            initial_costs: message.initial_function_costs,
            final_costs: message.final_function_costs,
            initial_total: message.init_total_cost,
            final_total: message.computed_total_cost,
            steps_count: message.computed_steps,
            moves: message.region_plans,
        }
    }
}

fn log_request(class: &str, wanted: &impl Message) -> pb::LogRequest {
    pb::LogRequest {
        log_class_name: format!("{PACKAGE}{class}"),
        log_message: Bytes::from(wanted.encode_to_vec()),
    }
}

/// The message in an answer, which must be of a class.
fn log_entry<M: Message + Default>(class: &str, answer: pb::LogEntry) -> Result<M, ClientError> {
    if !answer.log_class_name.ends_with(class) {
        let found = answer.log_class_name;
        return Err(ClientError::malformed(format_args!("a log of {class} was asked for, and {found} came")));
    }
    M::decode(answer.log_message).map_err(ClientError::malformed)
}

impl Admin {
    /// Slow or large calls that a region server remembers, the newest first.
    pub async fn logged_calls(
        &self,
        server: &ServerName,
        log: CallLog,
        filter: &CallLogFilter,
    ) -> Result<Vec<LoggedCall>, ClientError> {
        let request = log_request("AdminProtos$SlowLogResponseRequest", &filter.to_pb(log));
        let answer: pb::LogEntry = self.call_server(server, "GetLogEntries", &request).await?;
        let found: pb::SlowLogResponses = log_entry("SlowLogResponses", answer)?;
        Ok(found.slow_log_payloads.into_iter().map(LoggedCall::of_pb).collect())
    }

    /// Has a region server forget its slow and large calls. Returns whether it remembers any at all.
    pub async fn clear_logged_calls(&self, server: &ServerName) -> Result<bool, ClientError> {
        let request = pb::ClearSlowLogResponseRequest {};
        let answer: pb::ClearSlowLogResponses =
            self.call_server(server, "ClearSlowLogsResponses", &request).await?;
        Ok(answer.is_cleaned)
    }

    /// Runs of the balancer that moved regions, the newest first.
    pub async fn balancer_decisions(&self, limit: u32) -> Result<Vec<BalancerDecision>, ClientError> {
        let wanted = pb::BalancerDecisionsRequest { limit: Some(limit) };
        let request = log_request("MasterProtos$BalancerDecisionsRequest", &wanted);
        let answer: pb::LogEntry = self.call("GetLogEntries", &request).await?;
        let found: pb::BalancerDecisionsResponse = log_entry("BalancerDecisionsResponse", answer)?;
        Ok(found.balancer_decision.into_iter().map(BalancerDecision::of_pb).collect())
    }

    /// Runs of the balancer that moved nothing, the newest first.
    pub async fn balancer_rejections(&self, limit: u32) -> Result<Vec<BalancerRejection>, ClientError> {
        let wanted = pb::BalancerRejectionsRequest { limit: Some(limit) };
        let request = log_request("MasterProtos$BalancerRejectionsRequest", &wanted);
        let answer: pb::LogEntry = self.call("GetLogEntries", &request).await?;
        let found: pb::BalancerRejectionsResponse = log_entry("BalancerRejectionsResponse", answer)?;
        let rejection = |message: pb::BalancerRejection| BalancerRejection {
            reason: message.reason,
            costs: message.cost_func_info,
        };
        Ok(found.balancer_rejection.into_iter().map(rejection).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_says_which_log_and_how_names_go_together() {
        let filter = CallLogFilter { table: Some("t".to_string()), limit: Some(3), ..Default::default() };
        let message = filter.to_pb(CallLog::Large);
        assert_eq!((message.table_name.as_deref(), message.limit()), (Some("t"), 3));
        assert_eq!(message.log_type(), LogType::LargeLog);
        assert_eq!(message.filter_by_operator(), FilterByOperator::Or);
        let message = CallLogFilter { must_fit_all: true, ..filter }.to_pb(CallLog::Slow);
        assert_eq!(message.log_type(), LogType::SlowLog);
        assert_eq!(message.filter_by_operator(), FilterByOperator::And);
        assert_eq!(CallLogFilter::default().to_pb(CallLog::Slow).limit(), 10);
    }

    #[test]
    fn an_answer_of_another_class_is_refused() {
        let wanted = pb::BalancerDecisionsRequest { limit: Some(2) };
        let request = log_request("MasterProtos$BalancerDecisionsRequest", &wanted);
        assert!(request.log_class_name.starts_with("org.apache.hadoop.hbase."));
        let decision = pb::BalancerDecision { computed_steps: 4, ..Default::default() };
        let response = pb::BalancerDecisionsResponse { balancer_decision: vec![decision] };
        let answer = |class: &str| pb::LogEntry {
            log_class_name: format!("{PACKAGE}MasterProtos${class}"),
            log_message: response.encode_to_vec().into(),
        };
        let class = "BalancerDecisionsResponse";
        let read: pb::BalancerDecisionsResponse = log_entry(class, answer(class)).unwrap();
        assert_eq!(read, response);
        let other = log_entry::<pb::BalancerDecisionsResponse>(class, answer("BalancerRejectionsResponse"));
        assert!(matches!(other, Err(ClientError::Malformed(_))));
        let damaged = pb::LogEntry { log_message: Bytes::from_static(b"\xff"), ..answer(class) };
        assert!(log_entry::<pb::BalancerDecisionsResponse>(class, damaged).is_err());
    }

    #[test]
    fn what_an_old_server_leaves_out_is_nothing() {
        let pair = pb::NameBytesPair { name: "a".to_string(), value: None };
        let message = pb::SlowLogPayload { method_name: "Scan".to_string(), ..Default::default() };
        let call = LoggedCall::of_pb(pb::SlowLogPayload { request_attribute: vec![pair], ..message });
        assert_eq!((call.method.as_str(), call.block_bytes, call.gets_count), ("Scan", 0, 0));
        assert_eq!(call.request_attributes, [("a".to_string(), Bytes::new())]);
    }
}
