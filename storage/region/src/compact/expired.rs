use super::state::StoreState;

/// Files of which no reader sees a cell any more: they can go without being read.
///
/// The newest file always stays, of each stripe and of level 0. It remembers the store's highest sequence id, and that
/// there is the stripe (`getUnneededFiles` of `DefaultStoreFileManager` and `StripeStoreFileManager`).
pub(super) fn expired(store: &StoreState<'_>) -> Vec<usize> {
    let Some(ttl_ms) = store.file_ttl_ms else { return Vec::new() };
    let oldest_unexpired = store.now_ms.saturating_sub(ttl_ms);
    let has_newer = |at: &usize| {
        let (file, newer) = (&store.files[*at], &store.files[*at + 1..]);
        newer.iter().any(|other| other.stripe == file.stripe)
    };
    let is_expired = |at: &usize| {
        let file = &store.files[*at];
        file.entries == 0 || file.time_range.is_some_and(|(_, newest)| newest < oldest_unexpired)
    };
    (0..store.files.len()).filter(is_expired).filter(has_newer).collect()
}
