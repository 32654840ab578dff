//! What the properties say: the operations, their shares, records and fields.

use bytes::Bytes;
use halcyon_proto::pb::mutation_proto::Durability;

use crate::random::Random;
use crate::ycsb::distributions::{Distribution, Zipfian};
use crate::ycsb::keys::KeyFormat;
use crate::ycsb::properties::Properties;

/// An operation; the number is its kind in the results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Read = 0,
    Update = 1,
    Insert = 2,
    Scan = 3,
    ReadModifyWrite = 4,
}

pub(super) const KINDS: &[&str] = &["READ", "UPDATE", "INSERT", "SCAN", "READ-MODIFY-WRITE"];

/// A workload, read and checked.
pub(super) struct Workload {
    pub table: String,
    pub family: Bytes,
    pub records: u64,
    pub operations: u64,
    pub insert_start: u64,
    pub insert_count: u64,
    pub keys: KeyFormat,
    pub fields: Vec<Bytes>,
    field_len: usize,
    fields_vary: bool,
    pub read_all_fields: bool,
    pub write_all_fields: bool,
    shares: [(Operation, f64); 5],
    pub requests: Distribution,
    scan_len_max: u64,
    scan_lens: Option<Zipfian>,
    pub durability: Durability,
    pub presplit: u32,
    pub recreate: bool,
    pub seconds_max: u64,
}

impl Workload {
    /// The error names the property that does not go.
    pub fn of(properties: &Properties, is_load: bool) -> Result<Workload, String> {
        let yes = |key: &str, default: bool| properties.get(key, default);
        let number = |key: &str, default: u64| properties.get(key, default);
        let records = number("recordcount", 0)?;
        let insert_start = number("insertstart", 0)?;
        let insert_count = number("insertcount", records.saturating_sub(insert_start))?;
        let operations = number("operationcount", 0)?;
        if records == 0 || insert_start.saturating_add(insert_count) > records {
            return Err(format!("recordcount={records} has to hold insertstart and insertcount"));
        }
        if operations == 0 && !is_load {
            return Err("operationcount is missing".to_string());
        }
        if yes("dataintegrity", false)? {
            return Err("dataintegrity=true: values are not checked here".to_string());
        }
        let share = |key: &str, default: f64| match properties.get(key, default) {
            Ok(share) if share >= 0.0 => Ok(share),
            Ok(share) => Err(format!("{key}={share} is below 0")),
            Err(error) => Err(error),
        };
        let shares = [
            (Operation::Read, share("readproportion", 0.95)?),
            (Operation::Update, share("updateproportion", 0.05)?),
            (Operation::Insert, share("insertproportion", 0.0)?),
            (Operation::Scan, share("scanproportion", 0.0)?),
            (Operation::ReadModifyWrite, share("readmodifywriteproportion", 0.0)?),
        ];
        if shares.iter().map(|(_, share)| share).sum::<f64>() <= 0.0 {
            return Err("all proportions are 0".to_string());
        }
        // as many again, so that none is missing however the draw falls
        let expected_inserts = (operations as f64 * shares[2].1 * 2.0) as u64;
        let name = properties.text("requestdistribution", "uniform");
        let requests = Distribution::parse(name, records, expected_inserts);
        let mut requests = requests.ok_or_else(|| format!("requestdistribution={name} is not known"))?;
        if let Distribution::Hotspot { data_fraction, operation_fraction } = &mut requests {
            *data_fraction = properties.get("hotspotdatafraction", *data_fraction)?;
            *operation_fraction = properties.get("hotspotopnfraction", *operation_fraction)?;
        }
        let scan_len_max = number("maxscanlength", 1_000)?.max(1);
        let scan_lens = match properties.text("scanlengthdistribution", "uniform") {
            "uniform" => None,
            "zipfian" => Some(Zipfian::new(scan_len_max)),
            other => return Err(format!("scanlengthdistribution={other} is not known")),
        };
        let fields_vary = match properties.text("fieldlengthdistribution", "constant") {
            "constant" => false,
            "uniform" => true,
            other => return Err(format!("fieldlengthdistribution={other} is not known")),
        };
        let order = properties.text("insertorder", "hashed");
        if !["hashed", "ordered"].contains(&order) {
            return Err(format!("insertorder={order} is not known"));
        }
        let durability = properties.text("durability", "USE_DEFAULT");
        let durability = Durability::from_str_name(durability)
            .ok_or_else(|| format!("durability={durability} is not known"))?;
        let prefix = properties.text("fieldnameprefix", "field");
        let fields = number("fieldcount", 10)?.clamp(1, 100_000);
        Ok(Workload {
            table: properties.text("table", "usertable").to_string(),
            family: Bytes::from(properties.text("columnfamily", "family").to_string()),
            records,
            operations,
            insert_start,
            insert_count,
            keys: KeyFormat { is_ordered: order == "ordered", digits: properties.get("zeropadding", 1)? },
            fields: (0..fields).map(|number| Bytes::from(format!("{prefix}{number}"))).collect(),
            field_len: properties.get("fieldlength", 100)?,
            fields_vary,
            read_all_fields: yes("readallfields", true)?,
            write_all_fields: yes("writeallfields", false)?,
            shares,
            requests,
            scan_len_max,
            scan_lens,
            durability,
            presplit: properties.get("hbase.presplit", 0)?,
            recreate: yes("hbase.recreate", false)?,
            seconds_max: number("maxexecutiontime", 0)?,
        })
    }

