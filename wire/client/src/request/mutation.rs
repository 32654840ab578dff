//! Mutations of one row.

use std::time::Duration;

use bytes::Bytes;
use halcyon_cell::{Cell, CellType};
use halcyon_proto::pb;

use super::{attribute, check_row, copied, time_range};
use crate::{ClientError, DurabilityLevel, MutationType};

/// "Now": the server sets the timestamp (`HConstants.LATEST_TIMESTAMP`).
pub(crate) const LATEST_TIMESTAMP: i64 = i64::MAX;

/// A change of one row: its type and its cells, which all have that row.
///
/// [`Put`], [`Delete`], [`Append`] and [`Increment`] build one.
#[derive(Clone, Debug)]
pub struct Mutation {
    kind: MutationType,
    durability: DurabilityLevel,
    row: Bytes,
    cells: Vec<Cell>,
    options: Option<Box<Options>>,
}

/// What few mutations have.
#[derive(Clone, Debug, Default)]
struct Options {
    /// Of a delete of the whole row.
    timestamp: Option<i64>,
    attributes: Vec<pb::NameBytesPair>,
    time_range: Option<pb::TimeRange>,
}

impl Mutation {
    /// A mutation of this type with these cells, and with the table's durability.
    pub fn new(kind: MutationType, row: Bytes, cells: Vec<Cell>) -> Mutation {
        Mutation { kind, durability: DurabilityLevel::UseDefault, row, cells, options: None }
    }

    /// A put with the table's durability.
    pub fn put(row: Bytes, cells: Vec<Cell>) -> Mutation {
        Mutation::new(MutationType::Put, row, cells)
    }

    /// Sets when the server acknowledges the mutation.
    pub fn with_durability(mut self, durability: DurabilityLevel) -> Mutation {
        self.durability = durability;
        self
    }

    /// Adds an attribute of the request.
    pub fn with_attribute(mut self, name: &str, value: impl AsRef<[u8]>) -> Mutation {
        self.options().attributes.push(attribute(name, value));
        self
    }

    /// The row key.
    pub fn row(&self) -> &Bytes {
        &self.row
    }

    /// The cells. A delete has markers; without any it deletes the whole row.
    pub fn cells(&self) -> &[Cell] {
        &self.cells
    }

    /// Put, delete, append or increment.
    pub fn mutation_type(&self) -> MutationType {
        self.kind
    }

    /// Bytes that the mutation holds, roughly.
    pub fn size_bytes(&self) -> usize {
        const OWN_BYTES: usize = 100;
        OWN_BYTES + self.row.len() + self.cells.iter().map(|cell| cell.bytes().len()).sum::<usize>()
    }

    fn options(&mut self) -> &mut Options {
        self.options.get_or_insert_default()
    }

    fn has_option_of(&self, name: &str) -> bool {
        self.options.iter().any(|options| options.attributes.iter().any(|pair| pair.name == name))
    }

    fn push(&mut self, family: &[u8], qualifier: &[u8], timestamp: i64, kind: CellType, value: &[u8]) {
        self.cells.push(Cell::build(&self.row, family, qualifier, timestamp, kind, value, b"", 0));
    }

    /// Whether a server can be asked for it.
    pub(crate) fn check(&self) -> Result<(), ClientError> {
        check_row(&self.row)?;
        match self.cells.is_empty() && self.kind != MutationType::Delete {
            true => Err(ClientError::invalid("the mutation has no columns")),
            false => Ok(()),
        }
    }

    /// Whether it must carry a nonce, so that a call that is made twice counts once.
    pub(crate) fn needs_nonce(&self) -> bool {
        matches!(self.kind, MutationType::Append | MutationType::Increment)
    }

    pub(crate) fn to_pb(&self, nonce: Option<u64>) -> pb::MutationProto {
        let mut message = pb::MutationProto {
            row: Some(self.row.clone()),
            mutate_type: Some(self.kind as i32),
            durability: Some(self.durability as i32),
            associated_cell_count: Some(self.cells.len() as i32),
            nonce,
            ..Default::default()
        };
        if let Some(options) = &self.options {
            message.timestamp = options.timestamp.map(|timestamp| timestamp as u64);
            message.attribute = options.attributes.clone();
            message.time_range = options.time_range;
        }
        message
    }
}

