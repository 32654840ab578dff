//! Signals that end the process.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGTERM and SIGINT, watched from the moment this is made.
pub struct StopSignals {
    term: Signal,
    int: Signal,
}

impl StopSignals {
    pub fn watch() -> std::io::Result<StopSignals> {
        Ok(StopSignals { term: signal(SignalKind::terminate())?, int: signal(SignalKind::interrupt())? })
    }

    /// The next one, by name.
    pub async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.term.recv() => "SIGTERM",
            _ = self.int.recv() => "SIGINT",
        }
    }
}
