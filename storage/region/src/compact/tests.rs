//! Selections in `testdata/select/`; regenerate the expected output with `REWRITE=1` and read it by eye.
//!
//! ```text
//! select policy=exploring min=3 now=16 major user ...     settings of the store; then its files, oldest first
//! 30 ts=0..1 major created=5 reference bulk major-only entries=0 stripe=1
//! ----
//! 0 2..4 -> all, cut at 12
//! ```

use std::collections::BTreeMap;

use bytes::Bytes;

use super::expired::expired;
use super::select::select;
use super::settings::{CompactionPolicy, CompactionSettings};
use super::state::{CompactionRequest, Drops, FileState, Selection, StoreState};
use crate::store::{Cut, Stripes};

#[test]
fn selections() {
    datadriven::walk("tests/select", |file| {
        file.run(|case| {
            let words: BTreeMap<&str, &str> =
                case.args.iter().map(|arg| (&arg.0[..], arg.1.first().map_or("", String::as_str))).collect();
            let files: Vec<FileState> = case.input.lines().flat_map(files_of_line).collect();
            match case.directive.as_str() {
                "select" => show(&choose(&words, &files)),
                "expired" => with_store(&words, &files, |store| format!("{:?}\n", expired(store))),
                other => panic!("unknown directive {other}"),
            }
        });
    });
}

/// One file with its properties; or, without any, several sizes.
fn files_of_line(line: &str) -> Vec<FileState> {
    let words: Vec<&str> = line.split_whitespace().collect();
    if words.iter().all(|word| word.bytes().all(|byte| byte.is_ascii_digit())) {
        return words.iter().map(|word| file(word)).collect();
    }
    let mut file = file(words[0]);
    for word in &words[1..] {
        match word.split_once('=').unwrap_or((word, "")) {
            ("ts", range) => {
                let (oldest, newest) = range.split_once("..").expect("a range");
                file.time_range = Some((oldest.parse().unwrap(), newest.parse().unwrap()));
            }
            ("stripe", number) => file.stripe = Some(number.parse().unwrap()),
            ("created", at) => file.created_ms = at.parse().unwrap(),
            ("entries", count) => file.entries = count.parse().unwrap(),
            ("major", _) => file.major = true,
            ("major-only", _) => file.major_only = true,
            ("reference", _) => file.reference = true,
            ("bulk", _) => file.bulk_loaded = true,
            (other, _) => panic!("unknown property {other}"),
        }
    }
    vec![file]
}

fn file(len: &str) -> FileState {
    let len_bytes = len.parse().expect("a size");
    FileState { len_bytes, entries: 1, created_ms: 1, ..FileState::default() }
}

fn choose(words: &BTreeMap<&str, &str>, files: &[FileState]) -> Option<Selection> {
    let request = CompactionRequest { major: words.contains_key("major"), user: words.contains_key("user") };
    with_store(words, files, |store| select(store, request))
}

