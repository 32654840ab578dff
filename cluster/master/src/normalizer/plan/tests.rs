//! Plans by hand, with the cases of HBase's `TestSimpleRegionNormalizer`, and for tables that a seed gives.

use halcyon_schema::TableName;

use super::*;

const NOW_MS: i64 = 1_800_000_000_000;
const ALL: Allowed = Allowed { splits: true, merges: true };

fn table(attributes: &[(&str, &str)]) -> TableDescriptor {
    let table = TableDescriptor::new(TableName::parse(b"t").unwrap());
    attributes.iter().fold(table, |table, (key, value)| table.with(key, value))
}

/// Regions of these sizes, born in 1970.
fn regions(sizes: &[i64]) -> Vec<Measured> {
    let key = |at: usize| match at {
        0 => Vec::new(),
        at if at == sizes.len() => Vec::new(),
        at => format!("r{at:03}").into_bytes(),
    };
    let region = |(at, size_mb): (usize, &i64)| {
        let name = TableName::parse(b"t").unwrap();
        let region = RegionInfo::new(name, key(at).into(), key(at + 1).into(), 1);
        Measured { region, is_open: true, size_mb: *size_mb }
    };
    sizes.iter().enumerate().map(region).collect()
}

/// `S2` for a split of the third region, `M0-1` for a merge of the first two.
fn text(plans: &[Plan], regions: &[Measured]) -> String {
    let at = |region: &RegionInfo| regions.iter().position(|one| one.region == *region).unwrap();
    let one = |plan: &Plan| match plan {
        Plan::Split { region, .. } => format!("S{}", at(region)),
        Plan::Merge { regions, .. } => {
            let numbers: Vec<usize> = regions.iter().map(at).collect();
            assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1), "not neighbours: {numbers:?}");
            format!("M{}-{}", numbers[0], numbers[numbers.len() - 1])
        }
    };
    plans.iter().map(one).collect::<Vec<_>>().join(" ")
}

fn planned(attributes: &[(&str, &str)], sizes: &[i64]) -> String {
    let regions = regions(sizes);
    let plans = plan(&table(attributes), &regions, &NormalizerSettings::default(), ALL, NOW_MS);
    text(&plans, &regions)
}

#[test]
fn regions_of_one_size_stay() {
    assert_eq!(planned(&[], &[10, 15, 10, 10]), "");
    assert_eq!(planned(&[], &[]), "");
    assert_eq!(planned(&[], &[7]), "");
}

#[test]
fn a_large_region_is_split() {
    assert_eq!(planned(&[NO_MERGES], &[8, 6, 10, 30]), "S3");
    assert_eq!(planned(&[], &[30, 30, 30, 30]), "");
    // Twice the target is not more than twice.
    assert_eq!(planned(&[("NORMALIZER_TARGET_REGION_SIZE_MB", "10"), NO_MERGES], &[20, 21]), "S1");
}

const NO_MERGES: (&str, &str) = ("hbase.normalizer.merge.enabled", "false");

#[test]
fn small_neighbours_are_merged() {
    assert_eq!(planned(&[], &[15, 5, 5, 15, 16]), "M1-2");
    assert_eq!(planned(&[], &[0, 1, 10, 10]), "M0-1");
    assert_eq!(planned(&[], &[1, 1, 1, 30, 1, 1, 1]), "S3 M0-2 M4-6");
}

#[test]
fn an_empty_region_goes_with_its_neighbour() {
    assert_eq!(planned(&[NO_SPLITS], &[0, 0, 0]), "M0-2");
    assert_eq!(planned(&[NO_SPLITS], &[0, 50, 50, 50]), "M0-1");
}

const NO_SPLITS: (&str, &str) = ("hbase.normalizer.split.enabled", "false");

#[test]
fn the_table_says_how_large_or_how_many() {
    assert_eq!(planned(&[("NORMALIZER_TARGET_REGION_COUNT", "2")], &[20, 40, 60]), "M0-1");
    assert_eq!(planned(&[("NORMALIZER_TARGET_REGION_COUNT", "8")], &[20, 40, 60, 80]), "S2 S3");
    assert_eq!(planned(&[("NORMALIZER_TARGET_REGION_SIZE_MB", "50")], &[20, 40, 60, 80, 100, 120]), "S5");
    assert_eq!(planned(&[("NORMALIZER_TARGET_REGION_SIZE_MB", "200")], &[20, 40, 60, 80, 100, 120]), "M0-3");
    // A name before 2.3.
    assert_eq!(planned(&[("NORMALIZER_TARGET_REGION_SIZE", "200")], &[20, 40, 60, 80, 100, 120]), "M0-3");
}

#[test]
fn tables_with_few_regions_get_no_merges() {
    assert_eq!(planned(&[], &[1, 1]), "");
    assert_eq!(planned(&[("hbase.normalizer.merge.min.region.count", "2")], &[0, 1]), "M0-1");
    assert_eq!(planned(&[("hbase.normalizer.min.region.count", "2")], &[0, 1]), "M0-1");
    assert_eq!(planned(&[("hbase.normalizer.merge.min.region.count", "9")], &[1, 1, 1, 9]), "S3");
    assert_eq!(planned(&[("hbase.normalizer.merge.min.region.count", "none")], &[1, 1, 1, 9]), "S3 M0-2");
}

