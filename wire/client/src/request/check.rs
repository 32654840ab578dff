//! Mutations under a condition.

use bytes::Bytes;
use halcyon_proto::pb;

use super::{RowMutations, copied, time_range};
use crate::{ClientError, Comparator, CompareOp, Filter};

/// Mutations of a row that happen together if a condition on the row holds.
///
/// ```
/// use halcyon_client::{CheckAndMutate, Put};
///
/// let take = CheckAndMutate::row("seat-12a")
///     .if_not_exists("f", "passenger")
///     .then(Put::new("seat-12a").column("f", "passenger", "Ada"));
/// ```
#[derive(Clone, Debug)]
pub struct CheckAndMutate {
    pub(crate) condition: pb::Condition,
    pub(crate) mutations: RowMutations,
}

impl CheckAndMutate {
    /// Begins with the row that is checked and changed.
    pub fn row(row: impl AsRef<[u8]>) -> CheckAndMutateBuilder {
        CheckAndMutateBuilder { condition: pb::Condition { row: copied(row), ..Default::default() } }
    }

    pub(crate) fn check(&self) -> Result<(), ClientError> {
        self.mutations.check()?;
        if self.mutations.row() != &self.condition.row {
            return Err(ClientError::invalid("the condition is on another row than the mutations"));
        }
        if self.condition.filter.is_none() && self.condition.family.is_none() {
            return Err(ClientError::invalid("the check has no condition"));
        }
        Ok(())
    }
}

/// A [`CheckAndMutate`] that has no mutations yet.
#[derive(Clone, Debug)]
pub struct CheckAndMutateBuilder {
    condition: pb::Condition,
}

impl CheckAndMutateBuilder {
    /// The column's newest value must be this.
    pub fn if_equals(
        self,
        family: impl AsRef<[u8]>,
        qualifier: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Self {
        self.if_matches(family, qualifier, CompareOp::Equal, Comparator::binary(value))
    }

    /// The column must have no value.
    pub fn if_not_exists(self, family: impl AsRef<[u8]>, qualifier: impl AsRef<[u8]>) -> Self {
        self.if_matches(family, qualifier, CompareOp::Equal, Comparator::binary(b""))
    }

    /// The comparison of the column's newest value must hold. The value stands on the right side: `Less` means that
    /// the comparator's value is less than the column's (as in HBase's `CheckAndMutate`).
    pub fn if_matches(
        mut self,
        family: impl AsRef<[u8]>,
        qualifier: impl AsRef<[u8]>,
        op: CompareOp,
        comparator: Comparator,
    ) -> Self {
        self.condition.family = Some(copied(family));
        self.condition.qualifier = Some(copied(qualifier));
        self.condition.compare_type = Some(op.to_pb() as i32);
        self.condition.comparator = Some(comparator.into_message());
        self
    }

    /// The filter must keep a cell of the row.
    pub fn if_filter(mut self, filter: Filter) -> Self {
        self.condition.filter = Some(filter.into_message());
        self
    }

    /// The check looks only at cells with timestamps from `from` (inclusive) to `to` (exclusive).
    pub fn time_range(mut self, from: i64, to: i64) -> Self {
        self.condition.time_range = Some(time_range(from, to));
        self
    }

    /// What happens if the condition holds: a mutation, or several of the row.
    pub fn then(self, mutations: impl Into<RowMutations>) -> CheckAndMutate {
        CheckAndMutate { condition: self.condition, mutations: mutations.into() }
    }
}

impl CheckAndMutate {
    pub(crate) fn key(&self) -> &Bytes {
        &self.condition.row
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Put;

    #[test]
    fn a_check_needs_its_condition_and_its_row() {
        let put = || Put::new("r").column("f", "q", "v");
        CheckAndMutate::row("r").if_not_exists("f", "q").then(put()).check().unwrap();
        assert!(CheckAndMutate::row("r").then(put()).check().is_err());
        assert!(CheckAndMutate::row("other").if_not_exists("f", "q").then(put()).check().is_err());
        let several = RowMutations::new("r").with(put()).with(put());
        CheckAndMutate::row("r").if_filter(Filter::key_only(false)).then(several).check().unwrap();
    }
}
