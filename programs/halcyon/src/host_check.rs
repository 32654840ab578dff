//! Requests to the info ports must name this machine.
//!
//! A web page from elsewhere may have a name that its owner lets point to 127.0.0.1 (DNS rebinding). The browser then
//! takes this port for a part of that page and lets it read everything. Such a request has the page's name in its header
//! `Host`, and is refused.

use std::net::IpAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::http::{StatusCode, header};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};

/// Routes that answer only to addresses, `localhost` and these names.
pub fn guarded(routes: Router, names: Vec<String>) -> Router {
    let names: Arc<[String]> = names.into();
    routes.layer(from_fn(move |request: Request, next: Next| {
        let names = Arc::clone(&names);
        async move {
            let host =
                request.headers().get(header::HOST).map(|value| value.to_str().unwrap_or("?").to_string());
            match host {
                Some(host) if !is_own(&host, &names) => refused(),
                _ => next.run(request).await,
            }
        }
    }))
}

fn refused() -> Response {
    let reason = "The header Host names another machine. To accept a name of this machine, start the server with \
                  --hostname NAME (hbase.regionserver.hostname), or use the address.\n";
    (StatusCode::FORBIDDEN, reason).into_response()
}

/// A browser never sends an address that is not in the address bar, so an address needs no list.
fn is_own(host: &str, names: &[String]) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(), // an address of IPv6
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    let name = name.strip_suffix('.').unwrap_or(name);
    name.is_empty()
        || name.parse::<IpAddr>().is_ok()
        || name.eq_ignore_ascii_case("localhost")
        || names.iter().any(|own| own.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_this_machine_are_accepted() {
        let names = ["db1.example.org".to_string(), "db1".to_string()];
        for own in [
            "127.0.0.1:16010",
            "10.1.2.3",
            "[::1]:16010",
            "[::1]",
            "localhost",
            "LOCALHOST:1",
            "db1",
            "DB1.example.org.:80",
        ] {
            assert!(is_own(own, &names), "{own}");
        }
        for other in [
            "evil.example",
            "evil.example:16010",
            "localhost.evil.example",
            "db1.evil.example",
            "127.0.0.1.evil.example",
            "?",
        ] {
            assert!(!is_own(other, &names), "{other}");
        }
    }
}
