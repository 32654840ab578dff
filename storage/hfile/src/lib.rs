//! (head of halcyon-hfile)
