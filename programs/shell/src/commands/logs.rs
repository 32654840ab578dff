//! What servers remember: slow and large calls, runs of the balancer.

use halcyon_client::{
    Admin, BalancerDecision, BalancerRejection, Bytes, CallLog, CallLogFilter, LoggedCall, ServerName,
};
use serde_json::{Map as JsonMap, Value as Json, json};

use super::Context;
use crate::arguments::Arguments;
use crate::error::ShellError;
use crate::print::binary;
use crate::value::{Map, Value};

/// Runs of the balancer that are listed if no number is given.
const RUNS_DEFAULT: u32 = 250;

pub(super) async fn run(
    context: &mut Context,
    name: &str,
    arguments: &mut Arguments,
) -> Result<bool, ShellError> {
    match name {
        "get_slowlog_responses" => {
            let calls = calls(context, name, arguments, CallLog::Slow).await?;
            context.printer.note("Retrieved SlowLog Responses from RegionServers")?;
            print(context, calls.iter().map(call_json))?;
        }
        "get_largelog_responses" => {
            let calls = calls(context, name, arguments, CallLog::Large).await?;
            context.printer.note("Retrieved LargeLog Responses from RegionServers")?;
            print(context, calls.iter().map(call_json))?;
        }
        "clear_slowlog_responses" => clear(context, arguments).await?,
        "get_balancer_decisions" => {
            let limit = limit(name, arguments)?;
            let decisions = context.admin().await?.balancer_decisions(limit).await?;
            context.printer.note("Retrieved BalancerDecision Responses")?;
            print(context, decisions.iter().map(decision_json))?;
        }
        "get_balancer_rejections" => {
            let limit = limit(name, arguments)?;
            let rejections = context.admin().await?.balancer_rejections(limit).await?;
            context.printer.note("Retrieved BalancerRejection Responses")?;
            print(context, rejections.iter().map(rejection_json))?;
        }
        _ => return Ok(false),
    }
    Ok(true)
}

/// Which region servers are meant.
#[derive(Debug, PartialEq)]
enum Servers {
    All,
    /// Each by `host`, `host,port` or `host,port,startcode`.
    Named(Vec<String>),
}

fn servers(arguments: &mut Arguments) -> Result<Servers, ShellError> {
    let value = arguments.next("a server, a list of servers or '*'")?;
    servers_of(arguments, value)
}

fn servers_of(arguments: &Arguments, value: Value) -> Result<Servers, ShellError> {
    let names = value.list().iter().map(Value::text).collect::<Result<Vec<_>, _>>()?;
    match names.as_slice() {
        [] => Err(arguments.error("no server is named; '*' means all")),
        [all] if all == "*" => Ok(Servers::All),
        _ => Ok(Servers::Named(names)),
    }
}

/// Live servers; each once, even if several names mean it.
async fn find(admin: &Admin, arguments: &Arguments, wanted: &Servers) -> Result<Vec<ServerName>, ShellError> {
    let live = admin.region_servers().await?;
    let Servers::Named(names) = wanted else { return Ok(live) };
    let mut found: Vec<ServerName> = Vec::new();
    for name in names {
        let mut is_there = false;
        for server in live.iter().filter(|server| is_named(server, name)) {
            is_there = true;
            if !found.contains(server) {
                found.push(server.clone());
            }
        }
        if !is_there {
            return Err(arguments.error(format_args!("there is no live region server '{name}'")));
        }
    }
    Ok(found)
}

fn is_named(server: &ServerName, name: &str) -> bool {
    let mut parts = name.split(',');
    let host = parts.next().unwrap_or_default();
    host == server.host
        && parts.next().is_none_or(|port| port == server.port.to_string())
        && parts.next().is_none_or(|start_code| start_code == server.start_code.to_string())
        && parts.next().is_none()
}

