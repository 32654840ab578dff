//! Procedures: administrative actions that survive a crash.
//!
//! ```text
//! submit ─> waiting ─(locks free)─> prepare ─> record on disk ─> step 0 ─> step 1 ─> ... ─> record removed
//!                                     │ wrong request                │ error
//!                                     └─> the caller, nothing done   ├─ final, or aborted ─> undo ─> record removed
//!                                                                    ├─ a failed assertion ─> set aside
//!                                                                    └─ else ─> the same step again, after a pause
//! ```
//!
//! One that is set aside keeps its record and its locks and does nothing, also after a restart, until an administrator aborts or
//! bypasses it, or another version of the program starts. So does a record that cannot be read. What brings regions back after a death
//! is never set aside: after a failed assertion it is repeated, with a longer pause.
//!
//! The record names the step to run next, so a step may run twice and a step before it never runs again. What
//! must be the same both times (region ids, the descriptor's sequence) is decided in `prepare` and recorded.

mod assign_regions;
mod change_peer;
mod class;
mod clean_regions;
mod create_namespace;
mod create_table;
mod delete_namespace;
mod delete_snapshot;
mod delete_table;
mod disable_table;
mod enable_table;
mod engine;
mod fix_regions;
mod flush_table;
mod hold_lock;
mod job;
mod lock;
mod merge_regions;
mod modify_namespace;
mod modify_table;
mod modify_tracker;
mod new_regions;
mod parameters;
mod queue;
mod record;
mod restore_snapshot;
mod results;
mod server_crash;
mod set_state;
mod split_region;
mod table_regions;
mod take_snapshot;
mod times;
mod transit_region;
mod truncate_region;
mod truncate_table;
mod unreadable;
mod worker;

use halcyon_cell::{Error, Result};
use halcyon_rpc::RpcError;
use prost::Message;

use crate::state::MasterState;

pub(crate) use assign_regions::AssignRegions;
pub(crate) use change_peer::{ChangePeer, PeerChange};
pub(crate) use class::Class;
pub(crate) use clean_regions::CleanRegions;
pub(crate) use create_namespace::CreateNamespace;
pub(crate) use create_table::CreateTable;
pub(crate) use delete_namespace::DeleteNamespace;
pub(crate) use delete_snapshot::DeleteSnapshot;
pub(crate) use delete_table::DeleteTable;
pub(crate) use disable_table::DisableTable;
pub(crate) use enable_table::EnableTable;
pub(crate) use engine::{Engine, ProcedureStatus, Submission};
pub(crate) use fix_regions::FixRegions;
pub(crate) use flush_table::FlushTable;
pub(crate) use hold_lock::{CLASS as HOLD_LOCK_CLASS, HoldLock, RemoteLocks};
pub(crate) use lock::{Lock, Resource};
pub(crate) use merge_regions::MergeRegions;
pub(crate) use modify_namespace::ModifyNamespace;
pub(crate) use modify_table::{Change, ModifyTable};
pub(crate) use modify_tracker::ModifyTracker;
pub(crate) use parameters::Parameters;
pub(crate) use queue::ProcedureView;
pub use record::highest_epoch;
pub(crate) use record::{are_kept as are_records_kept, forget_records, records_dir};
pub(crate) use restore_snapshot::RestoreSnapshot;
pub(crate) use server_crash::ServerCrash;
pub(crate) use set_state::{SetState, StateChange};
pub(crate) use split_region::SplitRegion;
pub(crate) use take_snapshot::{CLASS_NAME as TAKE_SNAPSHOT_CLASS, TakeSnapshot};
pub use times::ProcedureTimes;
pub(crate) use transit_region::{RegionAction, TransitRegion};
pub(crate) use truncate_region::TruncateRegion;
pub(crate) use truncate_table::TruncateTable;

type Answer<T> = std::result::Result<T, RpcError>;

/// A step of a procedure.
pub(crate) struct Step<P> {
    /// As the log output, the info page and clients show it.
    pub(crate) name: &'static str,
    /// May find that a part or all of it was done before. An error of kind `Invalid` or `Corrupt` ends the procedure;
    /// any other repeats the step later.
    run: fn(&mut P, &MasterState) -> Result<()>,
}

const fn step<P>(name: &'static str, run: fn(&mut P, &MasterState) -> Result<()>) -> Step<P> {
    Step { name, run }
}

/// What a procedure does, in order. A record has the number of the step to run next, so the order never changes once
/// released.
pub(crate) trait HasSteps: Sized + 'static {
    fn steps(&self) -> &'static [Step<Self>];
}

/// The steps of any procedure, by number.
pub(crate) trait RunSteps {
    fn steps_count(&self) -> usize;

    /// `None` behind the last step.
    fn step_name(&self, step: usize) -> Option<&'static str>;

    /// Panics behind the last step.
    fn run(&mut self, core: &MasterState, step: usize) -> Result<()>;
}

impl<P: HasSteps> RunSteps for P {
    fn steps_count(&self) -> usize {
        self.steps().len()
    }

    fn step_name(&self, step: usize) -> Option<&'static str> {
        self.steps().get(step).map(|step| step.name)
    }

    fn run(&mut self, core: &MasterState, step: usize) -> Result<()> {
        (self.steps()[step].run)(self, core)
    }
}

