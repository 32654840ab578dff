//! Text pages for operators: `/dump`, `/stacks`, `/logs/`, `/logLevel`, `/health`.

use std::fmt::Write;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use serde::Deserialize;

use super::{Pages, made, process, text};
use crate::log_level;

/// Characters of a filter of the log.
const LOG_NAME_CHARS_MAX: usize = 200;
const USAGE: &str = "Set: curl -X POST 'http://HOST:PORT/logLevel?log=halcyon_wal&level=debug' (without log: everything). \
                     Levels: error, warn, info, debug, trace, off.";

/// Everything that helps to see why a server is slow or stuck, in one text.
pub async fn dump(State(pages): State<Pages>) -> Response {
    made(move || {
        let sources = &pages.sources;
        let mut out = sources.state();
        let mut section = |title: &str, body: &str| {
            let _ = write!(out, "\n{title}\n{}\n{body}", "=".repeat(title.len()));
        };
        section("Threads", &threads());
        section("Memory", &sources.memory_page());
        section("Stalls", &sources.stalls());
        section("Slow calls", &slow_calls(&pages));
        text(StatusCode::OK, out)
    })
    .await
}

fn slow_calls(pages: &Pages) -> String {
    let mut out = String::new();
    for call in pages.sources.region_server.slow_calls() {
        let (method, took_ms, bytes) = (&call.method, call.took().as_millis(), call.response_bytes);
        let (client, user, param) = (&call.client, &call.user, &call.param);
        let _ = writeln!(
            out,
            "{}  {method}  {took_ms} ms  {bytes} B  {client}  {user}  {param}",
            call.received_ms
        );
        let _ = writeln!(out, "    {}", call.where_text());
    }
    out
}

/// Threads with their states. Stacks of a native program cannot be read from inside without stopping it.
pub async fn stacks() -> Response {
    made(|| {
        let head = "Threads of the process and their states. Stacks are not shown: a native program has to be \
                    stopped for them (gdb -p PID, or perf record -g -p PID).\n\n";
        text(StatusCode::OK, format!("{head}{}", threads()))
    })
    .await
}

fn threads() -> String {
    let mut out = String::new();
    for (name, state) in process::threads() {
        let _ = writeln!(out, "{name}  {state}");
    }
    out
}

pub async fn logs() -> Response {
    let reason = "The server writes its log to its standard error and keeps no files of it.\n\
                  Under systemd: journalctl -u halcyon\n";
    text(StatusCode::OK, reason)
}

/// 200 while the server serves, else 503 with the reason.
pub async fn health(State(pages): State<Pages>) -> Response {
    match pages.sources.region_server.failure() {
        None => text(StatusCode::OK, "OK\n"),
        Some(failure) => text(StatusCode::SERVICE_UNAVAILABLE, format!("FAILED: {failure}\n")),
    }
}

#[derive(Deserialize)]
pub struct LogParameters {
    log: Option<String>,
    level: Option<String>,
}

/// Shows which parts of the program log what. HBase changes that by the same request; here a link or a page that a browser
/// loads ahead must not.
pub async fn log_level(parameters: Result<Query<LogParameters>, QueryRejection>) -> Response {
    match checked(parameters) {
        Ok((log, None)) => shown(&log),
        Ok(_) => {
            let mut response =
                text(StatusCode::METHOD_NOT_ALLOWED, format!("A GET changes nothing. {USAGE}\n"));
            response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("POST"));
            response
        }
        Err(refusal) => refusal,
    }
}

/// Changes which parts of the program log what.
pub async fn set_log_level(
    headers: HeaderMap,
    parameters: Result<Query<LogParameters>, QueryRejection>,
) -> Response {
    if is_of_another_site(&headers) {
        return text(StatusCode::FORBIDDEN, "Another site may not change the level of the log.\n");
    }
    let (log, level) = match checked(parameters) {
        Ok((log, Some(level))) => (log, level),
        Ok((_, None)) => return text(StatusCode::BAD_REQUEST, format!("The level is missing. {USAGE}\n")),
        Err(refusal) => return refusal,
    };
    match log_level::set(&log, &level) {
        Ok(()) => shown(&log),
        Err(sentence) => text(StatusCode::BAD_REQUEST, format!("{sentence}\n")),
    }
}

/// Whether a browser asks because another site's page made it. Browsers say so; old ones only name the page's origin.
pub fn is_of_another_site(headers: &HeaderMap) -> bool {
    let header = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    if let Some(site) = header("sec-fetch-site") {
        return !matches!(site, "same-origin" | "none");
    }
    let host = header("host").unwrap_or_default();
    header("origin").is_some_and(|origin| origin.split_once("://").is_none_or(|(_, of)| of != host))
}

/// Name and level of a request; the error is its answer.
#[allow(clippy::result_large_err)] // an answer, once in a while
fn checked(
    parameters: Result<Query<LogParameters>, QueryRejection>,
) -> Result<(String, Option<String>), Response> {
    let Ok(Query(LogParameters { log, level })) = parameters else {
        return Err(text(StatusCode::BAD_REQUEST, "The query cannot be read.\n"));
    };
    let log = log.unwrap_or_default();
    if log.len() > LOG_NAME_CHARS_MAX
        || !log.chars().all(|letter| letter.is_ascii_alphanumeric() || "_:".contains(letter))
    {
        return Err(text(
            StatusCode::BAD_REQUEST,
            "A name has letters, digits, _ and ::, such as halcyon_wal::log.\n",
        ));
    }
    Ok((log, level))
}

fn shown(log: &str) -> Response {
    match log_level::in_force() {
        Ok(filter) => {
            let name = if log.is_empty() { "the whole program".to_string() } else { log.to_string() };
            text(StatusCode::OK, format!("Log: {name}\nFilter in force: {filter}\n\n{USAGE}\n"))
        }
        Err(sentence) => text(StatusCode::SERVICE_UNAVAILABLE, format!("{sentence}\n")),
    }
}
