//! What callers wait at: as `std::sync::mpsc`, with one sender, and waits that a simulation may drive.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{RecvError, RecvTimeoutError};
use std::time::Duration;

use halcyon_env::{Condvar, Mutex};

struct Shared<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

struct State<T> {
    sent: VecDeque<T>,
    has_sender: bool,
    has_receiver: bool,
}

pub(crate) struct Sender<T>(Arc<Shared<T>>);

pub(crate) struct Receiver<T>(Arc<Shared<T>>);

pub(crate) fn channel<T>() -> (Sender<T>, Receiver<T>) {
    let state = State { sent: VecDeque::new(), has_sender: true, has_receiver: true };
    let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() });
    (Sender(shared.clone()), Receiver(shared))
}

impl<T> Sender<T> {
    /// An error gives it back: nobody receives any more.
    pub(crate) fn send(&self, value: T) -> Result<(), T> {
        let mut state = self.0.state.lock();
        if !state.has_receiver {
            return Err(value);
        }
        state.sent.push_back(value);
        drop(state);
        self.0.changed.notify_one();
        Ok(())
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.0.state.lock().has_sender = false;
        self.0.changed.notify_one();
    }
}

impl<T> Receiver<T> {
    pub(crate) fn recv(&self) -> Result<T, RecvError> {
        let mut state = self.0.state.lock();
        loop {
            match state.sent.pop_front() {
                Some(value) => return Ok(value),
                None if !state.has_sender => return Err(RecvError),
                None => self.0.changed.wait(&mut state),
            }
        }
    }

    pub(crate) fn recv_timeout(&self, time: Duration) -> Result<T, RecvTimeoutError> {
        let mut state = self.0.state.lock();
        let mut is_over = false;
        loop {
            match state.sent.pop_front() {
                Some(value) => return Ok(value),
                None if !state.has_sender => return Err(RecvTimeoutError::Disconnected),
                None if is_over => return Err(RecvTimeoutError::Timeout),
                None => is_over = self.0.changed.wait_for(&mut state, time).timed_out(),
            }
        }
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.has_receiver = false;
        state.sent.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_sent_is_received_after_the_sender_has_gone() {
        let (sender, receiver) = channel();
        assert_eq!(receiver.recv_timeout(Duration::from_millis(1)), Err(RecvTimeoutError::Timeout));
        assert_eq!((sender.send(1), sender.send(2)), (Ok(()), Ok(())));
        drop(sender);
        assert_eq!((receiver.recv(), receiver.recv_timeout(Duration::ZERO)), (Ok(1), Ok(2)));
        assert_eq!(receiver.recv(), Err(RecvError));
        assert_eq!(receiver.recv_timeout(Duration::from_secs(60)), Err(RecvTimeoutError::Disconnected));
        let (sender, receiver) = channel();
        drop(receiver);
        assert_eq!(sender.send(3), Err(3));
    }
}
