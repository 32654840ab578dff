//! Beans: named groups of attributes, as JMX has them.

use halcyon_rpc::CallTimesSnapshot;
use serde_json::{Map, Value, json};

use super::windows::Windows;

/// A group of attributes.
#[derive(Clone, Debug)]
pub struct Bean {
    pub name: String,
    /// HBase's class of the bean, or name of its source of metrics.
    pub kind: String,
    /// Name of the source in `/prometheus`; empty: it is not there.
    pub record: &'static str,
    pub attributes: Vec<Attribute>,
}

#[derive(Clone, Debug)]
pub struct Attribute {
    pub name: String,
    pub value: Value,
    pub help: &'static str,
    pub is_counter: bool,
}

/// Windows and the moment at which they are looked at.
pub struct WindowsNow<'w> {
    pub windows: &'w Windows,
    pub now_ns: u64,
}

/// Shares of histograms, with the endings that HBase gives them.
const PERCENTILES: [(&str, f64); 10] = [
    ("min", 0.0),
    ("max", 1.0),
    ("25th_percentile", 0.25),
    ("median", 0.5),
    ("75th_percentile", 0.75),
    ("90th_percentile", 0.9),
    ("95th_percentile", 0.95),
    ("98th_percentile", 0.98),
    ("99th_percentile", 0.99),
    ("99.9th_percentile", 0.999),
];

impl Bean {
    /// A bean of HBase's metrics: `Hadoop:service=HBase,name=RegionServer,sub=Server`.
    pub fn of_hbase(name: &str, sub: Option<&'static str>, context: &str, host: &str) -> Bean {
        let sub_text = sub.map(|sub| format!(",sub={sub}")).unwrap_or_default();
        let mut bean = Bean {
            name: format!("Hadoop:service=HBase,name={name}{sub_text}"),
            kind: format!("{name}{sub_text}"),
            record: sub.unwrap_or("JvmMetrics"),
            attributes: Vec::new(),
        };
        bean.tag("Context", context);
        bean.tag("Hostname", host);
        bean
    }

    /// A bean of the platform: `java.lang:type=Runtime`.
    pub fn of_platform(kind: &str) -> Bean {
        let (name, kind) = (format!("java.lang:type={kind}"), format!("halcyon.{kind}"));
        Bean { name, kind, record: "", attributes: Vec::new() }
    }

    pub fn tag(&mut self, name: &str, value: &str) {
        self.put(format!("tag.{name}"), json!(value), "", false);
    }

    pub fn gauge(&mut self, name: impl Into<String>, value: impl Into<Value>, help: &'static str) {
        self.put(name.into(), value.into(), help, false);
    }

    pub fn counter(&mut self, name: impl Into<String>, value: u64, help: &'static str) {
        self.put(name.into(), json!(value), help, true);
    }

    /// Number since the start, and mean, extremes and percentiles of the last window, in milliseconds. All but number and
    /// mean are the upper bounds of their buckets, which are half a doubling wide.
    pub fn times(
        &mut self,
        windows: &WindowsNow<'_>,
        name: &str,
        times: &CallTimesSnapshot,
        help: &'static str,
    ) {
        let recent = windows.windows.recent(&format!("{}/{name}", self.name), windows.now_ns, times);
        self.counter(format!("{name}_num_ops"), times.count, help);
        self.gauge(format!("{name}_mean"), mean_ms(&recent), help);
        for (ending, share) in PERCENTILES {
            if let Some(ms) = percentile_ms(&recent, share) {
                self.gauge(format!("{name}_{ending}"), ms, help);
            }
        }
    }

    /// Number and mean since the start, in milliseconds: of what is too rare for windows.
    pub fn mean(&mut self, name: &str, times: &CallTimesSnapshot, help: &'static str) {
        self.counter(format!("{name}_num_ops"), times.count, help);
        self.gauge(format!("{name}_mean"), mean_ms(times), help);
    }

    fn put(&mut self, name: String, value: Value, help: &'static str, is_counter: bool) {
        self.attributes.push(Attribute { name, value, help, is_counter });
    }

    /// As HBase's servlet writes it: the attributes that are wanted, with descriptions or without.
    pub fn json(&self, is_wanted: impl Fn(&str) -> bool, describe: bool) -> Map<String, Value> {
        let mut fields = Map::new();
        fields.insert("name".to_string(), json!(self.name));
        fields.insert("modelerType".to_string(), json!(self.kind));
        for Attribute { name, value, help, .. } in self.attributes.iter().filter(|it| is_wanted(&it.name)) {
            let value = match describe && !help.is_empty() {
                true => json!({ "description": help, "value": value }),
                false => value.clone(),
            };
            fields.insert(name.clone(), value);
        }
        fields
    }
}

fn mean_ms(times: &CallTimesSnapshot) -> f64 {
    if times.count == 0 { 0.0 } else { times.sum_seconds * 1000.0 / times.count as f64 }
}

/// Upper bound of the bucket in which the share ends; `None` if that is the last one. 0 if there are no calls.
fn percentile_ms(times: &CallTimesSnapshot, share: f64) -> Option<f64> {
    if times.count == 0 {
        return Some(0.0);
    }
    let wanted = (times.count as f64 * share).ceil().max(1.0) as u64;
    let found = times.up_to.iter().find(|(_, count)| *count >= wanted)?;
    Some(found.0 * 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_has_what_is_known() {
        let mut bean = Bean::of_hbase("RegionServer", Some("IPC"), "regionserver", "h");
        let up_to = vec![(0.001, 90), (0.002, 99), (0.004, 99)];
        let windows = WindowsNow { windows: &Windows::default(), now_ns: 0 };
        bean.times(&windows, "T", &CallTimesSnapshot { up_to, count: 100, sum_seconds: 1.5 }, "help");
        let fields = bean.json(|_| true, false);
        assert_eq!(fields["name"], "Hadoop:service=HBase,name=RegionServer,sub=IPC");
        assert_eq!((&fields["T_num_ops"], &fields["T_mean"]), (&json!(100), &json!(15.0)));
        assert_eq!((&fields["T_90th_percentile"], &fields["T_95th_percentile"]), (&json!(1.0), &json!(2.0)));
        assert_eq!(fields["T_min"], json!(1.0));
        assert!(!fields.contains_key("T_max"), "it lies beyond the last bucket");
        assert!(!fields.contains_key("T_99.9th_percentile"), "it lies beyond the last bucket");
        let one = bean.json(|name| name == "T_mean", true);
        assert_eq!(one["T_mean"], json!({ "description": "help", "value": 15.0 }));
        assert_eq!(one.len(), 3);
    }
}
