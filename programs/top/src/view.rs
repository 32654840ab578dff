//! What is shown of the records: mode, filters, order and columns.

use std::cmp::Ordering;

use halcyon_client::ClusterMetrics;

use crate::args::{Mode, TopArgs};
use crate::fields::{Field, Value};
use crate::filter::Filter;
use crate::rates::Rates;
use crate::records::{Record, records};

#[derive(Clone, Debug)]
pub struct View {
    pub mode: Mode,
    pub sort: Field,
    pub ascending: bool,
    pub filters: Vec<Filter>,
    /// All of the mode if empty.
    chosen: Vec<Field>,
    limit: usize,
}

impl View {
    pub fn of_args(args: &TopArgs) -> Result<View, String> {
        let mode = args.mode;
        let parse = |name: &String| Field::parse(mode, name);
        let sort = args.sort.as_ref().map(parse).transpose()?.unwrap_or(Field::Requests);
        let chosen = args.fields.iter().map(parse).collect::<Result<_, _>>()?;
        let filters = args.filters.iter().map(|text| Filter::parse(mode, text)).collect::<Result<_, _>>()?;
        let limit = args.limit.unwrap_or(usize::MAX);
        Ok(View { mode, sort, ascending: args.ascending, filters, chosen, limit })
    }

    pub fn fields(&self) -> &[Field] {
        if self.chosen.is_empty() { Field::of(self.mode) } else { &self.chosen }
    }

    /// Another mode has other fields: filters, columns and order start anew.
    pub fn set_mode(&mut self, mode: Mode) {
        *self =
            View { mode, sort: Field::Requests, ascending: false, filters: vec![], chosen: vec![], ..*self };
    }

    /// Orders by the field this many columns further.
    pub fn move_sort(&mut self, columns: isize) {
        let fields = self.fields();
        let at = fields.iter().position(|field| *field == self.sort).unwrap_or(0);
        let at = at.saturating_add_signed(columns).min(fields.len() - 1);
        self.sort = fields[at];
    }

    pub fn add_filter(&mut self, text: &str) -> Result<(), String> {
        self.filters.push(Filter::parse(self.mode, text)?);
        Ok(())
    }

    /// Shows what a record consists of: tables of a namespace, regions of a table or server. Not every record has parts.
    pub fn open(&mut self, record: &Record) -> bool {
        let to = match self.mode {
            Mode::Namespaces => Mode::Tables,
            Mode::Tables | Mode::Servers => Mode::Regions,
            Mode::Regions | Mode::Users => return false,
        };
        self.set_mode(to);
        for field in [Field::Namespace, Field::Table, Field::Server] {
            if let Some(Value::Text(name)) = record.value(field) {
                let _ = self.add_filter(&format!("{}=={name}", field.name())); // an empty name has no filter
            }
        }
        true
    }

    /// The records to show, in their order.
    pub fn records(&self, metrics: &ClusterMetrics, rates: &Rates) -> Vec<Record> {
        let mut shown = records(metrics, rates, self.mode);
        shown.retain(|record| self.filters.iter().all(|filter| filter.passes(record)));
        let order = |a: &Record, b: &Record| match (a.value(self.sort), b.value(self.sort)) {
            (Some(a), Some(b)) => a.compare(b),
            _ => Ordering::Equal,
        };
        shown.sort_by(|a, b| if self.ascending { order(a, b) } else { order(b, a) });
        shown.truncate(self.limit);
        shown
    }

    /// Widths of the columns that these records need, headings included.
    pub fn widths(&self, records: &[Record]) -> Vec<usize> {
        let width = |field: &Field| {
            let values = records.iter().filter_map(|record| record.value(*field));
            let longest = values.map(|value| value.to_string().chars().count()).max().unwrap_or(0);
            longest.max(field.name().len())
        };
        self.fields().iter().map(width).collect()
    }
}

