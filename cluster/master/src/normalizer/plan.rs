//! Which regions of a table are to be split or merged (HBase: `SimpleRegionNormalizer`).
//!
//! ```text
//! target = NORMALIZER_TARGET_REGION_SIZE_MB, or size of the table / NORMALIZER_TARGET_REGION_COUNT, or / its regions
//! split   a region of more than twice the target
//! merge   neighbours, as many as are together no larger than the target
//! ```

use std::collections::HashSet;

use halcyon_schema::{RegionInfo, TableDescriptor};

use super::NormalizerSettings;

/// A region, as the planner sees it.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    pub(crate) region: RegionInfo,
    pub(crate) is_open: bool,
    /// Of its store files, in whole MB as its server reports them; -1 without a report.
    pub(crate) size_mb: i64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    /// In the middle.
    Split { region: RegionInfo, size_mb: i64 },
    /// Neighbours, in the order of their rows.
    Merge { regions: Vec<RegionInfo>, size_mb: i64 },
}

impl Plan {
    pub(crate) fn size_mb(&self) -> u64 {
        let (Plan::Split { size_mb, .. } | Plan::Merge { size_mb, .. }) = self;
        u64::try_from(*size_mb).unwrap_or(0)
    }
}

/// What holds for one table: its attributes, else the settings.
struct Rules<'a> {
    table: &'a TableDescriptor,
    settings: &'a NormalizerSettings,
}

impl Rules<'_> {
    fn flag(&self, key: &str, default: bool) -> bool {
        self.table.setting(key).map_or(default, |text| text.trim().eq_ignore_ascii_case("true"))
    }

    /// A value of the table that is no number, or below `least`, does not count.
    fn number(&self, key: &str, least: u64) -> Option<u64> {
        let text = self.table.setting(key)?;
        text.trim().parse().ok().filter(|number| *number >= least)
    }

    fn splits(&self) -> bool {
        self.flag("hbase.normalizer.split.enabled", self.settings.split)
    }

    fn merges(&self) -> bool {
        self.flag("hbase.normalizer.merge.enabled", self.settings.merge)
    }

    fn merge_region_count_min(&self) -> u64 {
        let new = self.number("hbase.normalizer.merge.min.region.count", 1);
        let old = || self.number("hbase.normalizer.min.region.count", 1);
        new.or_else(old).unwrap_or(self.settings.merge_region_count_min.max(1))
    }

    fn merge_region_age_min_ms(&self) -> i64 {
        const DAY_MS: u64 = 86_400_000;
        let days = self.number("hbase.normalizer.merge.min_region_age.days", 0);
        let days = days.unwrap_or(self.settings.merge_region_age_min_days);
        i64::try_from(days.saturating_mul(DAY_MS)).unwrap_or(i64::MAX)
    }

    fn merge_region_size_min_mb(&self) -> i64 {
        let size = self.number("hbase.normalizer.merge.min_region_size.mb", 0);
        i64::try_from(size.unwrap_or(self.settings.merge_region_size_min_mb)).unwrap_or(i64::MAX)
    }

    /// The size that regions are to have.
    fn target_mb(&self, regions: &[Measured]) -> f64 {
        let wanted = |key: &str| self.number(key, 1);
        let size =
            wanted("NORMALIZER_TARGET_REGION_SIZE_MB").or_else(|| wanted("NORMALIZER_TARGET_REGION_SIZE"));
        if let Some(size) = size {
            return size as f64;
        }
        let sum: i64 = regions.iter().map(|one| one.size_mb).sum();
        let count = wanted("NORMALIZER_TARGET_REGION_COUNT").unwrap_or(regions.len() as u64);
        sum as f64 / count as f64
    }
}

/// Whether a table is to be looked at.
pub(crate) fn is_wanted(table: &TableDescriptor, settings: &NormalizerSettings) -> bool {
    let rules = Rules { table, settings };
    !table.name().is_system() && rules.flag("NORMALIZATION_ENABLED", settings.tables_by_default)
}

/// What the switches of the cluster allow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allowed {
    pub(crate) splits: bool,
    pub(crate) merges: bool,
}

