//! (head of halcyon-cache)
