//! Which regions are open here, what they share, and the files of regions that are not open.

pub(crate) mod files;
pub(crate) mod region_table;
pub(crate) mod resources;
pub(crate) mod rows;