/// Methods that all builders of mutations share.
macro_rules! mutation_options {
    ($name:ident) => {
        /// Sets when the server acknowledges it; by default as the table says.
        pub fn durability(mut self, durability: DurabilityLevel) -> $name {
            self.mutation.durability = durability;
            self
        }

        /// Sets an attribute of the request.
        pub fn attribute(mut self, name: &str, value: impl AsRef<[u8]>) -> $name {
            self.mutation.options().attributes.push(attribute(name, value));
            self
        }

        /// Adds a cell as it is. Its row must be the mutation's.
        pub fn cell(mut self, cell: Cell) -> $name {
            assert_eq!(cell.row(), &self.mutation.row[..], "a mutation changes one row");
            self.mutation.cells.push(cell);
            self
        }
    };
}

macro_rules! into_mutation {
    ($($name:ident)*) => {
        $(impl From<$name> for Mutation {
            fn from(built: $name) -> Mutation {
                built.mutation
            }
        })*
    };
}

into_mutation!(Put Delete Append Increment);

/// Writes columns of a row.
///
/// # Panics
/// Builder methods panic if a row or family is longer than HBase allows (32,767 and 255 bytes).
#[derive(Clone, Debug)]
pub struct Put {
    mutation: Mutation,
}

impl Put {
    /// A put of a row; it needs a column.
    pub fn new(row: impl AsRef<[u8]>) -> Put {
        Put { mutation: Mutation::put(copied(row), Vec::new()) }
    }

    /// A value; the server sets the timestamp.
    pub fn column(
        self,
        family: impl AsRef<[u8]>,
        qualifier: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Put {
        self.column_at(family, qualifier, LATEST_TIMESTAMP, value)
    }

    /// A value with a timestamp in milliseconds.
    pub fn column_at(
        mut self,
        family: impl AsRef<[u8]>,
        qualifier: impl AsRef<[u8]>,
        timestamp: i64,
        value: impl AsRef<[u8]>,
    ) -> Put {
        self.mutation.push(family.as_ref(), qualifier.as_ref(), timestamp, CellType::Put, value.as_ref());
        self
    }

    /// Time after which the cells disappear.
    pub fn ttl(self, ttl: Duration) -> Put {
        let ttl_ms = i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX);
        self.attribute("_ttl", ttl_ms.to_be_bytes())
    }

    mutation_options!(Put);
}

/// Deletes a row, or families, columns and versions of it. Without any of these it deletes the whole row.
#[derive(Clone, Debug)]
pub struct Delete {
    mutation: Mutation,
}

impl Delete {
    /// Deletes the row, unless families or columns are added.
    pub fn new(row: impl AsRef<[u8]>) -> Delete {
        Delete { mutation: Mutation::new(MutationType::Delete, copied(row), Vec::new()) }
    }

    /// Deletes versions of the whole row up to this timestamp.
    pub fn up_to(mut self, timestamp: i64) -> Delete {
        self.mutation.options().timestamp = Some(timestamp);
        self
    }

    /// Deletes all versions of a family (`Delete.addFamily`).
    pub fn family(self, family: impl AsRef<[u8]>) -> Delete {
        self.family_up_to(family, LATEST_TIMESTAMP)
    }

    /// Deletes versions of a family up to a timestamp.
    pub fn family_up_to(self, family: impl AsRef<[u8]>, timestamp: i64) -> Delete {
        self.marker(family, b"", timestamp, CellType::DeleteFamily)
    }

    /// Deletes cells of a family that have exactly this timestamp (`Delete.addFamilyVersion`).
    pub fn family_version(self, family: impl AsRef<[u8]>, timestamp: i64) -> Delete {
        self.marker(family, b"", timestamp, CellType::DeleteFamilyVersion)
    }