    /// Which operation comes next.
    pub fn operation(&self, random: &mut Random) -> Operation {
        let all: f64 = self.shares.iter().map(|(_, share)| share).sum();
        let mut left = random.fraction() * all;
        for (operation, share) in self.shares {
            if left < share {
                return operation;
            }
            left -= share;
        }
        // what rounding leaves over belongs to the last one that there is
        self.shares.iter().rev().find(|(_, share)| *share > 0.0).expect("not all are 0").0
    }

    /// Rows of the next scan.
    pub fn scan_len(&self, random: &mut Random) -> u32 {
        let len = match &self.scan_lens {
            None => 1 + random.below(self.scan_len_max),
            Some(zipfian) => 1 + zipfian.draw(random),
        };
        u32::try_from(len).unwrap_or(u32::MAX)
    }

    /// A field's value: printable characters.
    pub fn value(&self, random: &mut Random) -> Vec<u8> {
        let len = match self.fields_vary {
            true => 1 + random.below(self.field_len.max(1) as u64) as usize,
            false => self.field_len,
        };
        let mut value = vec![0; len];
        for part in value.chunks_mut(8) {
            let bits = random.next_u64().to_le_bytes();
            part.iter_mut().zip(bits).for_each(|(byte, bits)| *byte = b' ' + (bits & 63));
        }
        value
    }

    /// Keys at which a new table is divided: `user1000` to `user9999` evenly, as hashed keys spread.
    pub fn splits(&self) -> Vec<Bytes> {
        let regions = u64::from(self.presplit);
        (1..regions).map(|at| Bytes::from(format!("user{}", 1_000 + at * 8_999 / regions))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_come_in_their_shares() {
        let workload = Workload::of(&Properties::core("d").unwrap(), false).unwrap();
        let mut random = Random::new(1);
        let inserts = (0..100_000).filter(|_| workload.operation(&mut random) == Operation::Insert).count();
        assert!((4_700..5_300).contains(&inserts), "{inserts}");
        assert_eq!(workload.value(&mut random).len(), 100);
        assert_eq!((workload.records, workload.fields.len()), (1_000, 10));
        assert_eq!(&workload.fields[9][..], b"field9");
    }

    #[test]
    fn scans_have_their_lengths_and_tables_their_splits() {
        let mut properties = Properties::core("e").unwrap();
        properties.add("hbase.presplit=10").unwrap();
        let workload = Workload::of(&properties, false).unwrap();
        let mut random = Random::new(1);
        let lens: Vec<u32> = (0..10_000).map(|_| workload.scan_len(&mut random)).collect();
        assert_eq!((lens.iter().min(), lens.iter().max()), (Some(&1), Some(&100)));
        assert_eq!(workload.splits().len(), 9);
        assert_eq!(&workload.splits()[0][..], b"user1899");
    }

    #[test]
    fn what_does_not_go_is_refused_by_name() {
        for (line, word) in [
            ("recordcount=0", "recordcount"),
            ("requestdistribution=odd", "requestdistribution"),
            ("insertorder=any", "insertorder"),
            ("readproportion=-1", "readproportion"),
            ("durability=NONE", "durability"),
            ("dataintegrity=true", "dataintegrity"),
            ("insertstart=2000", "insertstart"),
        ] {
            let mut properties = Properties::core("a").unwrap();
            properties.add(line).unwrap();
            let Err(error) = Workload::of(&properties, false) else { panic!("{line} goes") };
            assert!(error.contains(word), "{line}: {error}");
        }
    }
}
