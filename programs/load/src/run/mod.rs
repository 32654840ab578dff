//! Running a load: clients, their pace, what they record, and what is told of it.
//!
//! - `recorder.rs`: latencies and counts of one client, gathered each second
//! - `slow.rs`: the operations that took too long, one by one
//! - `pace.rs`: when an operation should begin
//! - `steady.rs`: when a warm-up has reached its rate
//! - `driver.rs`: the clients as tasks, until all is done, somebody fails, or Ctrl-C
//! - `progress.rs`: how it goes on, on standard error; `report.rs`: how it went, as text and as JSON
//! - `machine.rs`: processor time, and what the machine is
//!
//! *Latency* is counted from the moment an operation should have begun. With a rate that is its place in the plan,
//! whatever the operations before it took; without one it is the moment it does begin, and then a server that stands
//! still is seen by as many operations as there are clients, not by those that would have come.
//!
//! *Warm-up*: the clients are at work, and nothing of it is in the result. Operations count when they are done, latencies when
//! they should have begun: one that began during the warm-up counts for throughput and has no latency. Wrong answers of the
//! warm-up count: a server may not be wrong while it warms up.

mod driver;
mod machine;
mod pace;
mod progress;
mod recorder;
mod report;
mod slow;
mod steady;

pub use driver::{Client, Done, Outcome, Plan, Step, run};
pub use machine::{Machine, cpu_seconds};
pub use recorder::{Recorder, Totals};
pub use report::{conclude, result_json, result_text, write_json};
pub use slow::{Slow, SlowOperation};