fn filter(name: &str, arguments: &mut Arguments) -> Result<CallLogFilter, ShellError> {
    let mut options = arguments.options()?;
    let must_fit_all = match text(&mut options, "FILTER_BY_OP")?.as_deref() {
        None | Some("OR") => false,
        Some("AND") => true,
        Some(other) => {
            return Err(arguments.error(format_args!("FILTER_BY_OP '{other}' is neither OR nor AND")));
        }
    };
    let filter = CallLogFilter {
        region: text(&mut options, "REGION_NAME")?,
        table: text(&mut options, "TABLE_NAME")?,
        client: text(&mut options, "CLIENT_IP")?,
        user: text(&mut options, "USER")?,
        must_fit_all,
        limit: options.take("LIMIT").map(|limit| limit.count()).transpose()?,
    };
    options.finish(name)?;
    arguments.finish()?;
    Ok(filter)
}

fn text(options: &mut Map, key: &str) -> Result<Option<String>, ShellError> {
    options.take(key).map(|value| value.text()).transpose()
}

/// The one option of commands about the balancer.
fn limit(name: &str, arguments: &mut Arguments) -> Result<u32, ShellError> {
    let mut options = arguments.options()?;
    let limit = options.take("LIMIT").map_or(Ok(RUNS_DEFAULT), |limit| limit.count())?;
    options.finish(name)?;
    arguments.finish()?;
    Ok(limit)
}

async fn calls(
    context: &mut Context,
    name: &str,
    arguments: &mut Arguments,
    log: CallLog,
) -> Result<Vec<LoggedCall>, ShellError> {
    let wanted = servers(arguments)?;
    let filter = filter(name, arguments)?;
    let admin = context.admin().await?;
    let mut calls = Vec::new();
    for server in find(&admin, arguments, &wanted).await? {
        calls.extend(admin.logged_calls(&server, log, &filter).await?);
    }
    Ok(calls)
}

async fn clear(context: &mut Context, arguments: &mut Arguments) -> Result<(), ShellError> {
    let wanted = match arguments.optional() {
        None => Servers::All,
        Some(value) => servers_of(arguments, value)?,
    };
    arguments.finish()?;
    let admin = context.admin().await?;
    let servers = find(&admin, arguments, &wanted).await?;
    let mut cleared_count = 0;
    for server in &servers {
        cleared_count += usize::from(admin.clear_logged_calls(server).await?);
    }
    let count = servers.len();
    context.printer.object(&json!({ "cleared": cleared_count, "servers": count }))?;
    let text = format!("Cleared Slowlog responses from {cleared_count}/{count} RegionServers");
    Ok(context.printer.note(text)?)
}

/// Objects: over several lines for people.
fn print(context: &mut Context, objects: impl Iterator<Item = Json>) -> Result<(), ShellError> {
    for object in objects {
        context.printer.object(&object)?;
        context.printer.note(format_args!("{object:#}"))?;
    }
    Ok(())
}

/// Names and order as HBase's client prints them. What is empty is left out where it leaves it out.
fn call_json(call: &LoggedCall) -> Json {
    let mut object = JsonMap::new();
    let mut put = |name: &str, value: Json| drop(object.insert(name.to_string(), value));
    put("startTime", call.start_ms.into());
    put("processingTime", call.processing_ms.into());
    put("queueTime", call.queue_ms.into());
    put("responseSize", call.response_bytes.into());
    put("blockBytesScanned", call.block_bytes.into());
    put("fsReadTime", call.fs_read_ms.into());
    put("clientAddress", call.client.as_str().into());
    put("serverClass", call.server_class.as_str().into());
    put("methodName", call.method.as_str().into());
    put("callDetails", call.details.as_str().into());
    put("param", call.param.as_str().into());
    put("userName", call.user.as_str().into());
    let counts = [
        ("multiGetsCount", call.gets_count),
        ("multiMutationsCount", call.mutations_count),
        ("multiServiceCalls", call.service_calls_count),
    ];
    for (name, count) in counts.into_iter().filter(|(_, count)| *count != 0) {
        put(name, count.into());
    }
    let attributes = [
        ("requestAttributes", &call.request_attributes),
        ("connectionAttributes", &call.connection_attributes),
    ];
    for (name, pairs) in attributes.into_iter().filter(|(_, pairs)| !pairs.is_empty()) {
        let pair = |(key, value): &(String, Bytes)| (key.clone(), Json::from(binary(value)));
        put(name, Json::Object(pairs.iter().map(pair).collect()));
    }
    Json::Object(object)
}

