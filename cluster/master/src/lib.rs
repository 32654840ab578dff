//! (head of halcyon-master)
