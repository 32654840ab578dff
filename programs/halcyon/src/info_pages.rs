//! All pages of an info port, put together: text (`pages.rs`), HBase's addresses, console, profiles.

use std::sync::Arc;

use axum::Router;
use halcyon_env::Env;
use halcyon_master::Master;

use crate::console::{self, Console, Role};
use crate::hbase_pages;
use crate::host_check;
use crate::info::{BoundInfo, InfoServer};
use crate::pages::{self, Sources};
use crate::prof::Profiler;

/// Whose port it is.
#[derive(Clone)]
pub enum Port {
    Master(Arc<Master>),
    RegionServer,
}

impl Port {
    fn role(&self) -> Role {
        match self {
            Port::Master(_) => Role::Master,
            Port::RegionServer => Role::RegionServer,
        }
    }
}

/// What the info ports of one process share.
pub struct InfoPages {
    sources: Arc<Sources>,
    console: Arc<Console>,
    profiler: Arc<Profiler>,
    /// Names that requests may call this machine by.
    own_names: Vec<String>,
}

impl InfoPages {
    /// Starts what the pages read by themselves.
    pub fn start(env: &Env, sources: Sources, own_names: Vec<String>) -> Result<InfoPages, String> {
        let sources = Arc::new(sources);
        let console =
            Console::start(Arc::clone(&sources)).map_err(|error| format!("cannot start threads: {error}"))?;
        Ok(InfoPages { sources, console, profiler: Profiler::new(env.clone()), own_names })
    }

    /// Serves a port that was bound, if it was. Must be called within a `tokio` runtime.
    pub fn serve(&self, info: Option<BoundInfo>, port: &Port) -> Result<Option<InfoServer>, String> {
        let Some(info) = info else { return Ok(None) };
        info.serve(self.routes(port)).map(Some).map_err(|error| format!("cannot show a page: {error}"))
    }

    /// All pages of a port.
    pub fn routes(&self, port: &Port) -> Router {
        let routes = pages::routes(Arc::clone(&self.sources))
            .merge(hbase_pages::routes(&self.sources, port))
            .merge(console::routes(&self.console, port.role()))
            .merge(self.profiler.routes());
        host_check::guarded(routes, self.own_names.clone())
    }
}
