//! Timelines of recoveries.

use halcyon_master::{RECOVERIES_MAX, Recovery, RecoveryKind};
use serde::{Deserialize, Serialize};

use super::picture;
use crate::cluster::{Picture, kind_text, noticed_text};
use crate::console::api::Refused;
use crate::console::{Console, Role};

const LIMIT_DEFAULT: usize = 25;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    Server,
    FormerMaster,
    Takeover,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameters {
    kind: Option<Kind>,
    limit: Option<usize>,
    offset: Option<usize>,
}

/// A part of a recovery; parts may overlap.
#[derive(Debug, PartialEq, Serialize)]
struct Phase {
    phase: &'static str,
    begin_ms: i64,
    /// `null`: it is under way.
    end_ms: Option<i64>,
    text: String,
}

#[derive(Debug, Serialize)]
struct Timeline {
    number: u64,
    kind: &'static str,
    /// The dead server; of a takeover the master before.
    server: String,
    /// Who recovered it, or took over.
    master: String,
    epoch: u64,
    noticed: &'static str,
    heard_ms: Option<i64>,
    noticed_ms: i64,
    joined_ms: Option<i64>,
    fenced_ms: Option<i64>,
    meta_opened_ms: Option<i64>,
    split_ms: Option<i64>,
    first_opened_ms: Option<i64>,
    last_opened_ms: Option<i64>,
    ended_ms: Option<i64>,
    /// From the notice to the end, or to now.
    took_ms: i64,
    wals_count: u64,
    wal_bytes: u64,
    regions_count: u64,
    opened_count: u64,
    phases: Vec<Phase>,
}

#[derive(Debug, Serialize)]
pub struct Recoveries {
    now_ms: i64,
    /// As many are kept.
    kept_max: usize,
    /// All that were asked for, those that are left out too.
    count: usize,
    /// The newest first.
    recoveries: Vec<Timeline>,
}

pub fn recoveries(console: &Console, _: Role, parameters: Parameters) -> Result<Recoveries, Refused> {
    answer(&*picture(console)?, &parameters)
}

pub(super) fn answer(picture: &Picture, asked: &Parameters) -> Result<Recoveries, Refused> {
    let limit = asked.limit.unwrap_or(LIMIT_DEFAULT);
    if !(1..=RECOVERIES_MAX).contains(&limit) {
        return Err(Refused::invalid(format!("limit: {limit} is not between 1 and {RECOVERIES_MAX}")));
    }
    let is_wanted = |it: &&Recovery| match asked.kind {
        None => true,
        Some(Kind::Server) => it.kind() == RecoveryKind::Server,
        Some(Kind::FormerMaster) => it.kind() == RecoveryKind::FormerMaster,
        Some(Kind::Takeover) => it.kind() == RecoveryKind::Takeover,
    };
    let wanted: Vec<&Recovery> = picture.recoveries.iter().filter(is_wanted).collect();
    let shown = wanted.iter().skip(asked.offset.unwrap_or(0)).take(limit);
    let recoveries = shown.map(|it| timeline(it, picture.at_ms)).collect();
    Ok(Recoveries { now_ms: picture.at_ms, kept_max: RECOVERIES_MAX, count: wanted.len(), recoveries })
}

fn timeline(it: &Recovery, now_ms: i64) -> Timeline {
    Timeline {
        number: it.number,
        kind: kind_text(it.kind()),
        server: it.server.clone(),
        master: it.master.clone(),
        epoch: it.epoch,
        noticed: noticed_text(it),
        heard_ms: it.heard_ms,
        noticed_ms: it.noticed_ms,
        joined_ms: it.joined_ms,
        fenced_ms: it.fenced_ms,
        meta_opened_ms: it.meta_opened_ms,
        split_ms: it.split_ms,
        first_opened_ms: it.first_opened_ms,
        last_opened_ms: it.last_opened_ms,
        ended_ms: it.ended_ms,
        took_ms: (it.ended_ms.unwrap_or(now_ms) - it.noticed_ms).max(0),
        wals_count: it.wals_count,
        wal_bytes: it.wal_bytes,
        regions_count: it.regions_count,
        opened_count: it.opened_count,
        phases: phases(it),
    }
}

/// Each part begins where the one before has ended. Those that did not happen are left out.
fn phases(it: &Recovery) -> Vec<Phase> {
    let mut phases = Vec::new();
    let mut add = |phase, begin_ms: i64, end_ms: Option<i64>, text: String| {
        phases.push(Phase { phase, begin_ms, end_ms: end_ms.map(|end_ms| end_ms.max(begin_ms)), text });
    };
    if it.kind() == RecoveryKind::Takeover {
        return phases_of_takeover(it);
    }
    if let Some(heard_ms) = it.heard_ms {
        add("detect", heard_ms, Some(it.noticed_ms), "from its last report to the notice".to_string());
    }
    let is_over = it.ended_ms.is_some();
    if it.fenced_ms.is_some() || !is_over {
        add("fence", it.noticed_ms, it.fenced_ms, "its WAL directory is renamed".to_string());
    }
    let Some(fenced_ms) = it.fenced_ms else { return phases };
    if let Some(meta_ms) = it.meta_opened_ms {
        let text = "hbase:meta: its WALs are split, and it is opened elsewhere".to_string();
        add("meta", fenced_ms, Some(meta_ms), text);
    }
    let split_begin_ms = it.meta_opened_ms.unwrap_or(fenced_ms);
    // Until its regions are named, WALs of `hbase:meta` may be all that is split.
    let split_ms = it.split_ms.filter(|_| is_over || it.regions_count > 0);
    add("split", split_begin_ms, split_ms, format!("{} WALs, {} bytes", it.wals_count, it.wal_bytes));
    if let Some(split_ms) = split_ms.filter(|_| it.regions_count > 0) {
        let text = format!("{} of {} regions", it.opened_count, it.regions_count);
        add("open", split_ms.max(split_begin_ms), it.ended_ms, text);
    }
    phases
}

/// Fences and splits of what is found, then `hbase:meta`, then the regions that are open nowhere.
fn phases_of_takeover(it: &Recovery) -> Vec<Phase> {
    let mut phases = Vec::new();
    let mut at_ms = it.noticed_ms;
    let steps = [
        ("join", it.joined_ms, "region servers are looked for".to_string()),
        ("fence", it.fenced_ms, "the first WALs of what is dead are taken away".to_string()),
        ("split", it.split_ms, format!("{} WALs, {} bytes of dead servers", it.wals_count, it.wal_bytes)),
        ("meta", it.meta_opened_ms, "hbase:meta is open".to_string()),
        ("open", it.ended_ms, format!("tables are read, {} regions are opened", it.opened_count)),
    ];
    for (phase, end_ms, text) in steps {
        let Some(end_ms) = end_ms else { continue };
        phases.push(Phase { phase, begin_ms: at_ms, end_ms: Some(end_ms.max(at_ms)), text });
        at_ms = end_ms.max(at_ms);
    }
    if it.ended_ms.is_none() {
        let text = "the cluster is being taken over".to_string();
        phases.push(Phase { phase: "open", begin_ms: at_ms, end_ms: None, text });
    }
    phases
}