/// One administrative action. Owned by one thread at a time.
pub(crate) trait Procedure: RunSteps + Send {
    /// The word in the record; never changes once released.
    fn kind(&self) -> &'static str;

    /// HBase's class for the same thing, which clients are shown.
    fn class_name(&self) -> &'static str;

    /// The word that HBase's metrics have for it, if they count it.
    fn metric(&self) -> Option<&'static str> {
        None
    }

    /// What clients are shown of it. `owner` asked for it.
    fn parameters(&self, owner: &str) -> Parameters;

    /// What no other procedure may touch meanwhile.
    fn locks(&self) -> Vec<Lock>;

    /// Checks the request and decides what the record keeps. The locks are held; nothing may be changed yet.
    fn prepare(&mut self, core: &MasterState) -> std::result::Result<(), RpcError>;

    /// Whether [`Procedure::prepare`] may run again after an error that may pass: what is to be checked cannot be read at times. Else
    /// that error is a refusal.
    fn can_be_checked_again(&self) -> bool {
        false
    }

    /// What [`decode`] needs to resume.
    fn payload(&self) -> Vec<u8>;

    /// Whether [`Procedure::undo`] leads back to the state before while this step has not ended: then an
    /// administrator may abort the procedure.
    fn can_undo(&self, _core: &MasterState, _step: usize) -> bool {
        false
    }

    /// Until when, in `Clock::monotonic_ns`, the next step is to wait, with the locks held; `None`: it may run. `id` is the
    /// number of the procedure.
    fn held_until(&self, _core: &MasterState, _id: u64) -> Option<u64> {
        None
    }

    /// As [`Procedure::held_until`], for the undo.
    fn undo_held_until(&self, _core: &MasterState) -> Option<u64> {
        None
    }

    /// Who goes first, and whether it is ever refused.
    fn class(&self, _core: &MasterState) -> Class {
        Class::Rest
    }

    /// Whether others may have its namespace for themselves while a step of it fails again and again. A step that runs again has it
    /// back. Not where the namespace might go with what the step still needs.
    fn yields_namespace(&self) -> bool {
        true
    }

    /// Whether hbase:meta may have a part of its table only because it has not ended.
    fn makes_or_deletes_table(&self) -> bool {
        false
    }

    /// What is to be done after it has ended well. A crash in between may lose them: the next master finds by itself what they
    /// are about.
    fn followers(&self, _core: &MasterState) -> Vec<Box<dyn Procedure>> {
        Vec::new()
    }

    /// Takes back what the steps did, after a final error or an abort. May run twice.
    fn undo(&mut self, _core: &MasterState) -> Result<()> {
        Ok(())
    }
}

/// Builds a procedure from its record.
pub(crate) fn decode(kind: &str, payload: &[u8]) -> Result<Box<dyn Procedure>> {
    Ok(match kind {
        create_table::KIND => Box::new(CreateTable::decode(payload)?),
        enable_table::KIND => Box::new(EnableTable::decode(payload)?),
        disable_table::KIND => Box::new(DisableTable::decode(payload)?),
        delete_table::KIND => Box::new(DeleteTable::decode(payload)?),
        truncate_table::KIND => Box::new(TruncateTable::decode(payload)?),
        modify_table::KIND => Box::new(ModifyTable::decode(payload)?),
        modify_tracker::KIND => Box::new(ModifyTracker::decode(payload)?),
        fix_regions::KIND => Box::new(FixRegions::decode(payload)?),
        set_state::KIND => Box::new(SetState::decode(payload)?),
        hold_lock::KIND => Box::new(HoldLock::decode(payload)?),
        flush_table::KIND => Box::new(FlushTable::decode(payload)?),
        transit_region::KIND => Box::new(TransitRegion::decode(payload)?),
        truncate_region::KIND => Box::new(TruncateRegion::decode(payload)?),
        split_region::KIND => Box::new(SplitRegion::decode(payload)?),
        merge_regions::KIND => Box::new(MergeRegions::decode(payload)?),
        clean_regions::KIND => Box::new(CleanRegions::decode(payload)?),
        take_snapshot::KIND => Box::new(TakeSnapshot::decode(payload)?),
        restore_snapshot::KIND => Box::new(RestoreSnapshot::decode(payload)?),
        delete_snapshot::KIND => Box::new(DeleteSnapshot::decode(payload)?),
        create_namespace::KIND => Box::new(CreateNamespace::decode(payload)?),
        modify_namespace::KIND => Box::new(ModifyNamespace::decode(payload)?),
        server_crash::KIND => Box::new(ServerCrash::decode(payload)?),
        assign_regions::KIND => Box::new(AssignRegions::decode(payload)?),
        change_peer::KIND => Box::new(ChangePeer::decode(payload)?),
        delete_namespace::KIND => Box::new(DeleteNamespace::decode(payload)?),
        other => return Err(Error::corrupt(format!("procedures of kind '{other}' are not known"))),
    })
}

/// Decodes a payload.
fn payload<M: Message + Default>(kind: &str, bytes: &[u8]) -> Result<M> {
    M::decode(bytes).map_err(|error| Error::corrupt(format!("payload of a {kind} procedure: {error}")))
}
