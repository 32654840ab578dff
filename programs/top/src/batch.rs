//! Text and JSON for scripts.

use std::io::{self, Write};
use std::time::Duration;

use halcyon_client::{Cluster, ClusterMetrics};
use halcyon_env::Clock;
use serde_json::{Map, Value as Json, json};

use crate::args::TopArgs;
use crate::rates::Rates;
use crate::records::Record;
use crate::sampling::sample;
use crate::view::{View, summary};

/// How often the first rates are looked for before they are printed as unknown. A server may be too new to have reported
/// twice.
const LOOKS_MAX: usize = 3;

/// Prints the given number of outputs, or until the output is closed.
pub async fn run(args: &TopArgs, view: &View, cluster: &Cluster, clock: &dyn Clock) -> Result<(), String> {
    let delay = Duration::from_secs(args.delay);
    let mut rates = Rates::default();
    rates.update(&sample(cluster).await?);
    let mut left = args.iterations.unwrap_or(u64::MAX);
    let mut looks = 0;
    while left > 0 {
        tokio::time::sleep(delay).await;
        let metrics = sample(cluster).await?;
        rates.update(&metrics);
        looks += 1;
        if !rates.is_known() && looks < LOOKS_MAX && metrics.regions_count() > 0 {
            continue;
        }
        let now_ms = clock.now_ms();
        let text =
            if args.json { json_line(view, &metrics, &rates, now_ms) } else { text(view, &metrics, &rates) };
        match io::stdout().write_all(text.as_bytes()).and_then(|()| io::stdout().flush()) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()), // `| head`
            written => written.map_err(|error| format!("standard output: {error}"))?,
        }
        left -= 1;
    }
    Ok(())
}

/// Summary, headings and records, with an empty line at the end.
pub fn text(view: &View, metrics: &ClusterMetrics, rates: &Rates) -> String {
    let records = view.records(metrics, rates);
    let widths = view.widths(&records);
    let mut out = summary(metrics, rates).join("\n") + "\n\n";
    let headings: Vec<String> = view.fields().iter().map(|field| field.name().to_string()).collect();
    push_line(&mut out, view, &widths, &headings);
    for record in &records {
        let values =
            view.fields().iter().map(|field| record.value(*field).map_or(String::new(), ToString::to_string));
        push_line(&mut out, view, &widths, &values.collect::<Vec<_>>());
    }
    out + "\n"
}

/// Text to the left, numbers to the right.
fn push_line(out: &mut String, view: &View, widths: &[usize], values: &[String]) {
    let mut line = String::new();
    for ((field, width), value) in view.fields().iter().zip(widths).zip(values) {
        match field.is_text() {
            true => line.push_str(&format!("{value:<width$}  ")),
            false => line.push_str(&format!("{value:>width$}  ")),
        }
    }
    out.push_str(line.trim_end());
    out.push('\n');
}

/// One object in one line.
pub fn json_line(view: &View, metrics: &ClusterMetrics, rates: &Rates, now_ms: i64) -> String {
    let of_record = |record: &Record| {
        let value =
            |field: &crate::fields::Field| Some((field.key().to_string(), record.value(*field)?.json()));
        Json::Object(view.fields().iter().filter_map(value).collect::<Map<_, _>>())
    };
    let records: Vec<Json> = view.records(metrics, rates).iter().map(of_record).collect();
    let line = json!({
        "time_ms": now_ms,
        "version": metrics.hbase_version,
        "cluster": metrics.cluster_id,
        "servers_count": metrics.servers.len(),
        "dead_servers_count": metrics.dead_servers.len(),
        "regions_count": metrics.regions_count(),
        "regions_in_transition_count": metrics.regions_in_transition.len(),
        "mode": view.mode.name(),
        "records": records,
    });
    format!("{line}\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Mode;
    use crate::records::tests::example;
    use crate::view::tests::view;

    #[test]
    fn text_has_columns() {
        let (metrics, rates) = example(3000);
        let text = text(&view("-m tables --fields NAMESPACE,TABLE,#REQ/S,SF"), &metrics, &rates);
        let table = text.split_once("\n\n").unwrap().1;
        let expected = "NAMESPACE  TABLE   #REQ/S     SF\n\
                        default    orders     410  100MB\n\
                        ns         log         50   50MB\n\n";
        assert_eq!(table, expected);
    }

    #[test]
    fn json_is_one_line_with_numbers_and_unknown_rates_are_null() {
        let (metrics, rates) = example(3000);
        for mode in Mode::ALL {
            let mut view = view("");
            view.set_mode(mode);
            let line = json_line(&view, &metrics, &rates, 77);
            assert_eq!(line.matches('\n').count(), 1);
            let parsed: Json = serde_json::from_str(&line).unwrap();
            assert_eq!((&parsed["mode"], &parsed["time_ms"]), (&json!(mode.name()), &json!(77)));
            assert!(parsed["records"][0]["requests_per_second"].as_f64().unwrap() > 1.0, "{line}");
        }
        let line = json_line(&view("-m tables --fields TABLE,#REQ/S,#SF"), &metrics, &Rates::default(), 0);
        let parsed: Json = serde_json::from_str(&line).unwrap();
        let first = json!({ "table": "log", "requests_per_second": null, "store_files_count": 3 });
        assert!(parsed["records"].as_array().unwrap().contains(&first), "{line}");
    }
}
