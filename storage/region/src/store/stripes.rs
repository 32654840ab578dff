//! How a store's rows are divided into stripes (HBase: `StripeStoreFileManager`).
//!
//! ```text
//! rows      ""            "g"           "p"           end
//! stripes   |     0       |      1      |      2      |
//! files     [a] [b]       [c]           [d] [e] [f]         each has rows of one stripe only
//! level 0   [  x: rows of any stripe    ] [  y          ]
//! ```
//!
//! Nothing is written down but in the files: each names its stripe's rows (`STRIPE_START_KEY`, `STRIPE_END_KEY`), and
//! what the store's stripes are follows from the set of its files, at an open and after every change alike. Stripes
//! are taken if they cover all rows, one beginning where the one before it ends. A file that does not fit, has no
//! names, holds other rows than it says, or is a reference, is of level 0, which every read looks at. So a file that
//! was written for stripes that are no longer, or of which a crash left only some, costs time and never a cell.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::sync::Arc;

use bytes::Bytes;

use super::StoreFile;
use crate::keeping::RowSpan;

/// In a file's info: its stripe's first row; empty: there is none before it.
pub(crate) const STRIPE_START_KEY: &str = "STRIPE_START_KEY";
/// The row at which the next stripe begins; empty: there is none.
pub(crate) const STRIPE_END_KEY: &str = "STRIPE_END_KEY";

/// The stripes of a set of files. Without stripes everything is of level 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stripes {
    /// Where each stripe begins, the first one empty.
    starts: Vec<Bytes>,
    /// Of each file its stripe; `None`: level 0.
    of_files: Vec<Option<usize>>,
}

impl Stripes {
    /// What there is for other engines, whatever the files say.
    pub fn none(files_count: usize) -> Stripes {
        Stripes { starts: Vec::new(), of_files: vec![None; files_count] }
    }

    #[cfg(test)]
    pub fn with_starts(starts: Vec<Bytes>) -> Stripes {
        Stripes { starts, of_files: Vec::new() }
    }

    pub fn of_files(files: &[Arc<StoreFile>]) -> Stripes {
        Stripes::divide(files.iter().map(|file| file.stripe.as_ref()).collect())
    }

    fn divide(spans: Vec<Option<&RowSpan>>) -> Stripes {
        let known: BTreeSet<&RowSpan> =
            spans.iter().flatten().copied().filter(|span| is_span(span)).collect();
        let chain = chain_of(&known).unwrap_or_default();
        let starts =
            (0..chain.len()).map(|at| if at == 0 { Bytes::new() } else { chain[at].0.clone() }).collect();
        let of_files =
            spans.iter().map(|span| span.and_then(|span| chain.iter().position(|it| *it == span))).collect();
        Stripes { starts, of_files }
    }

    /// What holds of the stripes of these files.
    pub fn check(&self, files: &[Arc<StoreFile>]) {
        assert!(self.of_files.len() == files.len(), "every file is of a stripe or of level 0");
        assert!(
            self.starts.first().is_none_or(|start| start.is_empty())
                && self.starts.is_sorted_by(|a, b| a < b),
            "stripes cover all rows, without an overlap: a row is looked for in one of them"
        );
        for (file, stripe) in files.iter().zip(&self.of_files) {
            let Some(stripe) = *stripe else { continue };
            let (start, end) = self.span(stripe);
            let (first, last) = (file.hfile.info().first_key(), file.hfile.info().last_key());
            assert!(
                first.is_none_or(|first| first.row() >= &start[..])
                    && last.is_none_or(|last| end.is_empty() || last.row() < &end[..]),
                "{} has rows outside of its stripe: reads of those would not find them",
                file.name
            );
        }
    }

    pub fn count(&self) -> usize {
        self.starts.len()
    }

    pub fn span(&self, stripe: usize) -> RowSpan {
        (self.starts[stripe].clone(), self.starts.get(stripe + 1).cloned().unwrap_or_default())
    }

    /// Where stripes begin.
    pub fn starts(&self) -> &[Bytes] {
        &self.starts
    }

    /// The stripe of the file with this index; `None`: level 0.
    pub fn of_file(&self, file: usize) -> Option<usize> {
        self.of_files[file]
    }

    fn of_row(&self, row: &[u8]) -> usize {
        self.starts.partition_point(|start| start <= row).saturating_sub(1)
    }

