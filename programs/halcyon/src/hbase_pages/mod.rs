//! The addresses of HBase's info ports, for what reads them today: dashboards, exporters, scripts.
//!
//! ```text
//! /jmx, /prometheus         beans with HBase's names (beans.rs): region_server.rs, master.rs, process.rs
//! /conf                     settings (conf.rs)
//! /master-status, /rs-status, /table.jsp       pages for people (status.rs, cluster.rs)
//! the same of a master that is not active      standby.rs
//! /dump, /stacks, /logs/, /logLevel, /health   text (tools.rs)
//! ```
//!
//! A bean has only numbers that are true. What HBase has beside is listed in `docs/compatibility/metrics.tsv`. Nothing
//! here is on the path of a call: everything is read when it is asked for. Keys are shown escaped, values never.

mod beans;
mod cluster;
mod conf;
mod jmx;
mod master;
mod object_name;
mod process;
mod prometheus;
mod region_server;
mod standby;
mod status;
mod tools;
mod windows;

use std::sync::Arc;

use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

pub use self::beans::WindowsNow;
pub use self::standby::{Standby, standby_routes};
pub use self::tools::is_of_another_site;
pub use self::windows::Windows;

use self::beans::Bean;
use crate::info_pages::Port;
use crate::pages::Sources;
use crate::settings::ShownSetting;

const HTML: &str = "text/html; charset=utf-8";
const TEXT: &str = "text/plain; charset=utf-8";

/// What every page is made from.
#[derive(Clone)]
struct Pages {
    sources: Arc<Sources>,
    port: Port,
}

/// What `/jmx`, `/prometheus` and `/conf` need of a server.
trait Shows: Clone + Send + Sync + 'static {
    fn beans(&self) -> Vec<Bean>;

    fn shown_settings(&self) -> &[ShownSetting];
}

/// The routes of one info port.
pub fn routes(sources: &Arc<Sources>, port: &Port) -> Router {
    let pages = Pages { sources: Arc::clone(sources), port: port.clone() };
    let routes = Router::new()
        .route("/jmx", get(jmx::answer::<Pages>))
        .route("/prometheus", get(prometheus::answer::<Pages>))
        .route("/conf", get(conf::answer::<Pages>))
        .route("/table.jsp", get(status::table))
        .route("/dump", get(tools::dump))
        .route("/stacks", get(tools::stacks))
        .route("/logs", get(tools::logs))
        .route("/logs/", get(tools::logs))
        .route("/logLevel", get(tools::log_level).post(tools::set_log_level))
        .route("/health", get(tools::health));
    match port {
        Port::Master(master) => {
            let status = Router::new().route("/master-status", get(status::master));
            routes.with_state(pages.clone()).merge(status.with_state((pages, Arc::clone(master))))
        }
        Port::RegionServer => routes.route("/rs-status", get(status::region_server)).with_state(pages),
    }
}

impl Shows for Pages {
    /// The beans of this port's server.
    fn beans(&self) -> Vec<Bean> {
        let mut beans = match &self.port {
            Port::Master(master) => master::beans(&self.sources, master),
            Port::RegionServer => region_server::beans(&self.sources),
        };
        beans.extend(process::beans(&process::Process::of(&self.sources)));
        beans
    }

    fn shown_settings(&self) -> &[ShownSetting] {
        &self.sources.shown_settings
    }
}

/// Makes an answer where it may take some time.
async fn made<F>(make: F) -> Response
where
    F: FnOnce() -> Response + Send + 'static,
{
    let failed = |_| {
        let text = "The server could not make this answer; its log says why.\n";
        (StatusCode::INTERNAL_SERVER_ERROR, text).into_response()
    };
    tokio::task::spawn_blocking(make).await.unwrap_or_else(failed)
}

fn html(page: String) -> Response {
    let headers = [
        (header::CONTENT_TYPE, HTML),
        (
            header::CONTENT_SECURITY_POLICY,
            "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
        ),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    (headers, page).into_response()
}

fn text(status: StatusCode, text: impl Into<String>) -> Response {
    let headers = [(header::CONTENT_TYPE, TEXT), (header::X_CONTENT_TYPE_OPTIONS, "nosniff")];
    (status, headers, text.into()).into_response()
}
