//! A cell as HBase's KeyValue bytes, its one form from the client's socket to the disk and back.
//!
//! ```text
//! int32 key length | int32 value length | key | value [ int16 tags length | tags ]
//! key  = int16 row length | row | byte family length | family | qualifier | int64 timestamp | byte type
//! tags = ( int16 length of type and value | byte type | value )*
//! ```
//!
//! All integers are big-endian. [`CellRef`] borrows these bytes, [`Cell`] shares them by reference count,
//! [`SharedCells`] do so block by block, and [`Key`] is the key part alone, for seeking. The sequence id (HBase: mvcc) of a cell is engine time
//! and is stored next to the bytes, never in them. Checked against HBase's `KeyValue` and `CellComparatorImpl`.
//!
//! When you change the order of keys, also look at the index keys of `hfile` and at `testkit`'s oracle.

mod cell;
mod comparator;
mod error;
mod key;
mod natural;
mod scanner;
mod sequence;
mod shared_cells;
mod tags;

pub use cell::{Cell, CellRef, CellType, FIXED_KEY_LEN, KEY_OFFSET};
pub use comparator::{CellComparator, keep_bytes, same_bytes};
pub use error::{Error, ErrorKind, Result};
pub use key::{Key, KeyRef};
pub use natural::Natural;
pub use scanner::CellScanner;
pub use sequence::{ReadPoint, SeqId};
pub use shared_cells::SharedCells;
pub use tags::{Tag, TagIterator, TagType, append_tag};

/// A timestamp that asks the server for its own clock, and the newest one there is.
pub const LATEST_TIMESTAMP: i64 = i64::MAX;
/// The oldest timestamp there is.
pub const OLDEST_TIMESTAMP: i64 = i64::MIN;
/// Longest row key (`HConstants.MAX_ROW_LENGTH`).
pub const ROW_LEN_MAX: usize = i16::MAX as usize;
/// Longest family name (its length is one signed byte).
pub const FAMILY_LEN_MAX: usize = i8::MAX as usize;
