//! Random scripts. Everything is drawn from few values: rows, qualifiers and timestamps meet again and again.

use halcyon_cell::{Cell, CellType, TagType, append_tag};

use super::{Script, Step};
use crate::{FamilyOptions, KeepDeletedCells, OracleScan, Random, TimeRange};

const ROWS: [&[u8]; 7] = [b"a", b"b", b"b\0", b"bb", b"c", b"long-row-one", b"long-row-two"];
/// Markers of a family lie in the column without a name, among its versions.
const QUALIFIERS: [&[u8]; 5] = [b"", b"p", b"q", b"q\xff", b"r"];
const FAMILIES: [&[u8]; 3] = [b"f", b"fa", b"g"];
const START_MS: i64 = 1_000_000;
/// Timestamps are this far apart, so that moving the clock expires them one by one.
const TICK_MS: i64 = 1000;
const TICKS: usize = 12;
const TTL_TICKS: i64 = 8;

pub(super) fn script(seed: u64, len: usize) -> Script {
    let mut random = Random::new(seed);
    let families = families(&mut random);
    let mut steps: Vec<Step> = (0..len).map(|number| step(&mut random, &families, number)).collect();
    // The end of every script: all of it before a flush, after it, and after everything.
    let everything = || Step::Read(OracleScan::all().versions(100));
    steps.extend([everything(), Step::Flush, everything(), Step::Compact { major: true }, everything()]);
    steps.extend([Step::Reopen, everything(), Step::Read(OracleScan::all().versions(100).raw())]);
    Script { seed, families, start_ms: START_MS, steps }
}

fn families(random: &mut Random) -> Vec<FamilyOptions> {
    let count = 1 + random.below(FAMILIES.len());
    FAMILIES[..count]
        .iter()
        .map(|name| {
            let mut family = FamilyOptions::new(name).versions(1 + random.below(3));
            if random.one_in(3) {
                family = family.ttl_ms(TTL_TICKS * TICK_MS);
                if random.one_in(2) {
                    family.min_versions = 1 + random.below(family.versions_max);
                }
            }
            family.keep_deleted_cells = match random.below(6) {
                0 => KeepDeletedCells::True,
                1 => KeepDeletedCells::Ttl,
                _ => KeepDeletedCells::False,
            };
            family.new_version_behavior = random.one_in(3);
            family
        })
        .collect()
}

fn step(random: &mut Random, families: &[FamilyOptions], number: usize) -> Step {
    match random.below(100) {
        0..55 => Step::Write(mutation(random, families, number)),
        55..85 => Step::Read(read(random, families)),
        85..91 => Step::Flush,
        91..93 => Step::Compact { major: false },
        93..95 => Step::Compact { major: true },
        95 => Step::Reopen,
        96 => Step::Crash,
        _ => Step::Advance(random.below(2 * TICK_MS as usize) as i64),
    }
}

fn timestamp(random: &mut Random) -> i64 {
    START_MS - (TICKS / 2 * TICK_MS as usize) as i64 + random.below(TICKS) as i64 * TICK_MS
}

/// One to three cells of one row.
fn mutation(random: &mut Random, families: &[FamilyOptions], number: usize) -> Vec<Cell> {
    let row = random.pick(&ROWS);
    let count = if random.one_in(3) { 2 + random.below(2) } else { 1 };
    (0..count)
        .map(|part| {
            let family = &families[random.below(families.len())].name;
            let (qualifier, timestamp) = (random.pick(&QUALIFIERS), timestamp(random));
            let delete =
                |qualifier, cell_type| Cell::build(row, family, qualifier, timestamp, cell_type, b"", b"", 0);
            match random.below(20) {
                0..2 => delete(qualifier, CellType::Delete),
                2..4 => delete(qualifier, CellType::DeleteColumn),
                4 => delete(b"", CellType::DeleteFamily),
                5 => delete(b"", CellType::DeleteFamilyVersion),
                _ => {
                    let mut value = format!("v{number}.{part}").into_bytes();
                    if random.one_in(20) {
                        value.resize(200 + random.below(2000), b'.');
                    }
                    let mut tags = Vec::new();
                    if random.one_in(15) {
                        let ttl_ms = (random.below(TICKS) as i64 + 1) * TICK_MS;
                        append_tag(&mut tags, TagType::TTL, &ttl_ms.to_be_bytes());
                    }
                    Cell::build(row, family, qualifier, timestamp, CellType::Put, &value, &tags, 0)
                }
            }
        })
        .collect()
}

fn read(random: &mut Random, families: &[FamilyOptions]) -> OracleScan {
    let mut scan = if random.one_in(2) { OracleScan::get(random.pick(&ROWS)) } else { range(random) };
    scan.versions_max = 1 + random.below(4);
    if scan.is_get() || random.one_in(2) {
        some_columns(random, families, &mut scan);
    } else if random.one_in(5) {
        scan.raw = true;
        scan.versions_max = 100;
        if random.one_in(2) {
            scan = scan.family(&families[random.below(families.len())].name);
        }
    }
    if random.one_in(4) {
        scan.time_range = time_range(random);
    }
    if random.one_in(8) {
        scan.family_time_ranges
            .insert(families[random.below(families.len())].name.clone(), time_range(random));
    }
    if random.one_in(6) {
        scan.store_limit = Some(1 + random.below(4));
    }
    if random.one_in(8) {
        scan.store_offset = random.below(3);
    }
    if random.one_in(6) {
        scan.batch = Some(1 + random.below(4));
    }
    scan
}

fn range(random: &mut Random) -> OracleScan {
    let mut scan = OracleScan::all();
    scan.reversed = random.one_in(3);
    let mut bounds = [random.pick(&ROWS), random.pick(&ROWS)];
    bounds.sort();
    if scan.reversed {
        bounds.reverse();
    }
    if random.one_in(2) {
        scan.start_row = bounds[0].to_vec();
        scan.start_inclusive = !random.one_in(3);
    }
    // Equal bounds without both rows would be an empty scan, which clients refuse or answer by themselves.
    if random.one_in(2) && bounds[0] != bounds[1] {
        scan.stop_row = bounds[1].to_vec();
        scan.stop_inclusive = random.one_in(3);
    }
    if random.one_in(4) {
        scan.limit = Some(1 + random.below(3));
    }
    scan
}

fn some_columns(random: &mut Random, families: &[FamilyOptions], scan: &mut OracleScan) {
    for family in families {
        match random.below(3) {
            0 => {}
            1 => drop(scan.columns.insert(family.name.clone(), None)),
            _ => {
                let wanted = (0..1 + random.below(3)).map(|_| random.pick(&QUALIFIERS).to_vec());
                scan.columns.insert(family.name.clone(), Some(wanted.collect()));
            }
        }
    }
}

fn time_range(random: &mut Random) -> TimeRange {
    let mut ends = [timestamp(random), timestamp(random)];
    ends.sort();
    match random.below(3) {
        0 => TimeRange { min: 0, max: ends[1] + 1 },
        1 => TimeRange { min: ends[0], max: i64::MAX },
        _ => TimeRange { min: ends[0], max: ends[1] + 1 },
    }
}
