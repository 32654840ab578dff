//! One session with ZooKeeper, kept over lost connections.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use halcyon_cell::{Error, ErrorKind, Result};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout_at};
use tracing::{info, warn};
use zookeeper_client as zk;

use crate::ZooKeeperSettings;

/// Between two attempts after an error that came at once.
const PAUSE: Duration = Duration::from_millis(100);
/// A connection on which nothing comes is given up after this part of the session timeout.
///
/// The library's own part is 2/5. After the loss it may try a second member that says nothing, such as the frozen leader's
/// follower, for 2/5 more: then the lease, 2/3 of the timeout, has ended, although a third member would have answered. With a
/// sixth there is time for two silent members, even if the last renewal is a sixth old.
const SILENCES: u32 = 6;
/// The same, at most: a new session does not wait longer for a member that is frozen or cannot be reached.
const SILENCE_MAX: Duration = Duration::from_secs(5);

/// What the library answers.
pub(crate) type Asked<T> = std::result::Result<T, zk::Error>;

/// The state of the session.
#[derive(Clone)]
enum State {
    /// The library connects again by itself when it loses a connection.
    Attached(zk::Client),
    /// The library has given up; [`keep`] begins again with the same session.
    Detached,
    /// For good: ZooKeeper has ended the session, or it was closed.
    Ended(Ended),
}

/// Why there is no session any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Expired,
    Closed,
}

/// A session. It outlives every connection, until ZooKeeper itself says that it has expired.
///
/// The library takes a session for expired after 7/5 of its timeout without a connection. ZooKeeper need not: while a majority
/// of its servers is away, no session expires. So the session is taken up again, with its id and password, until a
/// server answers that it does not know it.
pub(crate) struct Session {
    settings: ZooKeeperSettings,
    info: zk::SessionInfo,
    /// The smallest that a connection was granted. Each one negotiates it anew, and members may have other limits than the first.
    timeout: watch::Sender<Duration>,
    state: watch::Sender<State>,
}

impl Session {
    /// Begins a session. The error says what was tried.
    pub(crate) async fn begin(settings: ZooKeeperSettings) -> Result<Session> {
        let deadline = Instant::now() + settings.connect_timeout;
        let mut last = None;
        let mut ask_for = settings.session_timeout;
        while Instant::now() < deadline {
            match timeout_at(deadline, connector(ask_for).connect(&settings.connect_string())).await {
                // The library gives up a connection after a time that fits what was asked for, not what was granted.
                Ok(Ok(client)) if silence(client.session_timeout()) < silence(ask_for) => {
                    ask_for = client.session_timeout();
                    continue;
                }
                Ok(Ok(client)) => return Ok(Session::of(settings, client)),
                Ok(Err(error)) => last = Some(error),
                Err(_) => break,
            }
            sleep(PAUSE).await;
        }
        let last = last.map_or_else(|| "no server has answered".to_string(), |error| error.to_string());
        let limit = settings.connect_timeout;
        Err(Error::new(ErrorKind::Io, format!("{settings}: no session within {limit:?}: {last}")))
    }

    fn of(settings: ZooKeeperSettings, client: zk::Client) -> Session {
        let (info, timeout) = (client.session().clone(), client.session_timeout());
        info!("{settings}: session {} with a timeout of {timeout:?}", info.id());
        if timeout != settings.session_timeout {
            let asked = settings.session_timeout;
            warn!(
                "{settings}: the session timeout is {timeout:?}, not {asked:?} as asked for (zookeeper.session.timeout)"
            );
        }
        let (state, _) = watch::channel(State::Attached(client));
        let (timeout, _) = watch::channel(timeout);
        Session { settings, info, timeout, state }
    }

    pub(crate) fn settings(&self) -> &ZooKeeperSettings {
        &self.settings
    }

    pub(crate) fn info(&self) -> &zk::SessionInfo {
        &self.info
    }

    /// The number by which ZooKeeper knows the session.
    pub(crate) fn id(&self) -> i64 {
        self.info.id().0
    }

    /// The session timeout that ZooKeeper granted: the smallest of all connections.
    pub(crate) fn timeout(&self) -> Duration {
        self.note_timeout();
        *self.timeout.borrow()
    }

    /// Waits until a connection was granted less than any before.
    pub(crate) async fn less_granted(&self) {
        let mut timeouts = self.timeout.subscribe();
        timeouts.changed().await.expect("the sender is in self");
    }

    fn note_timeout(&self) {
        let State::Attached(client) = &*self.state.borrow() else { return };
        let granted = client.session_timeout();
        let before = *self.timeout.borrow();
        let is_less = self.timeout.send_if_modified(|smallest| {
            let is_less = granted < *smallest;
            *smallest = granted.min(*smallest);
            is_less
        });
        if is_less {
            warn!(
                "{}: session {}: a connection was granted a timeout of {granted:?}, not {before:?} as before",
                self.settings,
                self.info.id()
            );
        }
    }

    /// The library's client, once there is one. The caller sets the deadline.
    pub(crate) async fn client(&self) -> std::result::Result<zk::Client, Ended> {
        let mut states = self.state.subscribe();
        let state = states.wait_for(|state| !matches!(state, State::Detached)).await;
        match &*state.expect("the sender is in self") {
            State::Attached(client) => Ok(client.clone()),
            State::Ended(ended) => Err(*ended),
            State::Detached => unreachable!("it was waited for another state"),
        }
    }

    /// Waits for the end of the session.
    pub(crate) async fn ended(&self) -> Ended {
        let mut states = self.state.subscribe();
        let state = states.wait_for(|state| matches!(state, State::Ended(_))).await;
        match &*state.expect("the sender is in self") {
            State::Ended(ended) => *ended,
            _ => unreachable!("it was waited for the end"),
        }
    }

