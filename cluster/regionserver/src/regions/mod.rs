//! Which regions are open here, which tables can be served, and how the master reaches both.

mod door;
pub(crate) mod region_table;
pub(crate) mod servable;
