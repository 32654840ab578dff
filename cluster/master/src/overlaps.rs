//! Which regions are merged so that none overlap (HBase: `MetaFixer.calculateMerges`).
//!
//! Regions that overlap in a row become one, up to a number of regions at a time: a merge closes all of them at once. No
//! region is in two merges, because the second would not find it any more. What is left over, the next repair takes.

use std::collections::{BTreeSet, HashSet};

use halcyon_schema::RegionInfo;

use crate::hbck::furthest_of;

/// Of the pairs of one table, in the order of its regions. Each merge has two regions at least, sorted.
pub(crate) fn merges<'a>(
    pairs: impl IntoIterator<Item = (&'a RegionInfo, &'a RegionInfo)>,
    count_max: usize,
) -> Vec<Vec<RegionInfo>> {
    let (mut merges, mut current) = (Vec::new(), BTreeSet::new());
    let mut taken: HashSet<&RegionInfo> = HashSet::new();
    let mut furthest: Option<&RegionInfo> = None;
    for (first, second) in pairs {
        let goes_on = furthest.is_none_or(|it| it.overlaps(first) || it.overlaps(second));
        if !goes_on || current.len() >= count_max.max(2) {
            end(&mut merges, &mut current, &mut taken);
        }
        for region in [first, second] {
            if taken.insert(region) {
                current.insert(region);
            }
        }
        let reaching = furthest_of(first, second);
        furthest = Some(furthest.map_or(reaching, |furthest| furthest_of(furthest, reaching)));
    }
    end(&mut merges, &mut current, &mut taken);
    merges
}

/// One region alone is no merge, and may be in a later one.
fn end<'a>(
    merges: &mut Vec<Vec<RegionInfo>>,
    current: &mut BTreeSet<&'a RegionInfo>,
    taken: &mut HashSet<&'a RegionInfo>,
) {
    match current.len() {
        0 => {}
        1 => taken.retain(|region| !current.contains(region)),
        _ => merges.push(current.iter().map(|&region| region.clone()).collect()),
    }
    current.clear();
}

#[cfg(test)]
mod tests {
    use halcyon_schema::TableName;

    use super::*;

    fn region(range: &str) -> RegionInfo {
        let (start, end) = range.split_once('-').unwrap();
        let (start, end) = (start.to_string().into_bytes(), end.to_string().into_bytes());
        RegionInfo::new(TableName::parse(b"t").unwrap(), start.into(), end.into(), 7)
    }

    fn merged(count_max: usize, pairs: &[(&str, &str)]) -> Vec<Vec<String>> {
        let pairs: Vec<_> = pairs.iter().map(|(a, b)| (region(a), region(b))).collect();
        let shown = |region: &RegionInfo| {
            format!("{}-{}", region.start_key().escape_ascii(), region.end_key().escape_ascii())
        };
        let found = merges(pairs.iter().map(|(a, b)| (a, b)), count_max);
        assert!(found.iter().all(|merge| merge.windows(2).all(|pair| pair[0] < pair[1])));
        found.iter().map(|merge| merge.iter().map(shown).collect()).collect()
    }

    /// What HBase's own tests of the same expect.
    #[test]
    fn as_hbase_puts_them_together() {
        assert_eq!(merged(10, &[]), [[""; 0]; 0]);
        let two = [["-a", "-b"], ["d-", "c-"]].map(|mut pair| {
            pair.sort();
            pair
        });
        assert_eq!(merged(10, &[("-a", "-b"), ("c-", "d-")]), two);
        let one = merged(10, &[("-", "d-"), ("-a", "-b"), ("c-", "d-")]);
        assert_eq!(one, [["-a", "-b", "-", "c-", "d-"]]);
        assert_eq!(merged(10, &[("-b", "a-b"), ("a-b", "a-d")]), [["-b", "a-b", "a-d"]]);
        let limited = merged(3, &[("-b", "a-b"), ("a-b", "a-d"), ("c-", "d-")]);
        assert_eq!(limited, [vec!["-b", "a-b", "a-d"], vec!["c-", "d-"]]);
    }

    #[test]
    fn a_region_that_is_left_alone_is_in_no_merge() {
        assert_eq!(merged(2, &[("a-d", "b-c"), ("a-d", "c-d")]), [["a-d", "b-c"]]);
        assert_eq!(
            merged(2, &[("a-e", "b-c"), ("a-e", "c-d"), ("c-d", "c-e")]),
            [["a-e", "b-c"], ["c-d", "c-e"]]
        );
        assert_eq!(merged(0, &[("a-c", "b-d")]), [["a-c", "b-d"]], "two are the least that can be merged");
    }
}