    /// Makes one call, again after each lost connection, until the deadline. `what` says what is asked.
    ///
    /// A call that was begun may be carried out after its deadline.
    pub(crate) async fn call<T, F>(&self, what: &str, ask: impl Fn(zk::Client) -> F) -> Result<Answer<T>>
    where
        F: Future<Output = Asked<T>>,
    {
        let limit = self.settings.call_timeout;
        let deadline = Instant::now() + limit;
        let mut last = "ZooKeeper has not answered".to_string();
        while let Ok(client) = timeout_at(deadline, self.client()).await {
            let client = client.map_err(|ended| self.ended_error(what, ended))?;
            let answered = tokio::select! {
                answered = timeout_at(deadline, ask(client)) => answered,
                // The library closes a session when no call has its client any more.
                ended = self.ended() => return Err(self.ended_error(what, ended)),
            };
            match answered {
                Ok(Ok(answer)) => return Ok(Answer::Done(answer)),
                Ok(Err(zk::Error::NoNode)) => return Ok(Answer::NoNode),
                Ok(Err(zk::Error::NodeExists)) => return Ok(Answer::NodeExists),
                Ok(Err(error)) if is_passing(&error) => last = error.to_string(),
                Ok(Err(error)) => return Err(self.error(ErrorKind::Io, what, &error.to_string())),
                Err(_) => break,
            }
            sleep(PAUSE).await;
        }
        Err(self.error(ErrorKind::Io, what, &format!("no answer within {limit:?}: {last}")))
    }

    fn ended_error(&self, what: &str, ended: Ended) -> Error {
        match ended {
            Ended::Expired => self.error(ErrorKind::Expired, what, "the session has expired"),
            Ended::Closed => self.error(ErrorKind::Stopping, what, "the session was closed"),
        }
    }

    pub(crate) fn error(&self, kind: ErrorKind, what: &str, why: &str) -> Error {
        Error::new(kind, format!("{}: {what}: {why}", self.settings))
    }

    /// Ends the session, so that ZooKeeper need not wait for it to expire. The caller sets the deadline, and has ended every
    /// task that holds a client.
    pub(crate) async fn close(&self) {
        let before = self.state.send_replace(State::Ended(Ended::Closed));
        if let State::Attached(client) = before {
            let mut states = client.state_watcher();
            drop(client); // the last one: the library then closes the session
            while !states.peek_state().is_terminated() {
                states.changed().await;
            }
        }
    }

    pub(crate) fn has_ended(&self) -> bool {
        matches!(*self.state.borrow(), State::Ended(_))
    }

    /// Replaces the state; false if the session has ended already.
    fn change(&self, state: State) -> bool {
        self.state.send_if_modified(|known| {
            let changes = !matches!(known, State::Ended(_));
            if changes {
                *known = state;
            }
            changes
        })
    }
}

/// An answer of ZooKeeper's.
#[derive(Debug)]
pub(crate) enum Answer<T> {
    Done(T),
    NoNode,
    NodeExists,
}

/// A connection is given up after such a silence.
fn silence(session_timeout: Duration) -> Duration {
    (session_timeout / SILENCES).min(SILENCE_MAX)
}

pub(crate) fn connector(session_timeout: Duration) -> zk::Connector {
    let connector = zk::Client::connector().with_session_timeout(session_timeout);
    connector.with_connection_timeout(silence(session_timeout))
}

/// Whether the same call may succeed when it is made again.
fn is_passing(error: &zk::Error) -> bool {
    matches!(
        error,
        // The library also answers `SessionExpired` when it has given up; `keep` finds out what is true.
        zk::Error::ConnectionLoss
            | zk::Error::SessionExpired
            | zk::Error::SessionMoved
            | zk::Error::Timeout
            | zk::Error::NoHosts
            | zk::Error::Throttled
            | zk::Error::ClientClosed
            | zk::Error::Custom(_)
    )
}

/// Follows the session until it has ended. Connections that come back are no news to anybody but the log.
pub(crate) async fn keep(session: Arc<Session>) {
    let (at, id) = (&session.settings, session.info.id());
    while let Ok(client) = session.client().await {
        let last = follow(&session, client).await;
        if !session.change(State::Detached) {
            return;
        }
        info!("{at}: session {id}: the library has given up ({last}); taking the session up again");
        match take_up(&session).await {
            Some(client) => session.change(State::Attached(client)),
            None => session.change(State::Ended(Ended::Expired)),
        };
    }
    info!("{at}: session {id} has ended");
}

/// Returns when the library's client has given up.
async fn follow(session: &Session, client: zk::Client) -> zk::SessionState {
    let mut states = client.state_watcher();
    // The watcher tells of states that come after it. It holds no client, so that `close` may drop the last one.
    let mut state = client.state();
    drop(client);
    while !state.is_terminated() {
        state = states.changed().await;
        session.note_timeout();
        info!("{}: session {}: {state}", session.settings, session.info.id());
    }
    state
}

/// Connects with the id and the password of the session. `None`: a server says that the session has expired.
async fn take_up(session: &Session) -> Option<zk::Client> {
    while !session.has_ended() {
        let connector = connector(session.timeout()).with_session(session.info.clone());
        match connector.connect(&session.settings.connect_string()).await {
            Ok(client) if client.session_id() == session.info.id() => return Some(client),
            Ok(_) | Err(zk::Error::SessionExpired) => return None,
            Err(error) => {
                info!("{}: session {}: {error}", session.settings, session.info.id());
                sleep(PAUSE).await;
            }
        }
    }
    None
}
