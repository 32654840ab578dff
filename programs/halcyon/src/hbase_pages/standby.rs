//! The pages of a master that is not active: who it is, which master is active, and which others wait.
//!
//! They are served from the start of the process. When the master has taken the cluster over, the port has the pages of an
//! active master.

use std::fmt::Write;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use halcyon_coord::ClusterView;
use halcyon_env::Env;
use halcyon_schema::ServerName;
use parking_lot::Mutex;
use serde_json::json;

use super::beans::Bean;
use super::process::{self, Process};
use super::status::Page;
use super::{Shows, conf, html, jmx, prometheus, text, tools};
use crate::settings::ShownSetting;
use crate::surroundings::{Fact, active_master, meta_location, names};

/// A master that is not active.
#[derive(Clone)]
pub struct Standby(Arc<Shown>);

struct Shown {
    env: Env,
    name: ServerName,
    cluster_id: String,
    view: ClusterView,
    zookeeper: String,
    settings: Vec<ShownSetting>,
    budget_bytes: u64,
    /// When it won the election, with the number of its epoch.
    elected: Mutex<Option<(i64, u64)>>,
}

impl Standby {
    pub fn new(
        env: &Env,
        (name, cluster_id): (ServerName, String),
        (view, zookeeper): (ClusterView, String),
        settings: Vec<ShownSetting>,
        budget_bytes: u64,
    ) -> Standby {
        let (env, elected) = (env.clone(), Mutex::new(None));
        Standby(Arc::new(Shown { env, name, cluster_id, view, zookeeper, settings, budget_bytes, elected }))
    }

    /// It has won the election, and takes the cluster over.
    pub fn elected(&self, epoch: u64) {
        *self.0.elected.lock() = Some((self.0.env.clock.now_ms(), epoch));
    }

    fn state_text(&self) -> String {
        match *self.0.elected.lock() {
            None => "standby: it waits to become active".to_string(),
            Some((since_ms, epoch)) => {
                let age_s = (self.0.env.clock.now_ms() - since_ms).max(0) / 1000;
                format!("takes the cluster over since {age_s} s, epoch {epoch}")
            }
        }
    }

    fn facts(&self) -> Vec<Fact> {
        let shown = &self.0;
        let present = |servers: Option<Vec<ServerName>>| names(servers.unwrap_or_default().iter());
        vec![
            Fact::new("Master", shown.name.to_string()),
            Fact::new("State", self.state_text()),
            active_master(&shown.view.master.seen()),
            Fact::new("Standby masters", present(shown.view.backup_masters.present())),
            meta_location(&shown.view.meta.seen()),
            Fact::new("Region servers", present(shown.view.region_servers.present())),
            Fact::new("Cluster", &shown.cluster_id),
            Fact::new("Version", env!("CARGO_PKG_VERSION")),
            Fact::new("ZooKeeper", &shown.zookeeper),
        ]
    }

    fn page(&self) -> String {
        let title = format!("Standby master {}", self.0.name.host);
        let mut page =
            Page::with_links(&title, &[("Metrics", "/jmx"), ("Settings", "/conf"), ("Text", "/state")]);
        match active_master(&self.0.view.master.seen()) {
            Fact { value, link: Some(link), .. } => page.sentence_with_link(
                "This master is not active. The console is on the active one: ",
                &value,
                &format!("{link}master-status"),
            ),
            Fact { value, .. } => {
                page.sentence(&format!("This master is not active. The active one: {value}."));
            }
        }
        page.place(&self.facts());
        page.end()
    }

    fn text(&self) -> String {
        let mut out = format!("halcyon {} master\n", env!("CARGO_PKG_VERSION"));
        for Fact { name, value, .. } in self.facts() {
            let _ = writeln!(out, "{name}: {value}");
        }
        out
    }
}

