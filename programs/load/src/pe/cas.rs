//! Increments, appends and checks: all clients go over the same rows.

use std::sync::Arc;

use bytes::Bytes;
use halcyon_cell::{Cell, CellType};
use halcyon_client::{ClientError, Mutation, Table};
use halcyon_proto::pb;
use halcyon_proto::pb::mutation_proto::{Durability, MutationType};

use crate::pe::options::{Command, Options};
use crate::pe::rows::{Columns, family, filter, format_row};

pub(super) struct Cas {
    table: Table,
    options: Arc<Options>,
    columns: Columns,
    /// The simple name of PerformanceEvaluation's class for the command.
    qualifier: &'static [u8],
}

impl Cas {
    pub fn new(table: Table, options: Arc<Options>) -> Cas {
        let qualifier: &[u8] = match options.args.command {
            Command::Increment => b"IncrementTest",
            Command::Append => b"AppendTest",
            Command::CheckAndMutate => b"CheckAndMutateTest",
            Command::CheckAndPut => b"CheckAndPutTest",
            _ => b"CheckAndDeleteTest",
        };
        Cas { table, columns: Columns::new(&options), options, qualifier }
    }

    pub async fn row(&mut self, number: u64) -> Result<bool, ClientError> {
        let row = format_row(number);
        match self.options.args.command {
            Command::Increment => self.modify(row, MutationType::Increment, &1i64.to_be_bytes()).await?,
            Command::Append => self.modify(row.clone(), MutationType::Append, &row).await?,
            command => self.check(row, command).await?,
        }
        Ok(true)
    }

    /// One cell in every family.
    async fn modify(&self, row: Bytes, kind: MutationType, value: &[u8]) -> Result<(), ClientError> {
        let cells = self.columns.families().iter();
        let cells = cells.map(|family| Cell::put(&row, family, self.qualifier, i64::MAX, value)).collect();
        let durability = Durability::UseDefault;
        self.table.mutate(&Mutation { row, kind, durability, cells }, None).await?;
        Ok(())
    }

    /// Puts a known value, so that the check that follows holds.
    async fn check(&self, row: Bytes, command: Command) -> Result<(), ClientError> {
        let family = family(0);
        let cell = Cell::put(&row, &family, self.qualifier, i64::MAX, &row);
        let put = Mutation::put(row.clone(), vec![cell]);
        self.table.mutate(&put, None).await?;
        let condition = pb::Condition {
            row: row.clone(),
            family: Some(family.clone()),
            qualifier: Some(Bytes::from_static(self.qualifier)),
            compare_type: Some(pb::CompareType::Equal as i32),
            comparator: Some(filter::comparator(row.clone())),
            ..Default::default()
        };
        match command {
            Command::CheckAndMutate => {
                self.table.mutate_row(&[put], Some(condition)).await?;
            }
            Command::CheckAndPut => {
                self.table.mutate(&put, Some(condition)).await?;
            }
            _ => {
                // the newest version, as Delete.addColumn has it
                let marker =
                    Cell::build(&row, &family, self.qualifier, i64::MAX, CellType::Delete, b"", b"", 0);
                let (kind, durability) = (MutationType::Delete, Durability::UseDefault);
                let delete = Mutation { row, kind, durability, cells: vec![marker] };
                self.table.mutate(&delete, Some(condition)).await?;
            }
        }
        Ok(())
    }
}
