//! (head of halcyon-testkit)