impl Shows for Standby {
    fn beans(&self) -> Vec<Bean> {
        let shown = &self.0;
        let mut server = Bean::of_hbase("Master", Some("Server"), "master", &shown.name.host);
        server.tag("serverName", &shown.name.to_string());
        server.tag("clusterId", &shown.cluster_id);
        server.tag("zookeeperQuorum", &shown.zookeeper);
        server.tag("isActiveMaster", "false");
        server.gauge("masterStartTime", shown.name.start_code, "When the master started, in ms since 1970");
        server.gauge("masterActiveTime", 0, "It is not active");
        let process = Process {
            host: shown.name.host.clone(),
            budget_bytes: shown.budget_bytes,
            resident_bytes: halcyon_env::resident_bytes(&*shown.env.local),
            started_ms: shown.name.start_code,
            now_ms: shown.env.clock.now_ms(),
        };
        let mut beans = vec![server];
        beans.extend(process::beans(&process));
        beans
    }

    fn shown_settings(&self) -> &[ShownSetting] {
        &self.0.settings
    }
}

pub fn standby_routes(standby: Standby) -> Router {
    type Shared = State<Standby>;
    let state = |State(standby): Shared| async move { text(StatusCode::OK, standby.text()) };
    Router::new()
        .route("/", get(root))
        .route("/state", get(state))
        .route("/dump", get(state))
        .route("/master-status", get(|State(standby): Shared| async move { html(standby.page()) }))
        .route("/api/v1/summary", get(summary))
        .route("/jmx", get(jmx::answer::<Standby>))
        .route("/prometheus", get(prometheus::answer::<Standby>))
        .route("/conf", get(conf::answer::<Standby>))
        .route("/stacks", get(tools::stacks))
        .route("/logs", get(tools::logs))
        .route("/logs/", get(tools::logs))
        .route("/logLevel", get(tools::log_level).post(tools::set_log_level))
        .route("/health", get(|| async { text(StatusCode::OK, "OK\n") }))
        .fallback(|State(standby): Shared| async move {
            let Fact { value, link, .. } = active_master(&standby.0.view.master.seen());
            let at = link.unwrap_or(value);
            let sentence = format!("This master is not active and has no such page. Active master: {at}\n");
            text(StatusCode::NOT_FOUND, sentence)
        })
        .with_state(standby)
}

async fn root(State(standby): State<Standby>, headers: HeaderMap) -> Response {
    let accepted = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let mut response = match accepted.contains("text/html") {
        true => html(standby.page()),
        false => text(StatusCode::OK, standby.text()),
    };
    response.headers_mut().insert(header::VARY, HeaderValue::from_static("accept"));
    response
}

/// For programs that look at all masters.
async fn summary(State(standby): State<Standby>) -> Response {
    let shown = &standby.0;
    let active = active_master(&shown.view.master.seen());
    axum::Json(json!({
        "role": "master",
        "scope": "standby",
        "server": shown.name.to_string(),
        "version": env!("CARGO_PKG_VERSION"),
        "cluster": shown.cluster_id,
        "state": standby.state_text(),
        "active": active.value,
        "active_link": active.link,
        "now_ms": shown.env.clock.now_ms(),
        "started_ms": shown.name.start_code,
    }))
    .into_response()
}

#[cfg(test)]
mod tests {
    use halcyon_coord::{ClusterPublisher, Seen};
    use halcyon_schema::znode::ActiveMaster;

    use super::*;

    #[test]
    fn a_standby_names_the_active_master() {
        let (publisher, view) = ClusterPublisher::new();
        let env = Env::real();
        let name = (ServerName::new("m2", 16000, 7), "id".to_string());
        let standby = Standby::new(&env, name, (view, "z:2181/hbase".to_string()), Vec::new(), 1 << 20);
        assert!(standby.page().contains("The active one: not read yet."), "{}", standby.page());
        let server = ServerName::new("m1", 16000, 1);
        publisher.master.publish(Seen::Present(ActiveMaster { server, info_port: 16010 }));
        let page = standby.page();
        assert!(page.contains("<a href=\"http://m1:16010/master-status\">m1,16000,1</a>"), "{page}");
        assert!(standby.text().contains("State: standby"), "{}", standby.text());
        let beans = standby.beans();
        let active = beans[0].attributes.iter().find(|it| it.name == "tag.isActiveMaster").unwrap();
        assert_eq!(active.value, "false");
        standby.elected(4);
        assert!(standby.text().contains("takes the cluster over since 0 s, epoch 4"), "{}", standby.text());
    }
}
