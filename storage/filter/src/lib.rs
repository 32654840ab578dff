//! (head of halcyon-filter)
