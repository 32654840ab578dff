//! (head of halcyon-client)