fn decision_json(decision: &BalancerDecision) -> Json {
    json!({
        "initialFunctionCosts": decision.initial_costs,
        "finalFunctionCosts": decision.final_costs,
        "initTotalCost": decision.initial_total,
        "computedTotalCost": decision.final_total,
        "computedSteps": decision.steps_count,
        "regionPlans": decision.moves,
    })
}

fn rejection_json(rejection: &BalancerRejection) -> Json {
    json!({ "reason": rejection.reason, "costFuncInfoList": rejection.costs })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::parse;

    fn arguments(line: &str) -> Arguments {
        Arguments::new(parse(line).unwrap().remove(0))
    }

    #[test]
    fn servers_are_named_in_parts() {
        let server = ServerName::new("host", 16020, 7);
        for name in ["host", "host,16020", "host,16020,7"] {
            assert!(is_named(&server, name), "{name}");
        }
        for name in ["", "hos", "host,1602", "host,16020,8", "host,16020,7,x", "host,", "16020"] {
            assert!(!is_named(&server, name), "{name}");
        }
    }

    #[test]
    fn servers_are_one_or_many_or_all() {
        let of = |line: &str| servers(&mut arguments(line));
        assert_eq!(of("get_slowlog_responses '*'").unwrap(), Servers::All);
        let named = |names: &[&str]| Servers::Named(names.iter().map(ToString::to_string).collect());
        assert_eq!(of("get_slowlog_responses 'h,1,2'").unwrap(), named(&["h,1,2"]));
        assert_eq!(of("get_slowlog_responses ['h', 'i']").unwrap(), named(&["h", "i"]));
        for line in
            ["get_slowlog_responses", "get_slowlog_responses []", "get_slowlog_responses {LIMIT => 1}"]
        {
            assert!(of(line).is_err(), "{line}");
        }
    }

    #[test]
    fn a_filter_has_names_and_a_limit() {
        let of = |line: &str| {
            let mut arguments = arguments(line);
            servers(&mut arguments).and_then(|_| filter("get_slowlog_responses", &mut arguments))
        };
        assert_eq!(of("get_slowlog_responses '*'").unwrap(), CallLogFilter::default());
        let found = of("get_slowlog_responses '*', {'TABLE_NAME' => 't', LIMIT => 5, FILTER_BY_OP => 'AND'}");
        let table = Some("t".to_string());
        let expected =
            CallLogFilter { table, limit: Some(5), must_fit_all: true, ..CallLogFilter::default() };
        assert_eq!(found.unwrap(), expected);
        for options in ["FILTER_BY_OP => 'XOR'", "LIMIT => -1", "LIMIT => 'x'", "NONSENSE => 1", "'more'"] {
            assert!(of(&format!("get_slowlog_responses '*', {options}")).is_err(), "{options}");
        }
        let of = |line: &str| limit("get_balancer_decisions", &mut arguments(line));
        assert_eq!(of("get_balancer_decisions").unwrap(), 250);
        assert_eq!(of("get_balancer_decisions LIMIT => 3").unwrap(), 3);
        assert!(of("get_balancer_decisions 3").is_err());
    }

    #[test]
    fn a_call_is_printed_as_hbase_prints_it() {
        let call = LoggedCall {
            method: "Multi".to_string(),
            mutations_count: 2,
            request_attributes: vec![("a".to_string(), Bytes::from_static(b"\x00"))],
            ..LoggedCall::default()
        };
        let text = format!("{:#}", call_json(&call));
        assert!(text.starts_with("{\n  \"startTime\": 0,\n  \"processingTime\": 0,"), "{text}");
        assert!(text.contains("\"multiMutationsCount\": 2") && !text.contains("multiGetsCount"), "{text}");
        assert!(text.contains("\"a\": \"\\\\x00\"") && !text.contains("connectionAttributes"), "{text}");
        let decision = BalancerDecision { moves: vec!["a move".to_string()], ..BalancerDecision::default() };
        assert!(decision_json(&decision).to_string().ends_with("\"regionPlans\":[\"a move\"]}"));
        let rejection = BalancerRejection { reason: "balanced".to_string(), ..BalancerRejection::default() };
        let expected = "{\"reason\":\"balanced\",\"costFuncInfoList\":[]}";
        assert_eq!(rejection_json(&rejection).to_string(), expected);
    }
}
