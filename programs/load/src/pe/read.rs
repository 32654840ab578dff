//! Gets.

use std::sync::Arc;
use std::time::Duration;

use halcyon_client::{Action, ClientError, Table};
use halcyon_proto::pb;

use crate::pe::found::Found;
use crate::pe::options::{Command, Options};
use crate::pe::rows::{Columns, filter, format_row, random_row};
use crate::random::Random;

/// Reads rows, one by one or in calls of so many.
pub(super) struct Reader {
    table: Table,
    options: Arc<Options>,
    columns: Vec<pb::Column>,
    gets: Vec<Action>,
    found: Arc<Found>,
}

impl Reader {
    pub fn new(table: Table, options: Arc<Options>, found: Arc<Found>) -> Reader {
        let columns = Columns::new(&options).wanted(options.args.add_columns);
        Reader { table, options, columns, gets: Vec::new(), found }
    }

    /// Reads a row; false if it only waits for others to go with it in one call.
    pub async fn row(&mut self, number: u64, random: &mut Random) -> Result<bool, ClientError> {
        let args = &self.options.args;
        if args.random_sleep > 0 {
            tokio::time::sleep(Duration::from_millis(random.below(args.random_sleep))).await;
        }
        let draws = args.command == Command::RandomRead;
        let number = if draws { random_row(random, &self.options) } else { number };
        let get = pb::Get {
            row: format_row(number),
            column: self.columns.clone(),
            filter: args.filter_all.then(filter::all),
            ..Default::default()
        };
        if args.multi_get == 0 || !draws {
            self.found.row(&self.table.get(get).await?);
            return Ok(true);
        }
        self.gets.push(Action::Get(get.into()));
        let is_full = self.gets.len() >= args.multi_get;
        if is_full {
            self.finish().await?;
        }
        Ok(is_full)
    }

    /// Reads what still waits.
    pub async fn finish(&mut self) -> Result<(), ClientError> {
        if !self.gets.is_empty() {
            let rows = self.table.batch_all(&self.gets).await?;
            rows.iter().for_each(|row| self.found.row(row));
            self.gets.clear();
        }
        Ok(())
    }
}
