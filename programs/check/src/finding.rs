//! Something that is wrong, and what to do about it.

use std::path::PathBuf;

use halcyon_inspect::{Done, Output};
use halcyon_schema::RegionInfo;
use serde_json::json;

/// A change of files that loses nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Repair {
    /// Write `.regioninfo` as `hbase:meta` has it.
    WriteRegionInfo { path: PathBuf, region: RegionInfo },
    /// Move a reference or link that leads nowhere out of its store.
    MoveAside { path: PathBuf },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    /// Its name in `docs/CHECK.md`.
    pub kind: &'static str,
    pub table: Option<String>,
    /// Table, region or file, and what is wrong with it.
    pub what: String,
    /// What would be done, or which command does it.
    pub advice: String,
    pub repair: Option<Repair>,
    pub is_repaired: bool,
    /// Why a repair did not work.
    pub failure: Option<String>,
}

impl Finding {
    pub(crate) fn new(
        kind: &'static str,
        table: Option<&str>,
        what: impl Into<String>,
        advice: impl Into<String>,
    ) -> Finding {
        Finding {
            kind,
            table: table.map(str::to_string),
            what: what.into(),
            advice: advice.into(),
            repair: None,
            is_repaired: false,
            failure: None,
        }
    }

    pub(crate) fn with_repair(self, repair: Repair) -> Finding {
        Finding { repair: Some(repair), ..self }
    }

    pub(crate) fn print(&self, out: &mut Output<'_>) -> Done {
        let Finding { kind, table, what, advice, repair, is_repaired, failure } = self;
        let object = || {
            json!({
                "kind": kind, "table": table, "message": what, "advice": advice,
                "repairable": repair.is_some(), "repaired": is_repaired, "failure": failure,
            })
        };
        out.say("finding", object, || {
            let state = if *is_repaired { "REPAIRED" } else { "FOUND" };
            let option = if repair.is_some() && !is_repaired { " (--repair)" } else { "" };
            let failure = failure.as_ref().map(|why| format!("\n  not repaired: {why}")).unwrap_or_default();
            format!("{state} {kind}: {what}\n  do: {advice}{option}{failure}")
        })
    }
}