    /// The stripes that rows from `low` to `high` are in; empty rows: no bound.
    pub fn with_rows(&self, low: &[u8], high: &[u8]) -> RangeInclusive<usize> {
        let last = if high.is_empty() { self.count().saturating_sub(1) } else { self.of_row(high) };
        self.of_row(low)..=last
    }
}

fn is_span((start, end): &RowSpan) -> bool {
    end.is_empty() || start < end
}

/// Spans that cover all rows, in order, the shorter one where there is a choice. If there are none such but all that
/// are known follow each other, those: they may be what is left of a region's rows.
fn chain_of<'a>(known: &BTreeSet<&'a RowSpan>) -> Option<Vec<&'a RowSpan>> {
    // The starts from which spans lead to the end.
    let mut leads_on: BTreeSet<&Bytes> = BTreeSet::new();
    for span in known.iter().rev() {
        if span.1.is_empty() || leads_on.contains(&span.1) {
            leads_on.insert(&span.0);
        }
    }
    let mut chain: Vec<&RowSpan> = Vec::new();
    let mut start = Bytes::new();
    while leads_on.contains(&start) {
        let next = known
            .iter()
            .filter(|span| span.0 == start && (span.1.is_empty() || leads_on.contains(&span.1)))
            .min_by_key(|span| (span.1.is_empty(), &span.1))?;
        chain.push(next);
        if next.1.is_empty() {
            return Some(chain);
        }
        start = next.1.clone();
    }
    let all: Vec<&RowSpan> = known.iter().copied().collect();
    all.windows(2).all(|pair| !pair[0].1.is_empty() && pair[0].1 == pair[1].0).then_some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spans as `a-c`, `-` for those of files without; the stripes' starts and each file's stripe.
    fn divide(text: &str) -> String {
        let spans: Vec<Option<RowSpan>> = text
            .split_whitespace()
            .map(|span| {
                let (start, end) = span.split_once('-')?;
                let row = |row: &str| Bytes::copy_from_slice(row.trim_matches('.').as_bytes());
                (span != "-").then(|| (row(start), row(end)))
            })
            .collect();
        let stripes = Stripes::divide(spans.iter().map(Option::as_ref).collect());
        let starts: Vec<String> = stripes.starts.iter().map(|row| row.escape_ascii().to_string()).collect();
        let of_files = stripes.of_files.iter().map(|at| at.map_or("0".to_string(), |at| format!("s{at}")));
        format!("{}: {}", starts.join("|"), of_files.collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn files_that_cover_all_rows_are_stripes() {
        assert_eq!(divide(""), ": ");
        assert_eq!(divide("- -"), ": 0 0");
        assert_eq!(divide(".-."), ": s0");
        assert_eq!(divide(".-g g-p p-. - g-p"), "|g|p: s0 s1 s2 0 s1");
    }

    #[test]
    fn a_file_that_does_not_fit_is_of_level_0() {
        assert_eq!(divide(".-g g-p p-. a-p g-a g-g"), "|g|p: s0 s1 s2 0 0 0");
        // The first of two files of a division, and its input.
        assert_eq!(divide(".-g .-c g-."), "|g: s0 0 s1");
        assert_eq!(divide(".-g .-c c-g g-."), "|c|g: 0 s0 s1 s2");
        // A flush for stripes that have been merged meanwhile.
        assert_eq!(divide(".-g a-c g-."), "|g: s0 0 s1");
        assert_eq!(divide(".-g c-g g-."), "|g: s0 0 s1");
    }

    #[test]
    fn stripes_that_do_not_cover_all_rows() {
        assert_eq!(divide("c-g g-p"), "|g: s0 s1", "they may come from a part of a region");
        assert_eq!(divide(".-c g-."), ": 0 0");
        assert_eq!(divide("c-g d-g g-p"), ": 0 0 0");
    }

    #[test]
    fn rows_lead_to_stripes() {
        let spans: Vec<RowSpan> =
            [("", "g"), ("g", "p"), ("p", "")].map(|(a, b)| (Bytes::from(a), Bytes::from(b))).to_vec();
        let stripes = Stripes::divide(spans.iter().map(Some).collect());
        assert_eq!(stripes.with_rows(b"", b""), 0..=2);
        assert_eq!(stripes.with_rows(b"g", b"g"), 1..=1);
        assert_eq!(stripes.with_rows(b"a", b"f\xff"), 0..=0);
        assert_eq!(stripes.with_rows(b"h", b""), 1..=2);
        assert_eq!((stripes.count(), stripes.span(1)), (3, spans[1].clone()));
    }
}
