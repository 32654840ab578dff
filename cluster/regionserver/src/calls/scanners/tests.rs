use super::*;

const LIMITS: ScannerLimits = ScannerLimits { open_count_max: 64, peer_share: 0.5 };

fn opener(peer: u8, connection: u64) -> Opener {
    Opener { connection, peer: Some([10, 0, 0, peer].into()) }
}

/// Opens as many as it gets, or `most`, with ids from `begin` on.
fn open(state: &mut State, opener: Opener, begin: u64, most: usize) -> usize {
    let mut count = 0;
    while count < most && !state.counts.is_full(&opener, 1, &LIMITS) {
        let id = begin + count as u64;
        let entry = Entry {
            opener,
            user: opener.connection,
            held_bytes: 0,
            places: 1,
            next_call_seq: 0,
            has_connection: true,
            holding: Holding::Busy,
        };
        state.insert(id, entry);
        count += 1;
    }
    count
}

/// One connection opened all scanners of the server in a second and a half, and nobody else could scan.
#[test]
fn no_connection_and_no_peer_takes_all_scanners() {
    let mut state = State::default();
    let of_one: Vec<usize> = (0..6)
        .map(|connection| open(&mut state, opener(1, connection), connection * 100, usize::MAX))
        .collect();
    assert_eq!(of_one, [16, 8, 4, 2, 1, 1], "half of all, in falling parts");
    assert_eq!(open(&mut state, opener(2, 10), 1_000, 3), 3, "others have some");
    for id in 0..16 {
        state.remove(id);
    }
    assert!(open(&mut state, opener(1, 7), 2_000, usize::MAX) > 0, "what is closed is another's");
    for id in 0..3_000 {
        state.remove(id);
    }
    assert!(state.open.is_empty() && state.counts.all() == 0);
    assert!(state.counts.by_connection.is_empty() && state.counts.by_peer.is_empty());
    assert!(state.by_user.is_empty());
}

/// One that asked for more than it may have ended scanners of others, who were only coming back with another connection.
#[test]
fn who_has_all_that_it_may_have_ends_no_scanner_of_another() {
    let mut state = State::default();
    let (one, other) = (opener(1, 1), opener(2, 2));
    open(&mut state, one, 0, 10);
    open(&mut state, other, 100, 10);
    assert!(state.remove_unconnected(&one, 1, &LIMITS).is_empty());
    for id in [3, 4, 100, 101, 102] {
        let entry = state.open.get_mut(&id).unwrap();
        entry.has_connection = false;
        *state.unconnected.entry(entry.opener.peer).or_default() += 1;
    }
    assert_eq!(state.remove_unconnected(&one, 1, &LIMITS).len(), 2, "its own");
    assert!(state.remove_unconnected(&one, 1, &LIMITS).is_empty());
    let full = ScannerLimits { open_count_max: 18, ..LIMITS };
    assert!(state.remove_unconnected(&one, 1, &full).is_empty(), "it would have none for that");
    assert_eq!(state.remove_unconnected(&opener(3, 3), 1, &full).len(), 3, "all, for one who has none");
    assert!(state.unconnected.is_empty());
}

/// Each scanner was counted with 4 KiB, and kept the frame of its call: a message of some megabytes for each.
#[test]
fn a_scanner_with_a_long_message_counts_as_several() {
    let mut counts = OpenCounts::default();
    let (one, same_peer, other) = (opener(1, 1), opener(1, 2), opener(2, 3));
    assert!(counts.is_full(&one, 65, &LIMITS), "more than all");
    assert!(!counts.is_full(&one, 40, &LIMITS), "more than its share, but the first of its peer");
    counts.add(one, 40);
    assert!(counts.is_full(&one, 1, &LIMITS) && counts.is_full(&same_peer, 1, &LIMITS));
    assert!(counts.is_full(&other, 25, &LIMITS) && !counts.is_full(&other, 18, &LIMITS));
    counts.add(other, 18);
    counts.sub(one, 40);
    assert_eq!((counts.all(), counts.of(&one), counts.of(&other)), (18, 0, 18));
    assert!(!counts.is_full(&one, 10, &LIMITS), "a quarter of what the other leaves");
}

/// The first scanner of a peer was taken in if only it was within all, so one with a filter of some MiB left nothing to others.
#[test]
fn a_very_large_scanner_leaves_places_to_others() {
    let mut counts = OpenCounts::default();
    let (one, other, third) = (opener(1, 1), opener(2, 2), opener(3, 3));
    assert!(counts.is_full(&one, 64, &LIMITS) && counts.is_full(&one, 49, &LIMITS));
    assert!(!counts.is_full(&one, 48, &LIMITS), "three quarters of all");
    counts.add(one, 48);
    assert!(counts.is_full(&other, 13, &LIMITS));
    assert!(!counts.is_full(&other, 12, &LIMITS), "three quarters of what is left");
    counts.add(other, 12);
    assert!(!counts.is_full(&third, 3, &LIMITS) && counts.is_full(&third, 4, &LIMITS));
    let alone = ScannerLimits { peer_share: 1.0, ..LIMITS };
    assert!(!OpenCounts::default().is_full(&one, 64, &alone), "as the setting says");
}
