//! Rows of a scan as a stream: read ahead by a task of its own, which keeps the server's lease alive.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::Stream;
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::{ClientError, Row, Scanner};

/// Rows that wait for their reader, besides those of the last response.
const ROWS_MAX: usize = 16;
/// Period of renewals if the server names no lease: half of HBase's default.
const RENEW_PERIOD: Duration = Duration::from_secs(30);

/// Rows of a scan. Dropping the stream ends the scan.
pub struct RowStream {
    rows: mpsc::Receiver<Result<Row, ClientError>>,
}

impl Scanner {
    /// The rows as a stream. A task reads one response ahead. While the reader is slow, it renews the lease, so that the
    /// server keeps the scanner and its view of the data. The stream ends after the last row or the first error.
    ///
    /// # Panics
    /// Panics outside of a tokio runtime.
    pub fn into_stream(self) -> RowStream {
        let (sender, rows) = mpsc::channel(ROWS_MAX);
        tokio::spawn(read_ahead(self, sender));
        RowStream { rows }
    }
}

impl RowStream {
    /// The next row; `None` at the end.
    pub async fn next(&mut self) -> Option<Result<Row, ClientError>> {
        self.rows.recv().await
    }
}

impl Stream for RowStream {
    type Item = Result<Row, ClientError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.rows.poll_recv(context)
    }
}

async fn read_ahead(mut scanner: Scanner, sender: mpsc::Sender<Result<Row, ClientError>>) {
    loop {
        let next = tokio::select! {
            next = scanner.next() => next,
            () = sender.closed() => break,
        };
        let Some(row) = next.transpose() else { break };
        let is_last = row.is_err();
        let Some(place) = wait_for_place(&mut scanner, &sender).await else { break };
        place.send(row);
        if is_last {
            break;
        }
    }
    scanner.close().await;
}

/// A place for a row, with renewals while the reader makes none; `None` if the reader is gone.
async fn wait_for_place<'a>(
    scanner: &mut Scanner,
    sender: &'a mpsc::Sender<Result<Row, ClientError>>,
) -> Option<mpsc::Permit<'a, Result<Row, ClientError>>> {
    loop {
        let period = scanner.renew_period().unwrap_or(RENEW_PERIOD);
        match timeout(period, sender.reserve()).await {
            Ok(place) => return place.ok(),
            // a scanner that is lost is opened again behind the rows that were read
            Err(_) => drop(scanner.renew().await),
        }
    }
}
