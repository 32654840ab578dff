//! A workload as YCSB's property files describe it.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::str::FromStr;

/// Properties; later ones win.
#[derive(Clone, Debug, Default)]
pub(super) struct Properties {
    values: BTreeMap<String, String>,
}

impl Properties {
    /// One of the core workloads, `a` to `f`, of a thousand records.
    pub fn core(name: &str) -> Option<Properties> {
        let proportions: &[(&str, &str)] = match name {
            "a" => &[("readproportion", "0.5"), ("updateproportion", "0.5")],
            "b" => &[("readproportion", "0.95"), ("updateproportion", "0.05")],
            "c" => &[("readproportion", "1"), ("updateproportion", "0")],
            "d" => &[
                ("readproportion", "0.95"),
                ("updateproportion", "0"),
                ("insertproportion", "0.05"),
                ("requestdistribution", "latest"),
            ],
            "e" => &[
                ("readproportion", "0"),
                ("updateproportion", "0"),
                ("scanproportion", "0.95"),
                ("insertproportion", "0.05"),
                ("maxscanlength", "100"),
            ],
            "f" => {
                &[("readproportion", "0.5"), ("updateproportion", "0"), ("readmodifywriteproportion", "0.5")]
            }
            _ => return None,
        };
        let mut properties = Properties::default();
        properties.set("requestdistribution", "zipfian");
        proportions.iter().for_each(|(key, value)| properties.set(key, value));
        properties.set("recordcount", "1000");
        properties.set("operationcount", "1000");
        Some(properties)
    }

    pub fn set(&mut self, key: &str, value: &str) {
        self.values.insert(key.to_string(), value.to_string());
    }

    /// Adds `key=value` lines (`java.util.Properties`, without its escapes and continued lines).
    pub fn add_file(&mut self, text: &str) -> Result<(), String> {
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with(['#', '!']) {
                continue;
            }
            self.add(line).map_err(|error| format!("line {}: {error}", number + 1))?;
        }
        Ok(())
    }

    /// Adds `key=value`.
    pub fn add(&mut self, line: &str) -> Result<(), String> {
        let (key, value) = line.split_once('=').ok_or_else(|| format!("'{line}' is no key=value"))?;
        self.set(key.trim(), value.trim());
        Ok(())
    }

    pub fn text<'a>(&'a self, key: &str, default: &'a str) -> &'a str {
        self.values.get(key).map_or(default, String::as_str)
    }

    pub fn get<T: FromStr<Err: Display>>(&self, key: &str, default: T) -> Result<T, String> {
        match self.values.get(key) {
            None => Ok(default),
            Some(text) => text.parse().map_err(|error| format!("{key}={text}: {error}")),
        }
    }

    pub fn all(&self) -> &BTreeMap<String, String> {
        &self.values
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_read_and_later_values_win() {
        let mut properties = Properties::core("d").unwrap();
        properties
            .add_file("# a comment\n\n readproportion = 0.9\nworkload=site.ycsb.workloads.CoreWorkload\n")
            .unwrap();
        assert_eq!(properties.get("readproportion", 0.0), Ok(0.9));
        assert_eq!(properties.text("requestdistribution", "uniform"), "latest");
        assert_eq!(properties.get("fieldcount", 10), Ok(10));
        properties.add("recordcount=many").unwrap();
        assert!(properties.get("recordcount", 1u64).unwrap_err().contains("recordcount=many"));
        assert!(properties.add_file("nothing").unwrap_err().contains("line 1"));
        assert!(Properties::core("g").is_none());
    }

    #[test]
    fn proportions_of_the_core_workloads_are_whole() {
        for name in ["a", "b", "c", "d", "e", "f"] {
            let properties = Properties::core(name).unwrap();
            let kinds = ["read", "update", "insert", "scan", "readmodifywrite"];
            let sum: f64 =
                kinds.iter().map(|kind| properties.get(&format!("{kind}proportion"), 0.0).unwrap()).sum();
            assert!((sum - 1.0).abs() < 1e-9, "{name}: {sum}");
        }
    }
}
