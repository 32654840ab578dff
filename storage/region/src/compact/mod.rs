//! Compaction: many files of a store become few, and what no reader may see any more goes.
//!
//! ```text
//! settings   hbase-site, table, family -> CompactionSettings
//! state      what is asked, what is known of the files, what is chosen
//! select     files of a store -> which, by the policy: ratio.rs, date_tiered.rs, stripe.rs; expired ones: expired.rs
//! run        Region::compact: expired files dropped, selection, rewrite, commit
//! rewrite    merge -> matcher -> one file, or one for each window of time or stripe of rows
//! ```
//!
//! Choosing is a function of what is known of the files; only `run` and `rewrite` touch a disk. A compaction asks
//! its [`CompactionControl`] after every mebibyte whether it goes on, which is also where the server's limit of
//! throughput makes it wait. One that was ended leaves nothing but the wish for it.

mod control;
mod date_tiered;
mod expired;
mod ratio;
mod rewrite;
mod run;
mod select;
mod settings;
mod state;
mod stripe;
mod stripe_settings;

pub use control::CompactionControl;
pub use run::{CompactionOutcome, MajorRows};
pub use settings::{CompactionPolicy, CompactionSettings, DateTieredSettings, OffPeakHours};
pub use state::CompactionRequest;
pub use stripe_settings::StripeSettings;

#[cfg(test)]
mod tests;
