//! `/jmx`: beans as JSON, in the form of HBase's `JMXJsonServlet`.

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Value, json};

use super::beans::Bean;
use super::object_name::{ObjectName, is_like};
use super::{Shows, made, text};

const JSON: &str = "application/json; charset=utf8";
const ALL: &str = "*:*";

#[derive(Default, Deserialize)]
pub struct Parameters {
    /// A pattern of names.
    qry: Option<String>,
    /// `name::attribute`; both may be patterns.
    get: Option<String>,
    /// A pattern of names that are left out.
    excl: Option<String>,
    description: Option<String>,
    callback: Option<String>,
}

pub async fn answer<S: Shows>(
    State(pages): State<S>,
    parameters: Result<Query<Parameters>, QueryRejection>,
) -> Response {
    let Ok(Query(parameters)) = parameters else {
        return text(StatusCode::BAD_REQUEST, "The query cannot be read.\n");
    };
    if parameters.callback.is_some() {
        let reason =
            "The parameter callback (JSONP) is not supported: another site could read this port by it.\n";
        return text(StatusCode::BAD_REQUEST, reason);
    }
    made(move || {
        let (status, body) = match selected(&pages.beans(), &parameters) {
            Ok(body) => (StatusCode::OK, body),
            Err(body) => (StatusCode::BAD_REQUEST, body),
        };
        let mut body = serde_json::to_string_pretty(&body).expect("JSON values have text");
        body.push('\n');
        (status, [(header::CONTENT_TYPE, JSON), (header::X_CONTENT_TYPE_OPTIONS, "nosniff")], body)
            .into_response()
    })
    .await
}

fn error(message: impl Into<String>) -> Value {
    json!({ "result": "ERROR", "message": message.into() })
}

/// The beans that are asked for. The error is an answer as well.
fn selected(beans: &[Bean], parameters: &Parameters) -> Result<Value, Value> {
    let describe = parameters.description.as_deref() == Some("true");
    let (pattern, attribute) = match &parameters.get {
        Some(get) => match get.split_once("::") {
            Some((name, attribute)) if !attribute.is_empty() && !attribute.contains("::") => {
                (name, Some(attribute))
            }
            _ => return Err(error("query format is not as expected.")),
        },
        None => (parameters.qry.as_deref().unwrap_or(ALL), None),
    };
    let pattern = ObjectName::parse(pattern).map_err(error)?;
    let excluded = parameters.excl.as_deref().map(ObjectName::parse).transpose().map_err(error)?;
    let mut shown = Vec::new();
    for bean in beans {
        let name = ObjectName::parse(&bean.name).expect("names of beans are well formed");
        if !pattern.matches(&name) || excluded.as_ref().is_some_and(|excluded| excluded.matches(&name)) {
            continue;
        }
        let Some(attribute) = attribute else {
            shown.push(Value::Object(bean.json(|_| true, describe)));
            continue;
        };
        let patterns: Vec<&str> = attribute.split(',').collect();
        let is_wanted = |name: &str| patterns.iter().any(|pattern| is_wanted_by(pattern, name));
        let fields = bean.json(is_wanted, describe);
        if fields.len() == 2 && !attribute.contains('*') {
            return Err(error(format!("No attribute with name {attribute} was found.")));
        }
        shown.push(Value::Object(fields));
    }
    Ok(json!({ "beans": shown }))
}

/// HBase takes a pattern with a star for a regular expression, such as `[a-zA-Z_0-9]*memStoreSize`; of these the class with
/// a star, and `.*`, stand for any characters here.
fn is_wanted_by(pattern: &str, name: &str) -> bool {
    let mut glob = String::with_capacity(pattern.len());
    let mut rest = pattern;
    while let Some(begin) = rest.find('[') {
        let Some(end) = rest[begin..].find("]*") else { break };
        glob.push_str(&rest[..begin]);
        glob.push('*');
        rest = &rest[begin + end + 2..];
    }
    glob.push_str(rest);
    is_like(&glob.replace(".*", "*"), name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn beans() -> Vec<Bean> {
        let mut server = Bean::of_hbase("RegionServer", Some("Server"), "regionserver", "h");
        server.counter("readRequestCount", 7, "Reads");
        server.gauge("Namespace_default_table_t_metric_memStoreSize", 5, "");
        vec![
            server,
            Bean::of_hbase("RegionServer", Some("IPC"), "regionserver", "h"),
            Bean::of_platform("Runtime"),
        ]
    }

    fn ask(query: &str) -> Result<Value, Value> {
        let mut parameters = Parameters::default();
        let (name, value) = query.split_once('=').unwrap_or_default();
        let value = Some(value.to_string());
        match name {
            "qry" => parameters.qry = value,
            "get" => parameters.get = value,
            "excl" => parameters.excl = value,
            _ => parameters.description = value,
        }
        selected(&beans(), &parameters)
    }

    fn names(answer: Result<Value, Value>) -> usize {
        answer.unwrap()["beans"].as_array().unwrap().len()
    }

    #[test]
    fn beans_are_selected_as_by_hbase() {
        assert_eq!(names(ask("")), 3);
        assert_eq!(names(ask("qry=Hadoop:service=HBase,name=RegionServer,*")), 2);
        assert_eq!(names(ask("excl=Hadoop:*")), 1);
        assert_eq!(names(ask("qry=no:such=bean")), 0);
        let server = "get=Hadoop:service=HBase,name=RegionServer,sub=Server";
        assert_eq!(ask(&format!("{server}::readRequestCount")).unwrap()["beans"][0]["readRequestCount"], 7);
        let found = ask(&format!("{server}::[a-zA-z_0-9]*memStoreSize")).unwrap();
        assert_eq!(found["beans"][0].as_object().unwrap().len(), 3);
        let described = ask("description=true").unwrap();
        assert_eq!(described["beans"][0]["readRequestCount"], json!({ "description": "Reads", "value": 7 }));
        for bad in
            ["get=x", "get=a:b=1::", "get=a:b=1::x::y", "qry=x", "excl=x", &format!("{server}::nothing")]
        {
            assert_eq!(ask(bad).unwrap_err()["result"], "ERROR", "{bad}");
        }
    }
}
