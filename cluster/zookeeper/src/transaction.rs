//! Several writes of which ZooKeeper carries out all or none.

use halcyon_cell::{ErrorKind, Result};
use zookeeper_client as zk;

use crate::session::{Answer, Asked, Session};

/// One part of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Write {
    /// The znode is there, with this version of its data if one is given.
    Check {
        path: String,
        version: Option<i32>,
    },
    Create {
        path: String,
        data: Vec<u8>,
        mode: zk::CreateMode,
    },
    Set {
        path: String,
        data: Vec<u8>,
        version: Option<i32>,
    },
    Delete {
        path: String,
        version: Option<i32>,
    },
}

/// What became of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Done,
    /// Nothing was written, because of the write with this index. An earlier attempt whose answer was lost may have been carried out.
    Refused {
        index: usize,
        why: zk::Error,
    },
}

/// Asks for a transaction, again after each lost connection. `what` says what is asked.
pub(crate) async fn commit(session: &Session, what: &str, writes: &[Write]) -> Result<Outcome> {
    let ask = |client| commit_once(client, writes);
    match session.call(what, ask).await? {
        Answer::Done(outcome) => Ok(outcome),
        other => Err(session.error(ErrorKind::Io, what, &format!("{other:?} is no answer to a transaction"))),
    }
}

async fn commit_once(client: zk::Client, writes: &[Write]) -> Asked<Outcome> {
    let mut transaction = client.new_multi_writer();
    for write in writes {
        match write {
            Write::Check { path, version } => transaction.add_check_version(path, version.unwrap_or(-1))?,
            Write::Create { path, data, mode } => {
                transaction.add_create(path, data, &mode.with_acls(zk::Acls::anyone_all()))?;
            }
            Write::Set { path, data, version } => transaction.add_set_data(path, data, *version)?,
            Write::Delete { path, version } => transaction.add_delete(path, *version)?,
        }
    }
    match transaction.commit().await {
        Ok(_) => Ok(Outcome::Done),
        Err(zk::MultiWriteError::OperationFailed { index, source }) => {
            Ok(Outcome::Refused { index, why: source })
        }
        Err(zk::MultiWriteError::RequestFailed { source }) => Err(source),
    }
}
