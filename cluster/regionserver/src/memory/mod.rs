//! The memory budget: how it is divided, what holds writers back, how the shares follow the load.

pub(crate) mod account;
pub(crate) mod accountant;
pub(crate) mod budget;
pub(crate) mod pressure;
pub(crate) mod tuner;
pub(crate) mod writers;
