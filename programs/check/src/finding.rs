//! Something that is wrong, and what to do about it.

use std::path::PathBuf;

use halcyon_client::TableState;
use halcyon_inspect::{Done, Output};
use halcyon_schema::{RegionInfo, ServerName, TableName};
use serde_json::json;

/// A change that loses nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Repair {
    /// Write `.regioninfo` as `hbase:meta` has it.
    WriteRegionInfo { path: PathBuf, region: RegionInfo },
    /// Move a reference or link that leads nowhere out of its store.
    MoveAside { path: PathBuf },
    /// What a running master is asked to do.
    Calls(Vec<Call>),
}

/// A call of a running master. All calls of one kind are made before those of the next, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    Bypass(u64),
    CreateNamespace(String),
    SetTableState(TableName, TableState),
    /// Writes the row of `hbase:meta` of a region that a server has open.
    WriteRow {
        region: RegionInfo,
        server: ServerName,
    },
    FixMeta,
    SetRegionState {
        region: String,
        state: &'static str,
    },
    CrashServer(ServerName),
    Unassign {
        region: String,
    },
    Assign {
        region: String,
        force: bool,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    /// Its name in `docs/CHECK.md`.
    pub kind: &'static str,
    pub table: Option<String>,
    /// What it is about, if `what` says more than that, such as for how long.
    pub subject: Option<String>,
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
            subject: None,
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

    pub(crate) fn with_calls(self, calls: impl Into<Vec<Call>>) -> Finding {
        self.with_repair(Repair::Calls(calls.into()))
    }

    pub(crate) fn about(self, subject: &str) -> Finding {
        Finding { subject: Some(subject.to_string()), ..self }
    }

    /// Two looks at a cluster have found the same thing.
    pub(crate) fn is_same(&self, other: &Finding) -> bool {
        let subject = |one: &Finding| one.subject.clone().unwrap_or_else(|| one.what.clone());
        self.kind == other.kind && subject(self) == subject(other)
    }

    pub(crate) fn calls(&self) -> &[Call] {
        match &self.repair {
            Some(Repair::Calls(calls)) => calls,
            _ => &[],
        }
    }

    pub(crate) fn print(&self, out: &mut Output<'_>) -> Done {
        let Finding { kind, table, what, advice, repair, is_repaired, failure, .. } = self;
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
