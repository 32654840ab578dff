//! What the server tells of a slow call: HBase's line in the log, and HBase's message to clients.

use std::time::Duration;

use halcyon_proto::pb;
use halcyon_proto::pb::slow_log_payload::Type;
use halcyon_rpc::{CallParts, NotedCall};
use serde_json::{Map, Value, json};

use crate::RegionServer;
use crate::calls::asked::name_text;
use crate::calls::slow_calls::SlowCall;
use crate::service::traces::parts_of;

const SERVER_CLASS: &str = "HRegionServer";
/// Characters of the parameter in the log, as HBase.
const PARAM_CHARS_MAX: usize = 150;

impl RegionServer {
    /// Keeps a call that was slow or large, and writes the line. Returns where the time of a traced call went.
    pub(super) fn keep_noted(&self, call: &NotedCall<'_>) -> CallParts {
        let (is_slow, is_large) = self.online.warn.judge(call.class, call.took_ns(), call.response_bytes);
        let is_kept = is_slow || is_large;
        if !is_kept && !call.is_traced {
            return CallParts::default(); // it is over the limit of calls of the other kind
        }
        let now_ms = self.env.clock.now_ms();
        let region_of = |scanner| self.scanners.region_name(scanner);
        let recent = if is_kept { self.env.stalls.recent() } else { Vec::new() };
        let described = self.slow_calls.describe(call, (is_slow, is_large), now_ms, &recent, region_of);
        let parts = if call.is_traced { parts_of(&described) } else { CallParts::default() };
        if is_kept {
            self.keep_slow(described, now_ms);
        }
        parts
    }

    fn keep_slow(&self, kept: SlowCall, now_ms: i64) {
        self.counters.slow.add(u64::from(kept.is_slow));
        self.counters.large.add(u64::from(kept.is_large));
        if let Some(table) = &self.background.slow_log_table {
            table.add(payload(&kept));
        }
        if let Some(left_out) = self.slow_calls.next_line(now_ms) {
            if left_out > 0 {
                tracing::warn!(left_out, "slow calls without a line of their own");
            }
            tracing::warn!("({}): {}", tag(&kept), line(&kept));
        }
        self.slow_calls.keep(kept);
    }
}

fn tag(call: &SlowCall) -> &'static str {
    match (call.is_slow, call.is_large) {
        (true, true) => "responseTooLarge & TooSlow",
        (false, true) => "responseTooLarge",
        _ => "responseTooSlow",
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// HBase's fields, then ours.
fn line(call: &SlowCall) -> Value {
    let mut fields = Map::new();
    let mut put = |name: &str, value: Value| fields.insert(name.to_string(), value);
    put("starttimems", json!(started_ms(call)));
    put("processingtimems", json!(millis(call.processed())));
    put("queuetimems", json!(millis(call.queued())));
    put("responsesize", json!(call.response_bytes));
    put("fsreadtime", json!(millis(call.parts.disk)));
    put("client", json!(call.client));
    put("class", json!(SERVER_CLASS));
    put("method", json!(call.method));
    put("call", json!(call_details(call)));
    put("param", json!(shortened(&call.param)));
    if let Some([gets, mutations, service_calls]) = call.actions {
        put("multi.gets", json!(gets));
        put("multi.mutations", json!(mutations));
        put("multi.servicecalls", json!(service_calls));
    }
    put("region", json!(name_text(&call.region)));
    put("user", json!(call.user));
    put("totaltimems", json!(millis(call.took())));
    put("where", json!(call.where_text()));
    Value::Object(fields)
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(PARAM_CHARS_MAX) {
        Some((end, _)) => format!("{}... <TRUNCATED>", &text[..end]),
        None => text.to_string(),
    }
}

/// When it began: HBase counts from when it left the queue.
fn started_ms(call: &SlowCall) -> i64 {
    call.received_ms + i64::try_from(millis(call.queued())).unwrap_or(i64::MAX)
}

fn call_details(call: &SlowCall) -> String {
    let request = match call.method.as_str() {
        "ExecService" | "ExecRegionServerService" => "CoprocessorService",
        method => method,
    };
    format!("{}({request}Request)", call.method)
}

/// HBase's message of a kept call. The parameter ends with where the time went: there is no field for that.
pub(super) fn payload(call: &SlowCall) -> pb::SlowLogPayload {
    let ms = |time: Duration| i32::try_from(time.as_millis()).unwrap_or(i32::MAX);
    let [gets, mutations, service_calls] = call.actions.unwrap_or_default();
    let separator = if call.param.is_empty() { "" } else { "; " };
    let kind = match (call.is_slow, call.is_large) {
        (true, true) => Type::All,
        (false, true) => Type::LargeLog,
        _ => Type::SlowLog,
    };
    pb::SlowLogPayload {
        start_time: started_ms(call),
        processing_time: ms(call.processed()),
        queue_time: ms(call.queued()),
        response_size: i64::try_from(call.response_bytes).unwrap_or(i64::MAX),
        client_address: call.client.clone(),
        server_class: SERVER_CLASS.to_string(),
        method_name: call.method.clone(),
        call_details: call_details(call),
        param: Some(format!("{}{separator}where: {}", call.param, call.where_text())),
        user_name: call.user.clone(),
        region_name: Some(name_text(&call.region)),
        multi_gets: Some(gets),
        multi_mutations: Some(mutations),
        multi_service_calls: Some(service_calls),
        r#type: kind as i32,
        fs_read_time: Some(i64::from(ms(call.parts.disk))),
        ..Default::default()
    }
}
