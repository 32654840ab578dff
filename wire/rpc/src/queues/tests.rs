use super::*;

fn is_full(queues: &Queues, class: CallClass, own: &OwnWaiting, peer: &Peer, share: f64) -> bool {
    let share = Share { peer: share, now_ns: 0 };
    queues.is_full(class, &Asker { own, connection: 1, peer, share })
}

#[test]
fn shares_of_the_classes_are_the_whole() {
    assert_eq!(BYTES_SHARES.iter().sum::<usize>() + ARRIVING_SHARE, BYTES_SHARES_SUM);
    let limits = QueueLimits::new(1, 1 << 20);
    let sum: usize = CallClass::ALL.iter().map(|class| limits.class_bytes_max(*class)).sum();
    assert_eq!(sum + limits.arriving_bytes_max(), 1 << 20);
    for (at, class) in CallClass::ALL.iter().enumerate() {
        assert_eq!(class.index(), at);
    }
}

#[test]
#[should_panic(expected = "calls that wait: 1 are taken off, 0 are there")]
fn a_call_cannot_end_twice() {
    let peer = Peer::default();
    let queues = Queues::new(QueueLimits::new(2, 1600 << 10));
    queues.begin_wait(CallClass::Scan, 10, &peer);
    queues.end_wait(CallClass::Scan, 10, &peer);
    queues.end_wait(CallClass::Scan, 10, &peer);
}

#[test]
fn a_full_class_leaves_the_others_alone() {
    let peer = Peer::default();
    let queues = Queues::new(QueueLimits::new(2, 1600 << 10));
    let is_full = |class| is_full(&queues, class, &OwnWaiting::default(), &Peer::default(), 0.5);
    queues.begin_wait(CallClass::Scan, 10, &Peer::default());
    assert!(!is_full(CallClass::Scan));
    queues.begin_wait(CallClass::Scan, 10, &Peer::default());
    assert!(is_full(CallClass::Scan), "by calls");
    queues.begin_wait(CallClass::Write, 1000 << 10, &peer);
    assert!(is_full(CallClass::Write), "by bytes");
    assert!(!is_full(CallClass::Read) && !is_full(CallClass::Meta));
    queues.end_wait(CallClass::Write, 1000 << 10, &peer);
    assert!(!is_full(CallClass::Write));
    assert_eq!((queues.calls_waiting(), queues.request_bytes()), (2, 2 * (10 + CALL_BYTES)));
}

/// One after the other, each takes what it gets: the first one half, and the last one a place.
#[test]
fn no_connection_has_more_of_a_class_than_what_is_left() {
    for (calls_max, request_bytes_max, frame_bytes) in [(64, 1 << 30, 100), (1 << 20, 8 << 20, 8 << 10)] {
        let queues = Queues::new(QueueLimits::new(calls_max, request_bytes_max));
        let (peer, mut taken) = (Peer::default(), Vec::new());
        peer.wanting.note(2, 0);
        for _ in 0..8 {
            let mut own = OwnWaiting::default();
            while !is_full(&queues, CallClass::Scan, &own, &peer, 1.0) {
                queues.begin_wait(CallClass::Scan, frame_bytes, &peer);
                own.add(frame_bytes);
            }
            taken.push(own.calls);
        }
        assert_eq!(taken, [33, 16, 8, 4, 2, 1, 0, 0], "{calls_max} {request_bytes_max}");
    }
}

/// A dozen connections of one address took all places of a class.
#[test]
fn no_peer_has_more_of_a_class_than_its_share() {
    for (calls_max, request_bytes_max, frame_bytes) in [(64, 1 << 30, 100), (1 << 20, 8 << 20, 8 << 10)] {
        let queues = Queues::new(QueueLimits::new(calls_max, request_bytes_max));
        let peers: [Peer; 4] = Default::default();
        queues.note_refused(CallClass::Scan, &Peer::default(), 9, 0);
        let mut taken = [0; 4];
        for (peer, taken) in peers.iter().zip(&mut taken) {
            for _ in 0..16 {
                let mut own = OwnWaiting::default();
                while !is_full(&queues, CallClass::Scan, &own, peer, 0.5) {
                    queues.begin_wait(CallClass::Scan, frame_bytes, peer);
                    own.add(frame_bytes);
                    *taken += 1;
                }
            }
        }
        assert_eq!(taken, [33, 16, 8, 4], "{calls_max} {request_bytes_max}");
        for (peer, taken) in peers.iter().zip(taken) {
            (0..taken).for_each(|_| queues.end_wait(CallClass::Scan, frame_bytes, peer));
            assert_eq!(peer.waiting_bytes[CallClass::Scan.index()].load(Ordering::Relaxed), 0);
        }
        assert_eq!((queues.calls_waiting(), queues.request_bytes()), (0, 0));
    }
}