/// Plans for a table, splits first. `regions` are all that hold rows, in the order of their rows.
pub(crate) fn plan(
    table: &TableDescriptor,
    regions: &[Measured],
    settings: &NormalizerSettings,
    allowed: Allowed,
    now_ms: i64,
) -> Vec<Plan> {
    assert!(regions.windows(2).all(|pair| pair[0].region.start_key() <= pair[1].region.start_key()));
    if regions.is_empty() {
        return Vec::new();
    }
    let rules = Rules { table, settings };
    let target_mb = rules.target_mb(regions);
    let mut plans = Vec::new();
    let is_split = |one: &Measured| {
        let is_large = one.is_open && one.size_mb as f64 > 2.0 * target_mb;
        is_large && allowed.splits && rules.splits()
    };
    for Measured { region, size_mb, .. } in regions.iter().filter(|one| is_split(one)) {
        plans.push(Plan::Split { region: region.clone(), size_mb: *size_mb });
    }
    if allowed.merges && rules.merges() {
        plans.extend(merges(&rules, regions, target_mb, now_ms, is_split));
    }
    check_apart(&plans);
    limit(plans, settings.plans_size_max_mb)
}

fn check_apart(plans: &[Plan]) {
    let mut seen = HashSet::new();
    for plan in plans {
        let regions = match plan {
            Plan::Split { region, .. } => std::slice::from_ref(region),
            Plan::Merge { regions, .. } => {
                assert!(regions.len() > 1, "one region is merged with nothing: {regions:?}");
                regions
            }
        };
        for region in regions {
            assert!(seen.insert(region), "{region} would be split or merged twice");
        }
    }
}

/// What is to be split is not merged as well.
fn merges(
    rules: &Rules<'_>,
    regions: &[Measured],
    target_mb: f64,
    now_ms: i64,
    is_split: impl Fn(&Measured) -> bool,
) -> Vec<Plan> {
    let (size_min, age_min) = (rules.merge_region_size_min_mb(), rules.merge_region_age_min_ms());
    let target_mb = target_mb as i64;
    if (regions.len() as u64) < rules.merge_region_count_min() || target_mb < size_min {
        return Vec::new();
    }
    let is_fit = |one: &Measured| {
        let born_ms = i64::try_from(one.region.region_id()).unwrap_or(i64::MAX);
        let is_old = now_ms > born_ms.saturating_add(age_min);
        one.is_open && is_old && one.size_mb >= size_min.max(0) && !is_split(one)
    };
    let regions_max = rules.settings.merge_regions_max.max(2);
    let (mut plans, mut range, mut sum) = (Vec::new(), Vec::<&Measured>::new(), 0);
    let mut end_range = |range: &mut Vec<&Measured>, sum: &mut i64| {
        if range.len() > 1 {
            let regions = range.iter().map(|one| one.region.clone()).collect();
            plans.push(Plan::Merge { regions, size_mb: *sum });
        }
        range.clear();
        *sum = 0;
    };
    for one in regions {
        if !is_fit(one) {
            end_range(&mut range, &mut sum);
            continue;
        }
        let has_room = (range.len() as u64) < regions_max;
        // An empty region goes with its neighbour, however large that is.
        let joins = range.is_empty()
            || (range.len() == 1 && sum == 0)
            || (has_room && (one.size_mb == 0 || one.size_mb + sum <= target_mb));
        if !joins {
            end_range(&mut range, &mut sum);
        }
        range.push(one);
        sum += one.size_mb;
    }
    end_range(&mut range, &mut sum);
    plans
}

/// Takes plans while they are together no larger than the limit. Splits and merges take turns then, so that neither keeps the
/// other out.
fn limit(plans: Vec<Plan>, size_max_mb: u64) -> Vec<Plan> {
    let total: u64 = plans.iter().map(Plan::size_mb).sum();
    if total <= size_max_mb {
        return plans;
    }
    let (splits, merges): (Vec<_>, Vec<_>) =
        plans.into_iter().partition(|plan| matches!(plan, Plan::Split { .. }));
    let (mut splits, mut merges) = (splits.into_iter(), merges.into_iter());
    let mut turns = Vec::new();
    loop {
        let pair = [splits.next(), merges.next()];
        if pair.iter().all(Option::is_none) {
            break;
        }
        turns.extend(pair.into_iter().flatten());
    }
    let mut sum = 0;
    turns.retain(|plan| {
        let fits = sum + plan.size_mb() <= size_max_mb;
        sum += if fits { plan.size_mb() } else { 0 };
        fits
    });
    turns
}

#[cfg(test)]
mod tests;
