//! (head of halcyon-coord)
