//! `/conf`: the settings as HBase's `ConfServlet` writes a configuration, in XML or JSON.

use std::fmt::Write;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Shows, text};
use crate::settings::ShownSetting;

/// Values of properties with one of these in their name are not shown, as in HBase.
const MASKED: [&str; 3] = ["password", "secret", "superuser"];

#[derive(Deserialize)]
pub struct Parameters {
    format: Option<String>,
}

pub async fn answer<S: Shows>(
    State(pages): State<S>,
    headers: HeaderMap,
    parameters: Result<Query<Parameters>, QueryRejection>,
) -> Response {
    let Ok(Query(Parameters { format })) = parameters else {
        return text(StatusCode::BAD_REQUEST, "The query cannot be read.\n");
    };
    let accepted = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let format = format.as_deref().unwrap_or(if accepted.contains("json") { "json" } else { "xml" });
    let settings = pages.shown_settings();
    match format {
        "xml" => ([(header::CONTENT_TYPE, "text/xml; charset=utf-8")], xml(settings)).into_response(),
        "json" => {
            let body = format!("{}\n", as_json(settings));
            ([(header::CONTENT_TYPE, "application/json; charset=utf-8")], body).into_response()
        }
        _ => text(StatusCode::BAD_REQUEST, "Bad format: there are xml and json.\n"),
    }
}

fn shown_value(setting: &ShownSetting) -> &str {
    let name = setting.description.name.to_lowercase();
    if MASKED.iter().any(|part| name.contains(part)) { "<masked>" } else { &setting.value }
}

fn xml(settings: &[ShownSetting]) -> String {
    let mut out =
        String::from("<?xml version=\"1.0\" encoding=\"UTF-8\" standalone=\"no\"?>\n<configuration>\n");
    for setting in settings {
        let (name, value) = (escaped(setting.description.name), escaped(shown_value(setting)));
        let source = escaped(setting.source);
        let _ = writeln!(
            out,
            "<property><name>{name}</name><value>{value}</value><final>false</final><source>{source}</source></property>"
        );
    }
    out.push_str("</configuration>\n");
    out
}

fn as_json(settings: &[ShownSetting]) -> Value {
    let property = |setting: &ShownSetting| {
        let (name, value) = (setting.description.name, shown_value(setting));
        json!({ "key": name, "value": value, "isFinal": false, "resource": setting.source })
    };
    json!({ "properties": settings.iter().map(property).collect::<Vec<_>>() })
}

/// For text between tags, and for values of attributes.
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // no document of XML 1.0 may have them
            control if control.is_control() && !"\n\t".contains(control) => out.push('\u{fffd}'),
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_become_markup() {
        assert_eq!(escaped("<a b=\"'&\u{1}"), "&lt;a b=&quot;&#39;&amp;\u{fffd}");
    }
}
