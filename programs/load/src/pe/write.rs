//! Puts and deletes: each a call, in calls of so many, or through a buffer.

use std::sync::Arc;

use bytes::Bytes;
use halcyon_cell::{Cell, CellType};
use halcyon_client::{Action, ClientError, Mutation, Table};
use halcyon_env::Clock;
use halcyon_proto::pb::mutation_proto::{Durability, MutationType};
use tokio::task::JoinHandle;

use crate::pe::FLUSH;
use crate::pe::options::{Command, Options};
use crate::pe::rows::{Columns, format_row, random_row};
use crate::random::Random;
use crate::run::Recorder;

/// Writes rows.
///
/// The buffer is HBase's `BufferedMutator`: when it is full it goes to the servers while the next one fills; one that
/// fills before its predecessor has arrived waits for it.
pub(super) struct Writer {
    table: Table,
    options: Arc<Options>,
    columns: Columns,
    clock: Arc<dyn Clock>,
    recorder: Arc<Recorder>,
    buffer: Vec<Action>,
    buffered_bytes: usize,
    under_way: Option<JoinHandle<Result<(), ClientError>>>,
}

impl Writer {
    pub fn new(
        table: Table,
        options: Arc<Options>,
        clock: Arc<dyn Clock>,
        recorder: Arc<Recorder>,
    ) -> Writer {
        Writer {
            table,
            columns: Columns::new(&options),
            options,
            clock,
            recorder,
            buffer: Vec::new(),
            buffered_bytes: 0,
            under_way: None,
        }
    }

    /// Writes a row; false if it only waits for others to go with it in one call.
    pub async fn row(&mut self, number: u64, random: &mut Random) -> Result<bool, ClientError> {
        let args = &self.options.args;
        let number = match args.command {
            Command::RandomWrite | Command::RandomDelete => random_row(random, &self.options),
            _ => number,
        };
        let mutation = self.mutation(format_row(number), random);
        if args.auto_flush && args.multi_put == 0 {
            self.table.mutate(&mutation).await?;
            return Ok(true);
        }
        self.buffered_bytes += mutation.cells().iter().map(|cell| cell.bytes().len()).sum::<usize>();
        self.buffer.push(Action::Mutate(mutation));
        if args.auto_flush {
            let is_full = self.buffer.len() >= args.multi_put;
            if is_full {
                self.table.batch_all(&self.buffer).await?;
                self.buffer.clear();
            }
            return Ok(is_full);
        }
        if self.buffered_bytes >= args.buffer_size {
            self.send_buffer().await?;
        }
        Ok(true)
    }

    fn mutation(&self, row: Bytes, random: &mut Random) -> Mutation {
        let durability =
            if self.options.args.write_to_wal { Durability::SyncWal } else { Durability::SkipWal };
        let is_delete =
            matches!(self.options.args.command, Command::SequentialDelete | Command::RandomDelete);
        let (kind, cells) = if is_delete {
            let delete = |family: &Bytes| {
                Cell::build(&row, family, b"", i64::MAX, CellType::DeleteFamily, b"", b"", 0)
            };
            (MutationType::Delete, self.columns.families().iter().map(delete).collect())
        } else {
            (MutationType::Put, self.columns.cells(&row, &self.options, random))
        };
        Mutation::new(kind, row, cells).with_durability(durability)
    }

    /// Sends the buffer as soon as the one before has arrived, and does not wait for it to arrive itself.
    async fn send_buffer(&mut self) -> Result<(), ClientError> {
        self.settle().await?;
        let actions = std::mem::take(&mut self.buffer);
        self.buffered_bytes = 0;
        let (table, clock, recorder) =
            (self.table.clone(), Arc::clone(&self.clock), Arc::clone(&self.recorder));
        self.under_way = Some(tokio::spawn(async move {
            let start_ns = clock.monotonic_ns();
            table.batch_all(&actions).await?;
            recorder.record(FLUSH, start_ns, clock.monotonic_ns());
            Ok(())
        }));
        Ok(())
    }

    async fn settle(&mut self) -> Result<(), ClientError> {
        match self.under_way.take() {
            None => Ok(()),
            Some(task) => task.await.unwrap_or(Err(ClientError::Closed)),
        }
    }

    /// Sends what is left.
    pub async fn finish(&mut self) -> Result<(), ClientError> {
        self.settle().await?;
        let actions = std::mem::take(&mut self.buffer);
        if !actions.is_empty() {
            self.table.batch_all(&actions).await?;
        }
        Ok(())
    }
}