    /// Deletes the newest version of a column (`Delete.addColumn`). The server has to read it first.
    pub fn newest_version(self, family: impl AsRef<[u8]>, qualifier: impl AsRef<[u8]>) -> Delete {
        self.version(family, qualifier, LATEST_TIMESTAMP)
    }

    /// Deletes the version of a column with this timestamp (`Delete.addColumn` with a timestamp).
    pub fn version(self, family: impl AsRef<[u8]>, qualifier: impl AsRef<[u8]>, timestamp: i64) -> Delete {
        self.marker(family, qualifier, timestamp, CellType::Delete)
    }

    /// Deletes all versions of a column (`Delete.addColumns`).
    pub fn column(self, family: impl AsRef<[u8]>, qualifier: impl AsRef<[u8]>) -> Delete {
        self.column_up_to(family, qualifier, LATEST_TIMESTAMP)
    }

    /// Deletes versions of a column up to a timestamp (`Delete.addColumns` with a timestamp).
    pub fn column_up_to(
        self,
        family: impl AsRef<[u8]>,
        qualifier: impl AsRef<[u8]>,
        timestamp: i64,
    ) -> Delete {
        self.marker(family, qualifier, timestamp, CellType::DeleteColumn)
    }

    fn marker(
        mut self,
        family: impl AsRef<[u8]>,
        qualifier: impl AsRef<[u8]>,
        timestamp: i64,
        kind: CellType,
    ) -> Delete {
        self.mutation.push(family.as_ref(), qualifier.as_ref(), timestamp, kind, b"");
        self
    }

    mutation_options!(Delete);
}

/// Attribute that says whether an append or increment returns its cells.
const RETURN_RESULTS: &str = "_rr_";

/// Methods that append and increment share.
macro_rules! modify_options {
    ($name:ident) => {
        /// Whether the new cells are returned; true by default.
        pub fn return_results(self, wanted: bool) -> $name {
            assert!(!self.mutation.has_option_of(RETURN_RESULTS), "said once");
            self.attribute(RETURN_RESULTS, [if wanted { 0xff } else { 0 }])
        }

        /// Looks only at cells with timestamps from `from` (inclusive) to `to` (exclusive).
        pub fn time_range(mut self, from: i64, to: i64) -> $name {
            self.mutation.options().time_range = Some(time_range(from, to));
            self
        }
    };
}

/// Appends bytes to columns of a row. The client sends a nonce, so that a retry does not append twice.
#[derive(Clone, Debug)]
pub struct Append {
    mutation: Mutation,
}

impl Append {
    /// An append to a row; it needs a column.
    pub fn new(row: impl AsRef<[u8]>) -> Append {
        Append { mutation: Mutation::new(MutationType::Append, copied(row), Vec::new()) }
    }

    /// Bytes for the end of a column's value.
    pub fn column(
        mut self,
        family: impl AsRef<[u8]>,
        qualifier: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Append {
        let (family, qualifier, value) = (family.as_ref(), qualifier.as_ref(), value.as_ref());
        self.mutation.push(family, qualifier, LATEST_TIMESTAMP, CellType::Put, value);
        self
    }

    modify_options!(Append);
    mutation_options!(Append);
}

/// Adds numbers to columns of a row. The client sends a nonce, so that a retry does not add twice.
#[derive(Clone, Debug)]
pub struct Increment {
    mutation: Mutation,
}

impl Increment {
    /// An increment of a row; it needs a column.
    pub fn new(row: impl AsRef<[u8]>) -> Increment {
        Increment { mutation: Mutation::new(MutationType::Increment, copied(row), Vec::new()) }
    }

    /// A number to add to a column, which may be negative.
    pub fn column(mut self, family: impl AsRef<[u8]>, qualifier: impl AsRef<[u8]>, amount: i64) -> Increment {
        let (family, qualifier) = (family.as_ref(), qualifier.as_ref());
        self.mutation.push(family, qualifier, LATEST_TIMESTAMP, CellType::Put, &amount.to_be_bytes());
        self
    }

