//! Increments, appends and checks: all clients go over the same rows.

use std::sync::Arc;

use bytes::Bytes;
use halcyon_cell::Cell;
use halcyon_client::{CheckAndMutate, ClientError, Delete, Mutation, MutationType, RowMutations, Table};

use crate::pe::options::{Command, Options};
use crate::pe::rows::{Columns, family, format_row};

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
        self.table.mutate(&Mutation::new(kind, row, cells)).await?;
        Ok(())
    }

    /// Puts a known value, so that the check that follows holds.
    async fn check(&self, row: Bytes, command: Command) -> Result<(), ClientError> {
        let family = family(0);
        let cell = Cell::put(&row, &family, self.qualifier, i64::MAX, &row);
        let put = Mutation::put(row.clone(), vec![cell]);
        self.table.mutate(&put).await?;
        let check = CheckAndMutate::row(&row).if_equals(&family, self.qualifier, &row);
        let check = match command {
            Command::CheckAndMutate => check.then(RowMutations::new(&row).with(put)),
            Command::CheckAndPut => check.then(put),
            // the newest version, as Delete.addColumn has it
            _ => check.then(Delete::new(&row).newest_version(&family, self.qualifier)),
        };
        self.table.check_and_mutate(&check).await?;
        Ok(())
    }
}