#[test]
fn young_small_and_closed_regions_are_not_merged() {
    let none = NormalizerSettings::default();
    let mut young = regions(&[1, 1, 1, 1, 30]);
    let born = (NOW_MS - 3 * 86_400_000) as u64;
    young[1].region = RegionInfo::new(
        TableName::parse(b"t").unwrap(),
        young[1].region.start_key().clone(),
        young[1].region.end_key().clone(),
        born,
    );
    let now = |ms: i64| text(&plan(&table(&[NO_SPLITS]), &young, &none, ALL, ms), &young);
    assert_eq!(now(NOW_MS), "M2-3");
    assert_eq!(now(NOW_MS + 1), "M0-3");

    let mut closed = regions(&[1, 1, 1, 1, 30]);
    closed[1].is_open = false;
    closed[4].is_open = false;
    assert_eq!(text(&plan(&table(&[]), &closed, &none, ALL, NOW_MS), &closed), "M2-3");

    let large = ("hbase.normalizer.merge.min_region_size.mb", "2");
    assert_eq!(planned(&[large, NO_SPLITS], &[3, 1, 2, 2, 30]), "M2-3");
    // Smaller on the whole.
    assert_eq!(planned(&[large, NO_SPLITS], &[1, 1, 1, 1]), "");
}

#[test]
fn regions_without_a_report_are_left_alone() {
    assert_eq!(planned(&[NO_SPLITS], &[-1, -1, 1, 1, 30]), "M2-3");
}

#[test]
fn switches_and_settings_turn_halves_off() {
    let regions = regions(&[1, 1, 1, 30]);
    let run = |table: &TableDescriptor, settings: &NormalizerSettings, allowed| {
        text(&plan(table, &regions, settings, allowed, NOW_MS), &regions)
    };
    let all = NormalizerSettings::default();
    assert_eq!(run(&table(&[]), &all, ALL), "S3 M0-2");
    assert_eq!(run(&table(&[]), &all, Allowed { splits: false, merges: true }), "M0-2");
    assert_eq!(run(&table(&[]), &all, Allowed { splits: true, merges: false }), "S3");
    let none = NormalizerSettings { split: false, merge: false, ..all.clone() };
    assert_eq!(run(&table(&[]), &none, ALL), "");
    assert_eq!(run(&table(&[("hbase.normalizer.split.enabled", "true")]), &none, ALL), "S3");
    assert_eq!(run(&table(&[NO_MERGES]), &all, ALL), "S3");
    let pairs = NormalizerSettings { merge_regions_max: 2, ..all };
    assert_eq!(run(&table(&[]), &pairs, ALL), "S3 M0-1");
}

#[test]
fn plans_have_a_size_together() {
    let regions = regions(&[1, 1, 1, 30, 1, 1, 1, 40]);
    let run = |plans_size_max_mb| {
        let settings = NormalizerSettings { plans_size_max_mb, ..NormalizerSettings::default() };
        text(&plan(&table(&[]), &regions, &settings, ALL, NOW_MS), &regions)
    };
    assert_eq!(run(76), "S3 S7 M0-2 M4-6");
    assert_eq!(run(33), "S3 M0-2");
    assert_eq!(run(6), "M0-2 M4-6");
    assert_eq!(run(2), "");
}

#[test]
fn a_table_asks_for_it() {
    let all = NormalizerSettings { tables_by_default: true, ..NormalizerSettings::default() };
    let none = NormalizerSettings::default();
    assert!(!is_wanted(&table(&[]), &none));
    assert!(is_wanted(&table(&[("NORMALIZATION_ENABLED", "true")]), &none));
    assert!(is_wanted(&table(&[]), &all));
    assert!(!is_wanted(&table(&[("NORMALIZATION_ENABLED", "false")]), &all));
    let system = TableDescriptor::namespaces().with("NORMALIZATION_ENABLED", "true");
    assert!(!is_wanted(&system, &all));
}

/// No region is in two merges, none is split and merged, and a merge is no larger than it may be.
#[test]
fn plans_do_not_contradict_each_other() {
    halcyon_testkit::for_each_seed(
        "-p halcyon-master --lib normalizer::plan::tests::plans_do_not_contradict_each_other",
        0..500,
        |seed| {
            let random = |at: u64| {
                (seed
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(at.wrapping_mul(1_442_695_040_888_963_407)))
                    >> 40
            };
            let count = random(1) as usize % 30;
            let sizes: Vec<i64> = (0..count as u64).map(|at| (random(2 + at) % 40) as i64 - 1).collect();
            let regions = regions(&sizes);
            let plans = plan(&table(&[]), &regions, &NormalizerSettings::default(), ALL, NOW_MS);
            text(&plans, &regions); // of neighbours alone
            let mut merged = Vec::new();
            let average = sizes.iter().sum::<i64>() as f64 / count.max(1) as f64;
            for plan in &plans {
                match plan {
                    Plan::Split { size_mb, .. } => assert!(*size_mb as f64 > 2.0 * average, "{sizes:?}"),
                    Plan::Merge { regions, size_mb } => {
                        let parts: Vec<i64> = regions
                            .iter()
                            .map(|region| {
                                assert!(!merged.contains(region), "seed {seed}: {region} is merged twice");
                                merged.push(region.clone());
                                sizes[region_at(region)]
                            })
                            .collect();
                        assert_eq!(*size_mb, parts.iter().sum::<i64>());
                        let is_empty_first = parts[0] == 0;
                        assert!(
                            is_empty_first || *size_mb as f64 <= average.max(parts[0] as f64),
                            "{parts:?}"
                        );
                    }
                }
            }
        },
    );
}

fn region_at(region: &RegionInfo) -> usize {
    let key = std::str::from_utf8(region.start_key()).unwrap();
    key.strip_prefix('r').map_or(0, |number| number.parse().unwrap())
}
