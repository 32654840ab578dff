use super::select::StoreState;

/// Files of which no reader sees a cell any more: they can go without being read.
///
/// The newest file always stays. It remembers the store's highest sequence id
/// (`DefaultStoreFileManager.getUnneededFiles`).
pub(super) fn expired(store: &StoreState<'_>) -> Vec<usize> {
    let Some(ttl_ms) = store.file_ttl_ms else { return Vec::new() };
    let oldest_unexpired = store.now_ms.saturating_sub(ttl_ms);
    let older = store.files.len().saturating_sub(1);
    let is_expired = |at: &usize| {
        let file = &store.files[*at];
        file.entries == 0 || file.time_range.is_some_and(|(_, newest)| newest < oldest_unexpired)
    };
    (0..older).filter(is_expired).collect()
}