fn with_store<T>(
    words: &BTreeMap<&str, &str>,
    files: &[FileState],
    ask: impl FnOnce(&StoreState<'_>) -> T,
) -> T {
    // HBase's tests of its policies run with these.
    let mut settings = CompactionSettings {
        files_min: 3,
        files_max: 5,
        min_size_bytes: Some(10),
        max_size_bytes: 2100,
        ratio: 1.0,
        blocking_files_count: 10,
        major_period_ms: 0,
        ..CompactionSettings::default()
    };
    let number = |name: &str| words.get(name).map(|text| text.parse::<i64>().expect("a number"));
    for (&name, &value) in words {
        let property = match name {
            "min" => "hbase.hstore.compaction.min",
            "max" => "hbase.hstore.compaction.max",
            "ratio" => "hbase.hstore.compaction.ratio",
            "ratio-offpeak" => "hbase.hstore.compaction.ratio.offpeak",
            "min-size" => "hbase.hstore.compaction.min.size",
            "max-size" => "hbase.hstore.compaction.max.size",
            "max-size-offpeak" => "hbase.hstore.compaction.max.size.offpeak",
            "offpeak-start" => "hbase.offpeak.start.hour",
            "offpeak-end" => "hbase.offpeak.end.hour",
            "blocking" => "hbase.hstore.blockingStoreFiles",
            "max-age" => "hbase.hstore.compaction.date.tiered.max.storefile.age.millis",
            "incoming-min" => "hbase.hstore.compaction.date.tiered.incoming.window.min",
            "base" => "hbase.hstore.compaction.date.tiered.base.window.millis",
            "per-tier" => "hbase.hstore.compaction.date.tiered.windows.per.tier",
            "max-tier-age" => "hbase.hstore.compaction.date.tiered.max.tier.age.millis",
            "single" => "hbase.hstore.compaction.date.tiered.single.output.for.minor.compaction",
            "window-policy" => "hbase.hstore.compaction.date.tiered.window.policy.class",
            "split-size" => "hbase.store.stripe.sizeToSplit",
            "parts" => "hbase.store.stripe.splitPartCount",
            "initial" => "hbase.store.stripe.initialStripeCount",
            "stripe-min" => "hbase.store.stripe.compaction.minFiles",
            "stripe-max" => "hbase.store.stripe.compaction.maxFiles",
            "level0-min" => "hbase.store.stripe.compaction.minFilesL0",
            "stripes" | "policy" | "now" | "ttl" | "period" | "major" | "user" => continue,
            other => panic!("unknown setting {other}"),
        };
        assert!(settings.set(property, value).expect("a value that makes sense"));
    }
    let row = |row: &str| Bytes::copy_from_slice(row.trim_matches('_').as_bytes()); // _: the first stripe's
    let starts: Vec<Bytes> =
        words.get("stripes").map_or_else(Vec::new, |text| text.split('.').map(row).collect());
    ask(&StoreState {
        files,
        stripes: &Stripes::with_starts(starts),
        settings: &settings,
        policy: match words.get("policy").copied().unwrap_or("exploring") {
            "exploring" => CompactionPolicy::Exploring,
            "ratio" => CompactionPolicy::RatioBased,
            "fifo" => CompactionPolicy::Fifo,
            "date-tiered" => CompactionPolicy::DateTiered,
            "stripe" => CompactionPolicy::Stripe,
            other => panic!("unknown policy {other}"),
        },
        now_ms: number("now").unwrap_or(1_000),
        hour_of_day: number("now").unwrap_or(1_000).div_euclid(3_600_000).rem_euclid(24),
        file_ttl_ms: number("ttl"),
        major_period_ms: number("period").unwrap_or(0),
        flush_size_bytes: 10,
    })
}

fn show(selection: &Option<Selection>) -> String {
    let Some(selection) = selection else { return "nothing\n".to_string() };
    let files: Vec<String> = selection.files.iter().map(usize::to_string).collect();
    let mut out = files.join(" ");
    if selection.all {
        out.push_str(" (all)");
    }
    let rows = |rows: &[Bytes]| -> String {
        let rows: Vec<String> = rows.iter().map(|row| row.escape_ascii().to_string()).collect();
        rows.join("|")
    };
    match &selection.cut {
        Cut::AtTimes(times) if times.len() > 1 => {
            let cuts: Vec<String> = times[1..].iter().map(i64::to_string).collect();
            out.push_str(&format!(" cut at {}", cuts.join(" ")));
        }
        Cut::AtTimes(_) => {}
        Cut::AtRows { starts, always } => {
            out.push_str(&format!(" into {} always {always:?}", rows(starts)));
        }
        Cut::BySize { span: (start, end), cells, count_max } => {
            let cells = if *cells == u64::MAX { "all".to_string() } else { cells.to_string() };
            let span = rows(&[start.clone(), end.clone()]);
            out.push_str(&format!(" into {count_max} of {cells} over {span}"));
        }
    }
    match &selection.drops {
        Drops::Rows((start, end)) => {
            out.push_str(&format!(" major {}", rows(&[start.clone(), end.clone()])));
        }
        Drops::Nothing | Drops::Everything => assert_eq!(selection.all, selection.drops == Drops::Everything),
    }
    out + "\n"
}
