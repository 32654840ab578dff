//! The files of the console, which are part of the program: it works without a network.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::OnceLock;

use axum::Router;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

/// Name below `/console/`, content type, content.
type Asset = (&'static str, &'static str, &'static [u8]);

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const JS: &str = "text/javascript; charset=utf-8";

macro_rules! asset {
    ($name:literal, $kind:expr) => {
        (concat!("/console/", $name), $kind, include_bytes!(concat!("../../console/", $name)))
    };
}

const PAGE: &[u8] = include_bytes!("../../console/index.html");
const ASSETS: &[Asset] = &[
    asset!("console.css", CSS),
    asset!("theme.js", JS),
    asset!("main.js", JS),
    asset!("api.js", JS),
    asset!("dom.js", JS),
    asset!("format.js", JS),
    asset!("charts.js", JS),
    asset!("keymap.js", JS),
    asset!("overview.js", JS),
    asset!("cluster.js", JS),
    asset!("balance.js", JS),
    asset!("recoveries.js", JS),
    asset!("svg.js", JS),
    asset!("lists.js", JS),
    asset!("vendor/uplot.min.js", JS),
    asset!("vendor/uplot.min.css", CSS),
    asset!("vendor/uplot.LICENSE", "text/plain; charset=utf-8"),
];

/// Scripts, styles and requests of this port only. Nothing inline runs, and no other page may frame this one.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
     connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Headers of everything that a browser shows.
const SECURITY_HEADERS: [(&str, &str); 4] = [
    ("content-security-policy", CONTENT_SECURITY_POLICY),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("x-frame-options", "DENY"),
];

/// The page itself.
pub fn page() -> Response {
    respond(HTML, PAGE)
}

pub fn routes() -> Router {
    let mut routes = Router::new().route("/console", get(|| async { page() }));
    for (path, kind, content) in ASSETS {
        let answer = move |headers: HeaderMap| async move {
            let is_known = headers.get(header::IF_NONE_MATCH).is_some_and(|tag| tag == etag());
            if is_known { StatusCode::NOT_MODIFIED.into_response() } else { respond(kind, content) }
        };
        routes = routes.route(path, get(answer));
    }
    routes
}

/// Changes with the content of the files. A browser asks each time and gets a file once.
fn etag() -> &'static str {
    static ETAG: OnceLock<String> = OnceLock::new();
    ETAG.get_or_init(|| {
        let mut hasher = DefaultHasher::new();
        (PAGE, ASSETS).hash(&mut hasher);
        format!("\"{:016x}\"", hasher.finish())
    })
}

fn respond(kind: &'static str, content: &'static [u8]) -> Response {
    let fresh = [(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, "no-cache"), (header::ETAG, etag())];
    (SECURITY_HEADERS, fresh, content).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_that_the_page_or_a_module_names_is_served_and_nothing_comes_from_elsewhere() {
        let text = |content: &[u8]| String::from_utf8(content.to_vec()).unwrap();
        let own = |path: &str| !path.starts_with("/console/vendor/");
        let scripts = ASSETS.iter().filter(|(path, _, _)| own(path)).map(|(_, _, content)| text(content));
        let all = scripts.chain([text(PAGE)]);
        for content in all {
            assert!(!content.contains("http://") && !content.contains("https://"), "{content}");
            assert!(!content.contains("innerHTML") && !content.contains("insertAdjacentHTML"), "{content}");
            for named in
                content.split(['"', '\'', '`']).filter(|part| part.ends_with(".js") || part.ends_with(".css"))
            {
                let path = match named.strip_prefix("./") {
                    Some(name) => format!("/console/{name}"),
                    None => named.to_string(),
                };
                assert!(ASSETS.iter().any(|(asset, _, _)| *asset == path), "{named} is not served");
            }
        }
    }
}
