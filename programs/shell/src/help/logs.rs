//! Help for logs of servers.

use super::{Help, help};

pub(super) const LOGS: &[Help] = &[
    help(
        "get_slowlog_responses",
        "slow calls that region servers remember",
        &[
            "get_slowlog_responses '*'",
            "get_slowlog_responses ['host,port,startcode'], LIMIT => 50",
            "get_slowlog_responses '*', {TABLE_NAME => 't', USER => 'u', FILTER_BY_OP => 'AND'}",
            "get_slowlog_responses 'host', {REGION_NAME => 'hbase:meta,,1', CLIENT_IP => '127.0.0.1:60225'}",
        ],
    ),
    help(
        "get_largelog_responses",
        "calls with large answers that region servers remember",
        &["get_largelog_responses '*'", "get_largelog_responses '*', {TABLE_NAME => 't', LIMIT => 50}"],
    ),
    help(
        "clear_slowlog_responses",
        "has region servers forget slow and large calls",
        &["clear_slowlog_responses", "clear_slowlog_responses ['host,port,startcode']"],
    ),
    help(
        "get_balancer_decisions",
        "runs of the balancer that moved regions",
        &["get_balancer_decisions", "get_balancer_decisions LIMIT => 10"],
    ),
    help(
        "get_balancer_rejections",
        "runs of the balancer that moved nothing",
        &["get_balancer_rejections", "get_balancer_rejections LIMIT => 10"],
    ),
];