/// A loader that nobody stood beside had a quarter of its class, and the rest of its batches were refused.
#[test]
fn who_is_alone_has_all_that_is_idle() {
    for (calls_max, request_bytes_max, frame_bytes) in [(64, 1 << 30, 100), (1 << 20, 8 << 20, 8 << 10)] {
        let queues = Queues::new(QueueLimits::new(calls_max, request_bytes_max));
        let (loader, newcomer) = (Peer::default(), Peer::default());
        let mut own = OwnWaiting::default();
        let wait = |own: &mut OwnWaiting, peer: &Peer| {
            let has_room = !is_full(&queues, CallClass::Scan, own, peer, 0.5);
            if has_room {
                queues.begin_wait(CallClass::Scan, frame_bytes, peer);
                own.add(frame_bytes);
            }
            has_room
        };
        let taken = (0..64).filter(|_| wait(&mut own, &loader)).count();
        assert_eq!(taken, 61, "fifteen sixteenths, and the call that is over it");
        queues.note_refused(CallClass::Scan, &loader, 1, 0);
        let mut others = OwnWaiting::default();
        assert!(wait(&mut others, &newcomer), "there is a place for who comes next");
        assert!(wait(&mut others, &newcomer));
        assert!(!wait(&mut others, &newcomer), "the loader wants more as well");
        queues.note_refused(CallClass::Scan, &newcomer, 2, 0);
        for _ in 0..29 {
            queues.end_wait(CallClass::Scan, frame_bytes, &loader);
            own.sub(frame_bytes);
            assert!(!wait(&mut own, &loader), "it has more than its share of what another wants");
        }
        let taken = (0..64).filter(|_| wait(&mut others, &newcomer)).count();
        assert!(taken >= 12, "{taken}");
    }
}

#[test]
fn clients_that_take_nothing_leave_room_for_others() {
    let connection = |id| Arc::new(Connection::new(id, ""));
    let terms = |connection: &Arc<Connection>, class| Terms {
        class,
        deadline_ns: u64::MAX,
        connection: connection.clone(),
        call_id: 0,
        is_traced: false,
        attributes: Vec::new(),
    };
    let queues = Queues::new(QueueLimits { answer_bytes_max: 1000, ..QueueLimits::new(10, 1600) });
    let (silent, other) = (connection(1), connection(2));
    let first = queues.reserve(&terms(&silent, CallClass::Scan), 300).expect("alone");
    let refused = queues.reserve(&terms(&silent, CallClass::Scan), 100).err();
    assert_eq!(refused, Some(NoRoom::ForConnection), "300 and 100 of the 350 that it may have");
    assert_eq!(queues.reserve(&terms(&other, CallClass::Scan), 300).err(), Some(NoRoom::ForClass));
    let second = queues.reserve(&terms(&other, CallClass::Read), 300).expect("a read may have more");
    assert_eq!(queues.reserved_bytes(), 600);
    drop((first, second));
    assert_eq!((queues.reserved_bytes(), queues.connection_bytes_max()), (0, 500));
    let mut growing = queues.reserve(&terms(&other, CallClass::Read), 300).expect("alone");
    assert!(growing.grow(CallClass::Read, 900), "one that is alone gets what it needs");
    drop(growing);
    let mut growing = queues.reserve(&terms(&other, CallClass::Read), 300).expect("alone");
    let announced = queues.reserve(&terms(&other, CallClass::Read), 50).expect("there is room");
    assert!(growing.grow(CallClass::Read, 300) && !growing.grow(CallClass::Read, 200), "750 are for reads");
    assert_eq!(queues.reserved_bytes(), 650);
    drop(growing.joined(announced));
    assert_eq!(queues.reserved_bytes(), 0);
    queues.add_response_bytes(600);
    let is_full = |class| is_full(&queues, class, &OwnWaiting::default(), &Peer::default(), 0.5);
    assert!(is_full(CallClass::Scan) && !is_full(CallClass::Read) && queues.is_crowded());
    queues.sub_response_bytes(600);
    assert!(!is_full(CallClass::Scan) && !queues.is_crowded());
    assert_eq!((queues.response_bytes(), queues.connection_bytes_max()), (0, 500), "all is given back");
}
