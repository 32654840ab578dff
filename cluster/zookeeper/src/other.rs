//! The session of another process, as its keeper sees it: how it is ended, and whether it has ended.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use halcyon_cell::{Error, ErrorKind, Result};
use tokio::time::{Instant, sleep, timeout_at};
use zookeeper_client as zk;

use crate::ZooKeeperSettings;
use crate::session::{Session, connector};

/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(50);
/// ZooKeeper's passwords have 16 bytes.
const PASSWORD_BYTES_MAX: usize = 64;

/// With this another process can end a session. As text it is one word.
#[derive(Clone, PartialEq, Eq)]
pub struct SessionKey {
    id: i64,
    password: Vec<u8>,
}

impl SessionKey {
    pub(crate) fn new(info: &zk::SessionInfo) -> SessionKey {
        SessionKey { id: info.id().0, password: info.password().to_vec() }
    }

    fn info(&self) -> zk::SessionInfo {
        zk::SessionInfo::from_parts(zk::SessionId(self.id), self.password.clone())
    }
}

impl fmt::Display for SessionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}:", self.id)?;
        self.password.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Without the password: this is what goes to the log output.
impl fmt::Debug for SessionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "session {:#x}", self.id)
    }
}

impl FromStr for SessionKey {
    type Err = Error;

    fn from_str(text: &str) -> Result<SessionKey> {
        let malformed = || Error::invalid("the key of a session is malformed");
        let (id, password) = text.split_once(':').ok_or_else(malformed)?;
        let id = u64::from_str_radix(id, 16).map_err(|_| malformed())? as i64;
        if !password.is_ascii() || password.len() % 2 != 0 || password.len() > 2 * PASSWORD_BYTES_MAX {
            return Err(malformed());
        }
        let byte = |at: usize| u8::from_str_radix(&password[at..at + 2], 16).map_err(|_| malformed());
        let password = (0..password.len()).step_by(2).map(byte).collect::<Result<_>>()?;
        Ok(SessionKey { id, password })
    }
}

impl ZooKeeperSettings {
    /// Ends the session of a process that has ended, and with it all its ephemeral znodes. False: it had ended already.
    ///
    /// The process must have ended: one that lives would lose its session. An error after the session timeout, when ZooKeeper has
    /// ended it anyway, if it can be reached by anybody.
    pub async fn end_session(&self, key: &SessionKey) -> Result<bool> {
        let deadline = Instant::now() + self.session_timeout;
        let mut last = "no server has answered".to_string();
        while Instant::now() < deadline {
            let connector = connector(self.session_timeout).with_session(key.info());
            match timeout_at(deadline, connector.connect(&self.connect_string())).await {
                Ok(Ok(client)) if client.session_id().0 == key.id => {
                    let mut states = client.state_watcher();
                    drop(client); // the last one: the library then closes the session
                    let closed = async { while !states.changed().await.is_terminated() {} };
                    if timeout_at(deadline, closed).await.is_ok() {
                        return Ok(true);
                    }
                }
                Ok(Ok(_) | Err(zk::Error::SessionExpired)) => return Ok(false),
                Ok(Err(error)) => last = error.to_string(),
                Err(_) => break,
            }
            sleep(PAUSE).await;
        }
        Err(Error::new(ErrorKind::Io, format!("{self}: {key:?} could not be ended: {last}")))
    }

    /// Waits until a session that had an ephemeral znode has it no more. Has a session of its own meanwhile.
    ///
    /// An error if no session can be had. Cancel safe: the own session ends with the future, when it expires.
    pub async fn lost_znode(&self, key: &SessionKey, znode: &str) -> Result<()> {
        let session = Session::begin(self.clone()).await?;
        let lost = async {
            loop {
                let client = session.client().await.map_err(|_| zk::Error::SessionExpired)?;
                let (stat, changed) = client.check_and_watch_stat(znode).await?;
                if stat.is_none_or(|stat| stat.ephemeral_owner != key.id) {
                    return Ok(());
                }
                changed.changed().await;
            }
        };
        let lost: std::result::Result<(), zk::Error> = lost.await;
        session.close().await;
        lost.map_err(|error| session.error(ErrorKind::Io, &format!("watch {znode}"), &error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_one_word_that_is_read_back() {
        for (id, password) in [(1, vec![0, 255, 16]), (-1, Vec::new()), (i64::MIN, vec![7; 64])] {
            let key = SessionKey { id, password };
            let text = key.to_string();
            assert!(!text.contains(char::is_whitespace), "{text}");
            assert_eq!(text.parse::<SessionKey>().unwrap(), key);
        }
        for odd in ["", "1", ":", "1:0", "1:0g", "x:00", "1:é0", &format!("1:{}", "0".repeat(130))] {
            assert!(odd.parse::<SessionKey>().is_err(), "{odd}");
        }
    }

    #[test]
    fn the_password_is_not_logged() {
        let key = SessionKey { id: 255, password: vec![0xab; 16] };
        assert_eq!(format!("{key:?}"), "session 0xff");
    }
}
