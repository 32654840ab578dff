//! Scans: one long one of which each row is a step, or many short ones.

use std::sync::Arc;

use bytes::Bytes;
use halcyon_client::{ClientError, Row, Scan, Scanner, Table};
use halcyon_proto::pb;
use tokio::sync::mpsc;

use crate::pe::found::Found;
use crate::pe::options::{Command, Options};
use crate::pe::rows::{Columns, family, filter, format_row, generate_value, random_row};
use crate::random::Random;

/// Rows after which randomSeekScan ends.
const SEEK_SCAN_ROWS: i64 = 120;

/// Scans a table.
pub(super) struct Scans {
    table: Table,
    options: Arc<Options>,
    columns: Vec<pb::Column>,
    start_row: u64,
    long: Option<Rows>,
    found: Arc<Found>,
}

impl Scans {
    pub fn new(table: Table, options: Arc<Options>, start_row: u64, found: Arc<Found>) -> Scans {
        let columns = Columns::new(&options).wanted(options.args.add_columns);
        Scans { table, options, columns, start_row, long: None, found }
    }

    /// The next row of the long scan, or one short scan.
    pub async fn row(&mut self, random: &mut Random) -> Result<bool, ClientError> {
        let range = match self.options.args.command {
            Command::ScanRange10 => Some(10),
            Command::ScanRange100 => Some(100),
            Command::ScanRange1000 => Some(1_000),
            Command::ScanRange10000 => Some(10_000),
            _ => None,
        };
        match (self.options.args.command, range) {
            (_, Some(range)) => {
                let start = random_row(random, &self.options);
                let mut scan = self.template();
                scan.start_row = Some(format_row(start));
                scan.stop_row = Some(format_row(start + range));
                self.whole(scan).await?;
            }
            (Command::RandomSeekScan, _) => {
                let mut scan = self.template();
                scan.start_row = Some(format_row(random_row(random, &self.options)));
                let page = filter::page_while(SEEK_SCAN_ROWS);
                scan.filter = Some(filter::list(scan.filter.take().into_iter().chain([page]).collect()));
                self.whole(scan).await?;
            }
            (Command::FilterScan, _) => {
                let mut scan = self.template();
                let value = Bytes::from(generate_value(random, self.options.args.value_size));
                let wanted = filter::column_value(family(0), Bytes::from_static(b"0"), value);
                scan.column.truncate(1);
                scan.filter = Some(filter::list([wanted].into_iter().chain(scan.filter.take()).collect()));
                self.whole(scan).await?;
            }
            _ => {
                let long = match &mut self.long {
                    Some(long) => long,
                    None => {
                        let mut scan = self.template();
                        if self.options.args.command == Command::ReverseScan {
                            scan.reversed = Some(true);
                        } else {
                            scan.start_row = Some(format_row(self.start_row));
                        }
                        let rows = self.open(scan);
                        self.long.insert(rows)
                    }
                };
                // a scan that is at its end stays there
                if let Some(row) = long.next().await? {
                    self.found.row(&row);
                }
            }
        }
        Ok(true)
    }

    fn template(&self) -> pb::Scan {
        let args = &self.options.args;
        let read_type = match args.scan_read_type.to_ascii_lowercase().as_str() {
            "stream" => pb::scan::ReadType::Stream,
            "pread" => pb::scan::ReadType::Pread,
            _ => pb::scan::ReadType::Default,
        };
        pb::Scan {
            column: self.columns.clone(),
            cache_blocks: Some(args.cache_blocks),
            filter: args.filter_all.then(filter::all),
            read_type: Some(read_type as i32),
            ..Default::default()
        }
    }

    async fn whole(&self, scan: pb::Scan) -> Result<(), ClientError> {
        let mut rows = self.open(scan);
        while let Some(row) = rows.next().await? {
            self.found.row(&row);
        }
        rows.close().await;
        Ok(())
    }

    fn open(&self, scan: pb::Scan) -> Rows {
        let run = self.table.scan(Scan::from(scan).caching(self.options.args.caching));
        match self.options.args.async_prefetch {
            true => Rows::ahead(run, self.options.args.caching as usize),
            false => Rows::Asked(Box::new(run)),
        }
    }

    pub async fn finish(&mut self) -> Result<(), ClientError> {
        if let Some(long) = self.long.take() {
            long.close().await;
        }
        Ok(())
    }
}

/// Rows of a scan: fetched when they are asked for, or by a task that is a call ahead (HBase:
/// `ClientAsyncPrefetchScanner`).
enum Rows {
    Asked(Box<Scanner>),
    Ahead(mpsc::Receiver<Result<Row, ClientError>>),
}

impl Rows {
    fn ahead(mut run: Scanner, rows_max: usize) -> Rows {
        let (sender, receiver) = mpsc::channel(rows_max);
        tokio::spawn(async move {
            while let Some(row) = run.next().await.transpose() {
                let is_last = row.is_err();
                // whoever wanted the rows may be gone
                if sender.send(row).await.is_err() || is_last {
                    break;
                }
            }
            run.close().await;
        });
        Rows::Ahead(receiver)
    }

    async fn next(&mut self) -> Result<Option<Row>, ClientError> {
        match self {
            Rows::Asked(run) => run.next().await,
            Rows::Ahead(rows) => rows.recv().await.transpose(),
        }
    }

    async fn close(self) {
        if let Rows::Asked(run) = self {
            run.close().await;
        }
    }
}
