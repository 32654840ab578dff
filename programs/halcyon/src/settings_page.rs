//! `docs/CONFIGURATION.md`: every property that the servers obey, from the tables that declare the settings. A
//! test holds the page to the code; run it with `HALCYON_WRITE_DOCS=1` to write the page anew.

use std::path::PathBuf;

use halcyon_env::Env;
use halcyon_settings::{Description, Effect};

use crate::settings::StandaloneSettings;

/// Topics in the order of the page.
const SECTIONS: [&str; 23] = [
    "Addresses and directories",
    "Calls",
    "Memory and cache",
    "Memstore and flush",
    "MOB files",
    "WAL",
    "Store files in HDFS",
    "Compaction",
    "Splits",
    "Tables and snapshots",
    "Store file trackers",
    "Encryption",
    "Cluster",
    "Normalizer",
    "Quotas",
    "Locks of clients",
    "Repairs of regions",
    "Places of regions",
    "Backups",
    "Coprocessors",
    "Region server groups",
    "Dead servers, for clients",
    "Traces",
];

const HEAD: &str = "# Configuration\n\n\
<!-- Written by a test of programs/halcyon (src/settings_page.rs): HALCYON_WRITE_DOCS=1 cargo test -p halcyon settings_page -->\n\n\
Settings come from defaults, then from `hbase-site.xml` in the directory that `--config` names, then from options.\n\
Settings of traces also come from variables of the environment, which count more than the file ([Traces](TRACING.md)).\n\
`halcyon standalone --print-settings` shows what is in force, and where each value comes from.\n\n\
- `${name}` in a value is resolved as Hadoop does: properties, Java's system properties, `${env.NAME}`, `${env.NAME:-text}`.\n\
- `<final>` and `<xi:include>` work. A property that has no effect is named on the standard error, with the reason.\n\
- A property or directory that needs Kerberos, ACLs, TLS, coprocessors that are not built in, replication or the like stops the start\n  \
  (exit code 78). `--accept-without NAME` accepts its loss.\n\
- Online: in force after `UpdateConfiguration` (`update_config`, `update_all_config` of the HBase shell). The others need\n  \
  a restart; an update names those that have changed.\n";

fn page() -> String {
    let all = StandaloneSettings::describe();
    let mut page = HEAD.to_string();
    for section in SECTIONS {
        page +=
            &format!("\n## {section}\n\n| property | unit | default | online | |\n|---|---|---|---|---|\n");
        for Description { name, unit, effect, text, default, .. } in
            all.iter().filter(|it| it.section == section)
        {
            let default = match default.as_deref() {
                None => "not set".to_string(),
                Some("") => "empty".to_string(),
                Some(value) => format!("`{value}`"),
            };
            let online = if *effect == Effect::Online { "yes" } else { "" };
            page += &format!("| `{name}` | {unit} | {default} | {online} | {text} |\n");
        }
    }
    page
}

#[test]
fn every_setting_has_one_name_and_a_section_of_the_page() {
    let all = StandaloneSettings::describe();
    for it in &all {
        assert_eq!(all.iter().filter(|other| other.name == it.name).count(), 1, "{}", it.name);
        assert!(SECTIONS.contains(&it.section), "{}", it.section);
        assert!(it.text.ends_with('.') && !it.unit.is_empty(), "{}", it.name);
        if let Some(default) = &it.default {
            assert_eq!(StandaloneSettings::default().set(it.name, default), Ok(true), "{}", it.name);
        }
    }
}

#[test]
fn the_page_says_what_the_code_does() {
    let path = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/CONFIGURATION.md"));
    let fs = Env::real().fs;
    if std::env::var_os("HALCYON_WRITE_DOCS").is_some() {
        fs.replace(&path, page().as_bytes()).expect("the docs are writable");
    }
    let written =
        fs.read(&path).map(|bytes| String::from_utf8(bytes).expect("the page is text")).unwrap_or_default();
    assert!(
        written == page(),
        "docs/CONFIGURATION.md is not up to date: run this test with HALCYON_WRITE_DOCS=1"
    );
}
