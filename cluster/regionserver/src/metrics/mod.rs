//! Counters, and the load that a server reports.

pub(crate) mod counters;
pub(crate) mod load;
pub(crate) mod op_times;
pub(crate) mod users;
