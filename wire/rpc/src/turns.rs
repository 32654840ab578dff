//! Places for work of which little is done at a time, with turns for those who wait: one for each peer, then the next one of
//! each. A peer that is alone has all places, and however much of it waits, another waits for one turn of it.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;

/// See the head of the file. *Thread safety*: one short lock.
#[derive(Debug)]
pub(crate) struct Turns(Mutex<State>);

#[derive(Debug)]
struct State {
    free: usize,
    /// Peers of whom something waits, in the order of their turns.
    peers: VecDeque<(u64, VecDeque<oneshot::Sender<Turn>>)>,
}

/// A place, until dropped.
#[derive(Debug)]
pub(crate) struct Turn(Option<Arc<Turns>>);

impl Turns {
    pub fn new(places: usize) -> Arc<Turns> {
        assert!(places > 0, "somebody has to have a turn");
        Arc::new(Turns(Mutex::new(State { free: places, peers: VecDeque::new() })))
    }

    /// A place, as soon as it is this peer's turn.
    pub async fn await_turn(self: &Arc<Self>, peer: u64) -> Turn {
        let receiver = {
            let mut state = self.0.lock();
            if state.free > 0 {
                assert!(state.peers.is_empty(), "nobody waits while a place is free");
                state.free -= 1;
                return Turn(Some(Arc::clone(self)));
            }
            let (sender, receiver) = oneshot::channel();
            match state.peers.iter_mut().find(|(other, _)| *other == peer) {
                Some((_, waiting)) => waiting.push_back(sender),
                None => state.peers.push_back((peer, VecDeque::from([sender]))),
            }
            receiver
        };
        receiver.await.expect("who waits is told before it is forgotten")
    }

    /// Gives a place to the next one; those that do not wait any more are passed over.
    fn hand_on(self: &Arc<Self>) {
        loop {
            let sender = {
                let mut state = self.0.lock();
                let Some((peer, mut waiting)) = state.peers.pop_front() else {
                    state.free += 1;
                    return;
                };
                let sender = waiting.pop_front().expect("of a peer in the queue something waits");
                if !waiting.is_empty() {
                    state.peers.push_back((peer, waiting));
                }
                sender
            };
            match sender.send(Turn(Some(Arc::clone(self)))) {
                Ok(()) => return,
                Err(mut turn) => turn.0 = None, // the place goes to the next one instead
            }
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(turns) = self.0.take() {
            turns.hand_on();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::{Pin, pin};
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn turn(future: Pin<&mut impl Future<Output = Turn>>) -> Option<Turn> {
        match future.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(turn) => Some(turn),
            Poll::Pending => None,
        }
    }

    /// A peer with many large cell blocks had its turns first, however many others came behind it.
    #[test]
    fn peers_have_turns_and_one_alone_has_all_places() {
        let turns = Turns::new(2);
        let (mut first, mut second) = (pin!(turns.await_turn(1)), pin!(turns.await_turn(1)));
        let (first, second) = (turn(first.as_mut()), turn(second.as_mut()));
        assert!(first.is_some() && second.is_some(), "alone it has all");
        let (mut third, mut fourth) = (pin!(turns.await_turn(1)), pin!(turns.await_turn(1)));
        let mut of_other = pin!(turns.await_turn(2));
        assert!(turn(third.as_mut()).is_none() && turn(fourth.as_mut()).is_none());
        assert!(turn(of_other.as_mut()).is_none());
        drop(first);
        let third = turn(third.as_mut()).expect("it came first");
        drop(third);
        assert!(turn(fourth.as_mut()).is_none(), "its peer had its turn");
        let of_other = turn(of_other.as_mut()).expect("the other's turn");
        drop((second, of_other));
        assert!(turn(fourth.as_mut()).is_some());
        assert_eq!(turns.0.lock().free, 2, "all is given back");
    }

    #[test]
    fn who_does_not_wait_any_more_has_no_turn() {
        let turns = Turns::new(1);
        let held = turn(pin!(turns.await_turn(1)).as_mut()).expect("it is free");
        {
            let mut gone = Box::pin(turns.await_turn(2));
            assert!(turn(gone.as_mut()).is_none());
        }
        let mut told_and_gone = Box::pin(turns.await_turn(3));
        assert!(turn(told_and_gone.as_mut()).is_none());
        let mut next = pin!(turns.await_turn(4));
        assert!(turn(next.as_mut()).is_none());
        drop(held);
        drop(told_and_gone);
        assert!(turn(next.as_mut()).is_some());
        assert_eq!(turns.0.lock().free, 1);
    }
}
