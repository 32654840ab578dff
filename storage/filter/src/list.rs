//! `FilterList`: filters joined by AND or by OR, and how their answers become one.
//!
//! A list of AND goes as far forward as the answer of any of its filters allows; a list of OR only as far as
//! all of them do. Checked against `FilterListWithAND` and `FilterListWithOR` of HBase 2.6.4:
//!
//! ```text
//! AND of   Include   NextCol+  NextRow+  Skip      NextCol   NextRow      (+ includes the cell)
//! Include  Include   NextCol+  NextRow+  Skip      NextCol   NextRow
//! NextCol+ NextCol+  NextCol+  NextRow+  NextCol   NextCol   NextRow
//! NextRow+ NextRow+  NextRow+  NextRow+  NextRow   NextRow   NextRow
//!
//! OR of    Include   NextCol+  NextRow+  Skip      NextCol   NextRow   Hint
//! Include  Include   Include   Include   Include   Include   Include   Include
//! NextCol+ Include   NextCol+  NextCol+  Include   NextCol+  NextCol+  Include
//! NextRow+ Include   NextCol+  NextRow+  Include   NextCol+  NextRow+  Include
//! Skip     Include   Include   Include   Skip      Skip      Skip      Skip
//! NextCol  Include   NextCol+  NextCol+  Skip      NextCol   NextCol   Skip
//! NextRow  Include   NextCol+  NextRow+  Skip      NextCol   NextRow   Skip
//! Hint     Include   Include   Include   Skip      Skip      Skip      Hint
//! ```
//!
//! AND stops asking at the first filter that drops the cell, apart from filters that give hints: they are
//! asked on, and the greatest of their hints is where the list goes. OR asks every filter, but a filter that
//! said it wants to be elsewhere is not asked again before the scan is there (it may hold counters).

mod present;

use std::cmp::Ordering;
use std::sync::Arc;

use halcyon_cell::{Cell, CellComparator, CellRef, Key, KeyRef, Result};
use halcyon_env::invariant;

use self::present::{AskedCell, Present};
use crate::kept::{Kept, Room, SHORT_KEY_LEN};
use crate::{Filter, ReturnCode, looks};

type Filters = Vec<Box<dyn Filter>>;

/// What asking a list costs, and how many filters are in it. A list asks each of its filters first whether all is done, and such a question
/// goes to all filters in there: a filter at the bottom of many lists is asked by each of them.
#[derive(Clone, Copy)]
struct Size {
    cost: u32,
    filters_count: u32,
}

impl Size {
    fn of(filters: &[Box<dyn Filter>]) -> Size {
        let mut size = Size { cost: 1, filters_count: 1 };
        for filter in filters {
            let count = filter.filters_count();
            // The first of them is asked by the filter itself, as part of its cost.
            size.cost = size.cost.saturating_add(filter.cost()).saturating_add(count - 1);
            size.filters_count = size.filters_count.saturating_add(count);
        }
        size
    }
}

/// The list of AND (`MUST_PASS_ALL`).
pub(crate) struct AllOf {
    filters: Filters,
    /// `is_hinting` of each filter.
    hinting: Vec<bool>,
    /// Indexes of the filters that answered the last cell with a hint.
    hinted: Vec<usize>,
    size: Size,
    reversed: bool,
}

impl AllOf {
    pub(crate) fn new(filters: Filters) -> AllOf {
        let hinting = filters.iter().map(|filter| filter.is_hinting()).collect();
        let (hinted, size) = (Vec::with_capacity(filters.len()), Size::of(&filters));
        AllOf { filters, hinting, hinted, size, reversed: false }
    }

    /// Asks the filters behind `from` that only may move the list further by a hint.
    fn ask_hinting(&mut self, from: usize, cell: CellRef<'_>) -> Result<()> {
        for at in from..self.filters.len() {
            if self.hinting[at] && self.filters[at].filter_cell(cell)? == ReturnCode::SeekNextUsingHint {
                self.hinted.push(at);
            }
        }
        Ok(())
    }
}

impl Filter for AllOf {
    fn cost(&self) -> u32 {
        self.size.cost
    }

    fn filters_count(&self) -> u32 {
        self.size.filters_count
    }

    fn held_bytes(&self) -> usize {
        let filters = self.filters.iter().map(|filter| filter.held_bytes()).sum::<usize>();
        let of_each = size_of::<Box<dyn Filter>>() + size_of::<bool>() + size_of::<usize>();
        size_of::<Self>() + filters + self.filters.capacity() * of_each
    }

