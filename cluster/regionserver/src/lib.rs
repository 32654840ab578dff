//! (head of halcyon-regionserver)
