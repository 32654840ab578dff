//! Looks at the pages of one server in one browser.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

use super::devtools::Browser;
use crate::common::fresh_dir;

const WIDTHS: [u32; 2] = [1440, 390];
const SCHEMES: [&str; 2] = ["light", "dark"];

/// Functions that the checks use, in the page.
const IN_PAGE: &str = include_str!("checks.js");

/// A page of one server in one browser.
pub struct Visit<'b> {
    pub browser: &'b mut Browser,
    pub base: String,
    /// Part of the names of screenshots.
    load: &'static str,
    pub checks: usize,
}

impl<'b> Visit<'b> {
    pub fn new(browser: &'b mut Browser, base: String, load: &'static str) -> Visit<'b> {
        Visit { browser, base, load, checks: 0 }
    }

    pub fn check(&mut self, what: &str, expression: &str) {
        let found = self.browser.evaluate(expression);
        assert_eq!(found, Value::Array(Vec::new()), "{what} on {}", self.base);
        self.checks += 1;
    }

    /// Opens a view and checks what must hold everywhere.
    pub fn view(&mut self, view: &str, width: u32, scheme: &str) {
        self.browser.resize(width, 900);
        self.browser.prefer(scheme);
        self.browser.forget_events();
        // another query: the page is loaded anew
        let url = format!("{}/?{view}-{width}-{scheme}#{view}", self.base);
        self.browser.call("Page.navigate", serde_json::json!({ "url": url }));
        self.browser.wait_until(view, &format!("document.body?.dataset.loaded === '{view}'"));
        self.browser.evaluate(IN_PAGE);
        let place = format!("{view} at {width}, {scheme}, {}", self.load);
        if view == "overview" {
            self.browser.wait_until("two rounds of points", "checks.hasPoints()");
            self.check(&format!("charts: {place}"), "checks.chartsNotDrawn()");
        }
        self.check(&format!("too wide: {place}"), "checks.tooWide()");
        self.check(&format!("contrast: {place}"), "checks.tooFaint()");
        self.check(&format!("unnamed controls: {place}"), "checks.unnamed()");
        self.check(&format!("numbers: {place}"), &format!("checks.wrongNumbers('{view}')"));
        let dark = self.browser.evaluate("checks.isDark()");
        assert_eq!(dark, scheme == "dark", "{place}");
        assert_eq!(self.browser.errors(), Vec::<String>::new(), "{place}");
        self.checks += 2;
        self.picture(&format!("{}-{view}-{width}-{scheme}", self.load), width);
    }

    pub fn picture(&mut self, name: &str, width: u32) {
        let Some(dir) = std::env::var_os("HALCYON_SCREENSHOTS").filter(|dir| !dir.is_empty()) else { return };
        let height = self.browser.evaluate("Math.min(6000, document.documentElement.scrollHeight)");
        self.browser.resize(width, height.as_u64().unwrap() as u32);
        std::thread::sleep(Duration::from_millis(400)); // charts and canvases follow
        let dir = PathBuf::from(dir);
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join(format!("{name}.png")), self.browser.screenshot()).unwrap();
    }

    pub fn all_views(&mut self, views: &[&str]) {
        for width in WIDTHS {
            for scheme in SCHEMES {
                views.iter().for_each(|view| self.view(view, width, scheme));
            }
        }
    }
}

pub fn browser(profile: &str) -> Browser {
    let program =
        std::env::var("HALCYON_CHROMIUM").expect("HALCYON_CHROMIUM names a browser: run make browser");
    Browser::start(&program, &fresh_dir(profile))
}
