//! A buffer of mutations in front of a table.

use tokio::task::JoinHandle;

use crate::{Action, ClientError, Mutation, Table};

/// Mutations that could not be written, with the reason of each.
#[derive(Debug)]
pub struct BufferError {
    /// The failed mutations.
    pub failures: Vec<(Mutation, ClientError)>,
}

impl std::fmt::Display for BufferError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let first = self.failures.first().map(|(_, error)| error.to_string()).unwrap_or_default();
        write!(f, "{} mutations failed, the first with: {first}", self.failures.len())
    }
}

impl std::error::Error for BufferError {}

/// Gathers mutations and sends them in batches (HBase: `BufferedMutator`).
///
/// When the buffer has its limit of bytes, it goes to the servers while the next one fills. A buffer that fills before its
/// predecessor was written waits for it: memory is bounded by two buffers. What was not flushed when the mutator is
/// dropped is lost: call [`BufferedMutator::close`].
pub struct BufferedMutator {
    table: Table,
    bytes_max: usize,
    buffer: Vec<Action>,
    buffered_bytes: usize,
    under_way: Option<JoinHandle<Result<(), BufferError>>>,
}

impl Table {
    /// A buffer in front of the table, which is sent at `bytes_max` bytes (`hbase.client.write.buffer` is 2 MiB).
    pub fn buffered(&self, bytes_max: usize) -> BufferedMutator {
        BufferedMutator {
            table: self.clone(),
            bytes_max: bytes_max.max(1),
            buffer: Vec::new(),
            buffered_bytes: 0,
            under_way: None,
        }
    }
}

impl BufferedMutator {
    /// Adds a mutation. It waits if the buffer is full and the one before is still being written. An error is about
    /// earlier mutations; this one stays in the buffer.
    pub async fn mutate(&mut self, mutation: impl Into<Mutation>) -> Result<(), BufferError> {
        let mutation = mutation.into();
        self.buffered_bytes += mutation.size_bytes();
        self.buffer.push(Action::Mutate(mutation));
        match self.buffered_bytes >= self.bytes_max {
            true => self.send().await,
            false => Ok(()),
        }
    }

    /// Bytes that wait to be sent.
    pub fn buffered_bytes(&self) -> usize {
        self.buffered_bytes
    }

    /// Sends the buffer once its predecessor was written.
    async fn send(&mut self) -> Result<(), BufferError> {
        self.settle().await?;
        let actions = std::mem::take(&mut self.buffer);
        self.buffered_bytes = 0;
        self.under_way = Some(tokio::spawn(write(self.table.clone(), actions)));
        Ok(())
    }

    async fn settle(&mut self) -> Result<(), BufferError> {
        match self.under_way.take() {
            None => Ok(()),
            Some(task) => task.await.expect("the task does not panic and nobody aborts it"),
        }
    }

    /// Waits until everything was written.
    pub async fn flush(&mut self) -> Result<(), BufferError> {
        let settled = self.settle().await;
        let actions = std::mem::take(&mut self.buffer);
        self.buffered_bytes = 0;
        let written = write(self.table.clone(), actions).await;
        match (settled, written) {
            (Ok(()), written) => written,
            (settled, Ok(())) => settled,
            (Err(mut all), Err(more)) => {
                all.failures.extend(more.failures);
                Err(all)
            }
        }
    }

    /// Flushes and ends.
    pub async fn close(mut self) -> Result<(), BufferError> {
        self.flush().await
    }
}

async fn write(table: Table, actions: Vec<Action>) -> Result<(), BufferError> {
    let results = table.batch(&actions).await;
    let mut failures = Vec::new();
    for (action, result) in actions.into_iter().zip(results) {
        if let (Action::Mutate(mutation), Err(error)) = (action, result) {
            failures.push((mutation, error));
        }
    }
    match failures.is_empty() {
        true => Ok(()),
        false => Err(BufferError { failures }),
    }
}