    modify_options!(Increment);
    mutation_options!(Increment);
}

/// Mutations of one row that happen together.
#[derive(Clone, Debug)]
pub struct RowMutations {
    row: Bytes,
    mutations: Vec<Mutation>,
    /// Made of a mutation alone, which can be sent without a batch.
    is_single: bool,
}

impl RowMutations {
    /// No mutations of a row yet.
    pub fn new(row: impl AsRef<[u8]>) -> RowMutations {
        RowMutations { row: copied(row), mutations: Vec::new(), is_single: false }
    }

    /// Adds a mutation of the same row.
    ///
    /// # Panics
    /// Panics if it is of another row.
    pub fn with(mut self, mutation: impl Into<Mutation>) -> RowMutations {
        let mutation = mutation.into();
        assert_eq!(mutation.row, self.row, "row mutations change one row");
        self.mutations.push(mutation);
        self.is_single = false;
        self
    }

    /// The row key.
    pub fn row(&self) -> &Bytes {
        &self.row
    }

    /// The mutations in their order.
    pub fn mutations(&self) -> &[Mutation] {
        &self.mutations
    }

    /// The mutation, if it needs no batch.
    pub(crate) fn single(&self) -> Option<&Mutation> {
        self.mutations.first().filter(|_| self.is_single)
    }

    pub(crate) fn check(&self) -> Result<(), ClientError> {
        if self.mutations.is_empty() {
            return Err(ClientError::invalid("row mutations without a mutation"));
        }
        self.mutations.iter().try_for_each(Mutation::check)
    }
}

impl<M: Into<Mutation>> From<M> for RowMutations {
    fn from(mutation: M) -> RowMutations {
        let mutation = mutation.into();
        RowMutations { row: mutation.row.clone(), mutations: vec![mutation], is_single: true }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deletes_are_markers() {
        let delete: Mutation = Delete::new("r")
            .family("f")
            .family_version("f", 3)
            .newest_version("f", "q")
            .column_up_to("f", "q", 9)
            .into();
        let markers: Vec<_> =
            delete.cells().iter().map(|cell| (cell.cell_type(), cell.timestamp())).collect();
        let expected = [
            (CellType::DeleteFamily, i64::MAX),
            (CellType::DeleteFamilyVersion, 3),
            (CellType::Delete, i64::MAX),
            (CellType::DeleteColumn, 9),
        ];
        assert_eq!(markers, expected);
        let row: Mutation = Delete::new("r").up_to(7).into();
        row.check().unwrap();
        assert_eq!(row.to_pb(None).timestamp, Some(7));
    }

    #[test]
    fn what_a_server_cannot_do_is_refused() {
        let check = |mutation: Mutation| mutation.check().unwrap_err().to_string();
        assert_eq!(check(Put::new("r").into()), "the mutation has no columns");
        assert_eq!(check(Put::new("").column("f", "q", "v").into()), "the row key is empty");
        let long: Mutation = Delete::new(vec![b'x'; 40_000]).into();
        assert_eq!(check(long), "a row key of 40000 bytes; 32767 are allowed");
        assert!(RowMutations::new("r").check().is_err());
    }

    #[test]
    fn options_stand_in_the_message() {
        let put: Mutation = Put::new("r")
            .column("f", "q", "v")
            .ttl(Duration::from_secs(1))
            .durability(DurabilityLevel::SkipWal)
            .into();
        let message = put.to_pb(None);
        assert_eq!(message.attribute[0].name, "_ttl");
        assert_eq!(message.attribute[0].value.as_deref(), Some(&1_000i64.to_be_bytes()[..]));
        assert_eq!(message.durability(), DurabilityLevel::SkipWal);
        let increment: Mutation = Increment::new("r").column("f", "q", -2).return_results(false).into();
        assert!(increment.needs_nonce() && !put.needs_nonce());
        assert_eq!(increment.cells()[0].value(), (-2i64).to_be_bytes());
        assert_eq!(increment.to_pb(Some(5)).nonce, Some(5));
    }
}
