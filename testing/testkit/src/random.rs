//! Repeatable random numbers for scripts.

pub use halcyon_env::sim::Dice as Random;