    fn reset(&mut self) -> Result<()> {
        self.hinted.clear();
        self.filters.iter_mut().try_for_each(|filter| filter.reset())
    }

    fn filter_row_key(&mut self, first: CellRef<'_>) -> Result<bool> {
        let mut dropped = false;
        let mut hinting_passed = false;
        for (filter, &hinting) in self.filters.iter_mut().zip(&self.hinting) {
            if filter.filter_all_remaining()? {
                return Ok(true);
            }
            // Every filter is asked, because some note here that the row has changed.
            if filter.filter_row_key(first)? {
                dropped = true;
            } else if hinting {
                hinting_passed = true;
            }
        }
        // A hinting filter that passed may still know where to go; dropping the row would lose its hint.
        Ok(dropped && !hinting_passed)
    }

    fn filter_all_remaining(&mut self) -> Result<bool> {
        for filter in &mut self.filters {
            if filter.filter_all_remaining()? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn filter_cell(&mut self, cell: CellRef<'_>) -> Result<ReturnCode> {
        self.hinted.clear();
        let mut merged = ReturnCode::Include;
        for at in 0..self.filters.len() {
            let filter = &mut self.filters[at];
            if filter.filter_all_remaining()? {
                merged = ReturnCode::NextRow;
            } else {
                let code = filter.filter_cell(cell)?;
                if code == ReturnCode::SeekNextUsingHint {
                    self.hinted.push(at);
                }
                merged = merge_all(merged, code);
            }
            if !merged.is_include() {
                self.ask_hinting(at + 1, cell)?;
                break;
            }
        }
        invariant!(
            self.hinted.is_sorted_by(|left, right| left < right)
                && (merged != ReturnCode::SeekNextUsingHint || !self.hinted.is_empty()),
            "each filter that answered with a hint is asked for it once: {merged:?}, hints of {:?}",
            self.hinted
        );
        Ok(if self.hinted.is_empty() { merged } else { ReturnCode::SeekNextUsingHint })
    }

    fn looks_at_value(&self, cell: CellRef<'_>) -> bool {
        self.filters.iter().any(|filter| filter.looks_at_value(cell))
    }

    fn transform_cell(&mut self, cell: Cell) -> Result<Cell> {
        self.filters.iter_mut().try_fold(cell, |cell, filter| filter.transform_cell(cell))
    }

    fn transforms(&self) -> bool {
        self.filters.iter().any(|filter| filter.transforms())
    }

    fn filter_row_cells(&mut self, cells: &mut Vec<Cell>) -> Result<()> {
        self.filters.iter_mut().try_for_each(|filter| filter.filter_row_cells(cells))
    }

    fn has_filter_row(&self) -> bool {
        self.filters.iter().any(|filter| filter.has_filter_row())
    }

    fn filter_row(&mut self) -> Result<bool> {
        // Filters behind the first that drops the row do not hear of it, so they do not count it either.
        for filter in &mut self.filters {
            if filter.filter_row()? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn next_cell_hint(&mut self, cell: CellRef<'_>) -> Result<Option<Key>> {
        let mut farthest: Option<Key> = None;
        for &at in &self.hinted {
            let filter = &mut self.filters[at];
            if filter.filter_all_remaining()? {
                continue;
            }
            let Some(hint) = filter.next_cell_hint(cell)? else { continue };
            looks::spend_on_key(hint.get().bytes().len())?;
            let farther = match &farthest {
                None => true,
                Some(farthest) => compare(farthest.get(), hint.get(), self.reversed).is_lt(),
            };
            if farther {
                farthest = Some(hint);
            }
        }
        Ok(farthest)
    }

    fn is_family_essential(&self, family: &[u8]) -> Result<bool> {
        any_essential(self.filters.iter().map(|filter| &**filter), family)
    }

    fn set_reversed(&mut self, reversed: bool) {
        self.reversed = reversed;
        self.filters.iter_mut().for_each(|filter| filter.set_reversed(reversed));
    }

    fn is_reversed(&self) -> bool {
        self.reversed
    }
}

/// A filter of an OR list, and what it said last.
struct Alternative {
    filter: Box<dyn Filter>,
    /// Its answer to the last cell of this row, `None` before the first.
    code: Option<ReturnCode>,
    /// The number of the family or column that it gave this answer in, if it is done with that.
    done_with: u64,
    /// The cell that it answered with a hint, until that is known. It is the same for all filters of the list that did so.
    asked: Option<Arc<AskedCell>>,
    /// Its hint for that cell, once it was needed.
    hint: Option<Hint>,
    /// Whether it included the current cell.
    included: bool,
}

struct Hint {
    key: Key,
    /// Counts a long one.
    _room: Option<Room>,
}

impl Alternative {
    fn new(filter: Box<dyn Filter>) -> Alternative {
        Alternative { filter, code: None, done_with: 0, asked: None, hint: None, included: false }
    }

    /// As before the first cell of a row.
    fn forget(&mut self) {
        (self.code, self.included) = (None, false);
        (self.asked, self.hint) = (None, None);
    }

    fn answer(&mut self, cell: CellRef<'_>, present: &mut Present, reversed: bool) -> Result<ReturnCode> {
        if let Some(code) = self.answer_by_last(cell, present, reversed)? {
            self.code = Some(code);
            return Ok(code);
        }
        (self.asked, self.hint) = (None, None);
        let code = self.filter.filter_cell(cell)?;
        match code {
            ReturnCode::Include | ReturnCode::Skip => {}
            ReturnCode::NextCol | ReturnCode::IncludeAndNextCol => self.done_with = present.column(cell)?,
            ReturnCode::NextRow | ReturnCode::IncludeAndSeekNextRow => self.done_with = present.family(cell),
            ReturnCode::SeekNextUsingHint => self.asked = Some(present.asked_cell(cell)?),
        }
        self.code = Some(code);
        Ok(code)
    }

    /// The answer that follows from the last one, if the filter does not want to see `cell`.
    fn answer_by_last(
        &mut self,
        cell: CellRef<'_>,
        present: &mut Present,
        reversed: bool,
    ) -> Result<Option<ReturnCode>> {
        Ok(match self.code {
            None | Some(ReturnCode::Include | ReturnCode::Skip) => None,
            Some(ReturnCode::SeekNextUsingHint) => {
                if !self.is_before_hint(cell, present, reversed)? {
                    return Ok(None);
                }
                // On the way to the hint each cell would give the same one. But a reversed scan goes forward
                // within its rows, and there the order of hints is the wrong way round, so HBase's next
                // answer hangs on the hint for this cell.
                if reversed {
                    self.hint = None;
                    self.asked = Some(present.asked_cell(cell)?);
                }
                Some(ReturnCode::SeekNextUsingHint)
            }
            Some(ReturnCode::NextCol | ReturnCode::IncludeAndNextCol) => {
                (self.done_with == present.column_number()).then_some(ReturnCode::NextCol)
            }
            // The next row of one family may be followed by the same row of the next family.
            Some(ReturnCode::NextRow | ReturnCode::IncludeAndSeekNextRow) => {
                (self.done_with == present.family_number()).then_some(ReturnCode::NextRow)
            }
        })
    }

    /// Whether the scan is not yet where the filter wanted to go when it was asked last.
    fn is_before_hint(&mut self, cell: CellRef<'_>, present: &Present, reversed: bool) -> Result<bool> {
        if self.hint.is_none() {
            let asked = self.asked.as_ref().expect("what it was asked is there until its hint is");
            invariant!(
                asked.get().row() == cell.row(),
                "an answer holds within its row, because reset comes between rows: {:?} is of another row",
                asked.get()
            );
            let Some(key) = self.filter.next_cell_hint(asked.get())? else { return Ok(false) };
            let len = key.get().bytes().len();
            looks::spend_on_key(len)?;
            match present.kept().room_for_key(len) {
                Ok(_room) => {
                    self.hint = Some(Hint { key, _room });
                    self.asked = None;
                }
                // It is made again for the next cell.
                Err(_) => return Ok(compare(cell.key(), key.get(), reversed).is_lt()),
            }
        }
        let hint = self.hint.as_ref().expect("it was made").key.get();
        looks::spend_on_key(hint.bytes().len().min(cell.key().bytes().len()))?;
        Ok(compare(cell.key(), hint, reversed).is_lt())
    }
}

/// The list of OR (`MUST_PASS_ONE`).
pub(crate) struct AnyOf {
    alternatives: Vec<Alternative>,
    present: Present,
    size: Size,
    reversed: bool,
}

impl AnyOf {
    /// `kept`: what the filters of the request keep, together.
    pub(crate) fn new(filters: Filters, kept: Kept) -> AnyOf {
        let size = Size::of(&filters);
        let alternatives = filters.into_iter().map(Alternative::new).collect();
        AnyOf { alternatives, present: Present::new(kept), size, reversed: false }
    }

    fn any(&self, mut question: impl FnMut(&dyn Filter) -> bool) -> bool {
        self.alternatives.iter().any(|one| question(&*one.filter))
    }
}

impl Filter for AnyOf {
    fn cost(&self) -> u32 {
        self.size.cost
    }

    fn filters_count(&self) -> u32 {
        self.size.filters_count
    }

    /// Each alternative may have a cell, and a hint. Long ones are counted while they are there.
    fn held_bytes(&self) -> usize {
        let filters = self.alternatives.iter().map(|one| one.filter.held_bytes()).sum::<usize>();
        let of_each = size_of::<Alternative>() + 2 * SHORT_KEY_LEN;
        size_of::<Self>() + Present::HELD_BYTES + filters + self.alternatives.capacity() * of_each
    }

    fn reset(&mut self) -> Result<()> {
        for one in &mut self.alternatives {
            one.filter.reset()?;
            one.forget();
        }
        self.present.leave_row();
        Ok(())
    }

    fn filter_row_key(&mut self, first: CellRef<'_>) -> Result<bool> {
        let mut dropped = !self.alternatives.is_empty();
        for one in &mut self.alternatives {
            // All are asked, because some note here that the row has changed.
            if !one.filter.filter_all_remaining()? && !one.filter.filter_row_key(first)? {
                dropped = false;
            }
        }
        Ok(dropped)
    }

    fn filter_all_remaining(&mut self) -> Result<bool> {
        for one in &mut self.alternatives {
            if !one.filter.filter_all_remaining()? {
                return Ok(false);
            }
        }
        Ok(!self.alternatives.is_empty())
    }

    fn filter_cell(&mut self, cell: CellRef<'_>) -> Result<ReturnCode> {
        if self.alternatives.is_empty() {
            return Ok(ReturnCode::Include);
        }
        let mut merged = None;
        self.present.go_to(cell);
        for one in &mut self.alternatives {
            one.included = false;
            if one.filter.filter_all_remaining()? {
                one.forget(); // until the next row, at least, it is asked nothing
                continue;
            }
            let code = one.answer(cell, &mut self.present, self.reversed)?;
            one.included = code.is_include();
            merged = Some(merged.map_or(code, |merged| merge_any(merged, code)));
        }
        let code = merged.unwrap_or(ReturnCode::Skip);
        invariant!(
            code != ReturnCode::SeekNextUsingHint
                || self.alternatives.iter().all(|one| {
                    matches!(one.code, None | Some(ReturnCode::SeekNextUsingHint)) || !one.included
                }),
            "a list goes to a hint only if no filter keeps the cell"
        );
        invariant!(
            code.is_include() == self.alternatives.iter().any(|one| one.included),
            "only filters that keep a cell change it, so the list keeps it if one of them does: {code:?}"
        );
        Ok(code)
    }

    fn looks_at_value(&self, cell: CellRef<'_>) -> bool {
        self.any(|filter| filter.looks_at_value(cell))
    }

    /// Only filters that included the cell change it.
    fn transform_cell(&mut self, cell: Cell) -> Result<Cell> {
        let including = self.alternatives.iter_mut().filter(|one| one.included);
        including.into_iter().try_fold(cell, |cell, one| one.filter.transform_cell(cell))
    }

    fn transforms(&self) -> bool {
        self.any(|filter| filter.transforms())
    }

    fn filter_row_cells(&mut self, cells: &mut Vec<Cell>) -> Result<()> {
        self.alternatives.iter_mut().try_for_each(|one| one.filter.filter_row_cells(cells))
    }

    fn has_filter_row(&self) -> bool {
        self.any(|filter| filter.has_filter_row())
    }

    fn filter_row(&mut self) -> Result<bool> {
        // Filters behind the first that keeps the row do not hear of it, so they do not count it either.
        for one in &mut self.alternatives {
            if !one.filter.filter_row()? {
                return Ok(false);
            }
        }
        Ok(!self.alternatives.is_empty())
    }

    /// The nearest hint. A filter without one may want the next cell, so then the list has none either.
    fn next_cell_hint(&mut self, cell: CellRef<'_>) -> Result<Option<Key>> {
        let mut nearest: Option<Key> = None;
        for one in &mut self.alternatives {
            if one.filter.filter_all_remaining()? {
                continue;
            }
            let Some(hint) = one.filter.next_cell_hint(cell)? else { return Ok(None) };
            looks::spend_on_key(hint.get().bytes().len())?;
            let nearer = match &nearest {
                None => true,
                Some(nearest) => compare(nearest.get(), hint.get(), self.reversed).is_gt(),
            };
            if nearer {
                nearest = Some(hint);
            }
        }
        Ok(nearest)
    }

    fn is_family_essential(&self, family: &[u8]) -> Result<bool> {
        any_essential(self.alternatives.iter().map(|one| &*one.filter), family)
    }

    fn set_reversed(&mut self, reversed: bool) {
        self.reversed = reversed;
        self.alternatives.iter_mut().for_each(|one| one.filter.set_reversed(reversed));
    }

    fn is_reversed(&self) -> bool {
        self.reversed
    }
}

/// An empty list needs every family, another one those that any of its filters needs.
fn any_essential<'a>(filters: impl ExactSizeIterator<Item = &'a dyn Filter>, family: &[u8]) -> Result<bool> {
    if filters.len() == 0 {
        return Ok(true);
    }
    for filter in filters {
        if filter.is_family_essential(family)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The order of hints: that of cells, turned around in a reversed scan.
fn compare(left: KeyRef<'_>, right: KeyRef<'_>, reversed: bool) -> Ordering {
    let order = CellComparator::Default.compare_keys(left, right);
    if reversed { order.reverse() } else { order }
}

/// How far a code goes forward: not at all, to the next column, to the next row.
fn step(code: ReturnCode) -> u8 {
    match code {
        ReturnCode::Include | ReturnCode::Skip => 0,
        ReturnCode::IncludeAndNextCol | ReturnCode::NextCol => 1,
        ReturnCode::IncludeAndSeekNextRow | ReturnCode::NextRow => 2,
        ReturnCode::SeekNextUsingHint => 3,
    }
}

/// The code that takes or drops the cell and goes forward by `step`.
fn code_of(include: bool, step: u8) -> ReturnCode {
    invariant!(!include || step < 3, "a scan that goes to a hint does not keep the cell");
    match (include, step) {
        (true, 0) => ReturnCode::Include,
        (true, 1) => ReturnCode::IncludeAndNextCol,
        (true, _) => ReturnCode::IncludeAndSeekNextRow,
        (false, 0) => ReturnCode::Skip,
        (false, 1) => ReturnCode::NextCol,
        (false, 2) => ReturnCode::NextRow,
        (false, _) => ReturnCode::SeekNextUsingHint,
    }
}

/// AND: the cell stays if both keep it, and the longer step is taken; a hint beats all.
fn merge_all(left: ReturnCode, right: ReturnCode) -> ReturnCode {
    code_of(left.is_include() && right.is_include(), step(left).max(step(right)))
}

/// OR: the cell stays if one keeps it, and the shorter step is taken. How far a hint goes is not known, so
/// next to any other answer it counts as no step.
fn merge_any(left: ReturnCode, right: ReturnCode) -> ReturnCode {
    let include = left.is_include() || right.is_include();
    match (step(left), step(right)) {
        (3, 3) => ReturnCode::SeekNextUsingHint,
        (3, _) | (_, 3) => code_of(include, 0),
        (left, right) => code_of(include, left.min(right)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ReturnCode::*;

    const CODES: [ReturnCode; 7] =
        [Include, IncludeAndNextCol, IncludeAndSeekNextRow, Skip, NextCol, NextRow, SeekNextUsingHint];

    /// Rows and columns in the order of `CODES`, as HBase documents its two tables.
    #[test]
    fn merges_as_the_tables_say() {
        let (i, ic, ir, s, c, r, h) =
            (Include, IncludeAndNextCol, IncludeAndSeekNextRow, Skip, NextCol, NextRow, SeekNextUsingHint);
        let all = [
            [i, ic, ir, s, c, r, h],
            [ic, ic, ir, c, c, r, h],
            [ir, ir, ir, r, r, r, h],
            [s, c, r, s, c, r, h],
            [c, c, r, c, c, r, h],
            [r, r, r, r, r, r, h],
            [h, h, h, h, h, h, h],
        ];
        let any = [
            [i, i, i, i, i, i, i],
            [i, ic, ic, i, ic, ic, i],
            [i, ic, ir, i, ic, ir, i],
            [i, i, i, s, s, s, s],
            [i, ic, ic, s, c, c, s],
            [i, ic, ir, s, c, r, s],
            [i, i, i, s, s, s, h],
        ];
        for (row, &local) in CODES.iter().enumerate() {
            for (column, &so_far) in CODES.iter().enumerate() {
                assert_eq!(merge_all(so_far, local), all[row][column], "AND {so_far:?} {local:?}");
                assert_eq!(merge_any(so_far, local), any[row][column], "OR {so_far:?} {local:?}");
            }
        }
    }
}
