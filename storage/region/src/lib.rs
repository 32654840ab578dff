//! (head of halcyon-region)