/// State of the whole cluster in three lines.
pub fn summary(metrics: &ClusterMetrics, rates: &Rates) -> [String; 3] {
    let name = metrics.master.as_ref().map_or("unknown".to_string(), ToString::to_string);
    let of_cluster = records(metrics, rates, Mode::Servers);
    let sum = |field| {
        let known: Vec<f64> = of_cluster
            .iter()
            .filter_map(|record| match record.value(field) {
                Some(Value::Rate(rate)) => *rate,
                _ => None,
            })
            .collect();
        if known.is_empty() { "-".to_string() } else { format!("{:.0}", known.iter().sum::<f64>()) }
    };
    let mut versions = metrics.hbase_version.clone().unwrap_or_else(|| "unknown".to_string());
    if let Some(id) = &metrics.cluster_id {
        versions += &format!(", cluster {id}");
    }
    [
        format!("version {versions}, master {name}"),
        format!(
            "servers {} live, {} dead; regions {}, {} in transition; average load {:.2}",
            metrics.servers.len(),
            metrics.dead_servers.len(),
            metrics.regions_count(),
            metrics.regions_in_transition.len(),
            metrics.average_load()
        ),
        format!(
            "requests {}/s, reads {}/s, writes {}/s",
            sum(Field::Requests),
            sum(Field::Reads),
            sum(Field::Writes)
        ),
    ]
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::records::tests::example;

    fn args(line: &str) -> TopArgs {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            top: TopArgs,
        }
        let words = std::iter::once("top").chain(line.split_whitespace());
        <Line as clap::Parser>::try_parse_from(words).unwrap().top
    }

    pub(crate) fn view(line: &str) -> View {
        View::of_args(&args(line)).unwrap()
    }

    fn names(view: &View, field: Field) -> Vec<String> {
        let (metrics, rates) = example(3000);
        let records = view.records(&metrics, &rates);
        records.iter().map(|record| record.value(field).unwrap().to_string()).collect()
    }

    #[test]
    fn records_are_ordered_filtered_and_cut() {
        assert_eq!(names(&view("--mode regions"), Field::Reads), ["300", "100", "0"]);
        assert_eq!(names(&view("-m regions --sort #write/s"), Field::Writes), ["50", "10", "0"]);
        assert_eq!(
            names(&view("-m regions --sort TABLE --ascending"), Field::Table),
            ["log", "orders", "orders"]
        );
        assert_eq!(names(&view("-m regions -f #READ/S>0 -f TABLE=ord --limit 1"), Field::Reads), ["300"]);
        assert_eq!(view("--fields TABLE,#SF").fields(), [Field::Table, Field::Files]);
        for wrong in ["--sort COLOUR", "--fields TABLE,COLOUR", "--filter COLOUR=1", "-m users --sort TABLE"]
        {
            assert!(View::of_args(&args(wrong)).unwrap_err().contains("there is no field"), "{wrong}");
        }
    }

    #[test]
    fn a_record_opens_into_its_parts() {
        let (metrics, rates) = example(3000);
        let mut view = View::of_args(&args("-m namespaces")).unwrap();
        let first = view.records(&metrics, &rates).remove(0);
        assert!(view.open(&first));
        assert_eq!((view.mode, names(&view, Field::Table)), (Mode::Tables, vec!["orders".to_string()]));
        let first = view.records(&metrics, &rates).remove(0);
        assert!(view.open(&first));
        assert_eq!(
            (view.mode, names(&view, Field::Reads)),
            (Mode::Regions, vec!["300".into(), "100".into()])
        );
        let first = view.records(&metrics, &rates).remove(0);
        assert!(!view.open(&first), "a region has no parts");
    }

    #[test]
    fn the_order_moves_from_column_to_column_and_stops_at_the_ends() {
        let mut view = View::of_args(&args("-m users")).unwrap();
        view.move_sort(-1);
        assert_eq!(view.sort, Field::User);
        view.move_sort(-1);
        assert_eq!(view.sort, Field::User);
        view.move_sort(100);
        assert_eq!(view.sort, Field::Clients);
    }

    #[test]
    fn the_summary_is_of_the_whole_cluster() {
        let (metrics, rates) = example(3000);
        let [_, servers, requests] = summary(&metrics, &rates);
        assert_eq!(servers, "servers 2 live, 0 dead; regions 3, 0 in transition; average load 1.50");
        assert_eq!(requests, "requests 460/s, reads 400/s, writes 60/s");
        let [_, _, requests] = summary(&metrics, &Rates::default());
        assert_eq!(requests, "requests -/s, reads -/s, writes -/s");
    }
}
