use bytes::Bytes;
use halcyon_proto::pb;

use super::{copied, read_options};

/// A read of one row.
#[derive(Clone, Debug)]
pub struct Get {
    pub(crate) message: pb::Get,
}

impl Get {
    /// All families of a row, in their newest version.
    pub fn new(row: impl AsRef<[u8]>) -> Get {
        Get { message: pb::Get { row: copied(row), ..Default::default() } }
    }

    read_options!();

    /// The row key.
    pub fn row(&self) -> &Bytes {
        &self.message.row
    }
}

impl From<pb::Get> for Get {
    fn from(message: pb::Get) -> Get {
        Get { message }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_of_a_family_stand_together() {
        let get = Get::new("r").column("f", "a").column("g", "x").column("f", "b").family("g");
        let columns: Vec<(&[u8], usize)> =
            get.message.column.iter().map(|column| (&column.family[..], column.qualifier.len())).collect();
        assert_eq!(columns, [(&b"f"[..], 2), (&b"g"[..], 0)]);
        // a family that is wanted as a whole stays whole
        let get = get.column("g", "y");
        assert!(get.message.column[1].qualifier.is_empty());
    }

    #[test]
    fn one_timestamp_is_a_range() {
        let get = Get::new("r").timestamp(5);
        assert_eq!(get.message.time_range, Some(pb::TimeRange { from: Some(5), to: Some(6) }));
    }
}
