//! The live screen.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use halcyon_client::{Cluster, ClusterMetrics};
use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Cell, Paragraph, Row, Table, TableState};
use tokio::runtime::Runtime;
use tokio::sync::{Notify, watch};

use crate::args::{Mode, TopArgs};
use crate::rates::Rates;
use crate::records::Record;
use crate::sampling::{Sample, sample_forever};
use crate::view::{View, summary};

/// How long a key may wait for the screen, and a new state for its drawing.
const POLL_PERIOD: Duration = Duration::from_millis(100);
const KEYS: &str = "q quit  1-5 or Tab mode  < > order by  r reverse  f filter  c clear filters  Enter parts  Space look now";
/// Longer filters cannot be typed.
const FILTER_CHARS_MAX: usize = 200;

/// What the screen shows.
pub struct Screen {
    view: View,
    rates: Rates,
    metrics: Option<ClusterMetrics>,
    /// The last look's or the last filter's.
    error: Option<String>,
    /// A filter that is being typed.
    typed: Option<String>,
    state: TableState,
}

/// What a key asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Draw,
    Look,
    Quit,
}

/// Draws until the user quits.
pub fn run(args: &TopArgs, view: View, cluster: Cluster, runtime: &Runtime) -> Result<(), String> {
    let (to, mut from) = watch::channel(None);
    let asked = Arc::new(Notify::new());
    runtime.spawn(sample_forever(cluster, Duration::from_secs(args.delay), Arc::clone(&asked), to));
    let mut terminal =
        ratatui::try_init().map_err(|error| format!("cannot draw on this terminal: {error}"))?;
    let mut screen = Screen::new(view);
    let ended = loop {
        if from.has_changed().unwrap_or(false)
            && let Some(sample) = &*from.borrow_and_update()
        {
            screen.take(sample.clone());
        }
        let step = terminal.draw(|frame| screen.draw(frame)).and_then(|_| screen.wait_for_key());
        match step {
            Ok(Step::Draw) => {}
            Ok(Step::Look) => asked.notify_one(),
            Ok(Step::Quit) => break Ok(()),
            Err(error) => break Err(format!("the terminal failed: {error}")),
        }
    };
    ratatui::restore();
    ended
}

impl Screen {
    pub fn new(view: View) -> Screen {
        Screen {
            view,
            rates: Rates::default(),
            metrics: None,
            error: None,
            typed: None,
            state: TableState::default().with_selected(0),
        }
    }

    /// A new state of the cluster. After a failure the last one stays, with the reason.
    pub fn take(&mut self, sample: Sample) {
        match sample {
            Ok(metrics) => {
                self.rates.update(&metrics);
                self.metrics = Some(metrics);
                self.error = None;
            }
            Err(error) => self.error = Some(error),
        }
    }

    fn wait_for_key(&mut self) -> io::Result<Step> {
        if !event::poll(POLL_PERIOD)? {
            return Ok(Step::Draw);
        }
        match event::read()? {
            Event::Key(key) if key.kind != KeyEventKind::Release => Ok(self.press(key)),
            _ => Ok(Step::Draw),
        }
    }

    pub fn press(&mut self, key: KeyEvent) -> Step {
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c') if is_control => return Step::Quit,
            code if self.typed.is_some() => self.type_filter(code),
            KeyCode::Char('q') | KeyCode::Esc => return Step::Quit,
            KeyCode::Char(' ') => return Step::Look,
            KeyCode::Char(digit @ '1'..='5') => self.set_mode(Mode::ALL[digit as usize - '1' as usize]),
            KeyCode::Tab => self.set_mode(self.neighbour(1)),
            KeyCode::BackTab => self.set_mode(self.neighbour(Mode::ALL.len() - 1)),
            KeyCode::Char('<') | KeyCode::Left => self.view.move_sort(-1),
            KeyCode::Char('>') | KeyCode::Right => self.view.move_sort(1),
            KeyCode::Char('r') => self.view.ascending = !self.view.ascending,
            KeyCode::Char('f') => self.typed = Some(String::new()),
            KeyCode::Char('c') => self.view.filters.clear(),
            KeyCode::Enter => self.open(),
            code => self.scroll(code),
        }
        Step::Draw
    }

    fn scroll(&mut self, code: KeyCode) {
        match code {
            KeyCode::Down | KeyCode::Char('j') => self.state.scroll_down_by(1),
            KeyCode::Up | KeyCode::Char('k') => self.state.scroll_up_by(1),
            KeyCode::PageDown => self.state.scroll_down_by(20),
            KeyCode::PageUp => self.state.scroll_up_by(20),
            KeyCode::Home => self.state.select_first(),
            KeyCode::End => self.state.select_last(),
            _ => {}
        }
    }

    fn set_mode(&mut self, mode: Mode) {
        self.view.set_mode(mode);
        self.state.select_first();
    }

    fn neighbour(&self, steps: usize) -> Mode {
        let at = Mode::ALL.iter().position(|mode| *mode == self.view.mode).unwrap_or(0);
        Mode::ALL[(at + steps) % Mode::ALL.len()]
    }

    fn records(&self) -> Vec<Record> {
        self.metrics.as_ref().map(|metrics| self.view.records(metrics, &self.rates)).unwrap_or_default()
    }

    fn open(&mut self) {
        let records = self.records();
        let at = self.state.selected().unwrap_or(0).min(records.len().saturating_sub(1));
        if records.get(at).is_some_and(|record| self.view.open(record)) {
            self.state.select_first();
        }
    }

    fn type_filter(&mut self, code: KeyCode) {
        let Some(typed) = &mut self.typed else { return };
        match code {
            KeyCode::Char(c) if typed.chars().count() < FILTER_CHARS_MAX => typed.push(c),
            KeyCode::Backspace => drop(typed.pop()),
            KeyCode::Esc => self.typed = None,
            KeyCode::Enter => {
                self.error = self.view.add_filter(typed).err();
                self.typed = None;
            }
            _ => {}
        }
    }

    pub fn draw(&mut self, frame: &mut Frame<'_>) {
        let areas = Layout::vertical([Constraint::Length(4), Constraint::Min(1), Constraint::Length(1)]);
        let [head, body, foot] = areas.areas(frame.area());
        frame.render_widget(Paragraph::new(self.head()), head);
        let records = self.records();
        let table = self.table(&records);
        frame.render_stateful_widget(table, body, &mut self.state);
        let foot_text = match (&self.typed, &self.error) {
            (Some(typed), _) => format!("filter (FIELD OP VALUE, Esc to leave): {typed}_"),
            (None, Some(error)) => error.clone(),
            (None, None) => KEYS.to_string(),
        };
        frame.render_widget(Paragraph::new(foot_text), foot);
    }

    fn head(&self) -> Text<'static> {
        let Some(metrics) = &self.metrics else { return Text::from("looking at the cluster") };
        let mut lines: Vec<Line<'static>> =
            summary(metrics, &self.rates).into_iter().map(Line::from).collect();
        let order = if self.view.ascending { "ascending" } else { "descending" };
        let mut state = format!("{} by {} {order}", self.view.mode.name(), self.view.sort.name());
        for filter in &self.view.filters {
            state += &format!(", {}", filter.text);
        }
        lines.push(Line::from(Span::styled(state, Style::new().add_modifier(Modifier::BOLD))));
        Text::from(lines)
    }

    fn table(&self, records: &[Record]) -> Table<'static> {
        let fields = self.view.fields();
        let cell = |text: String, is_text: bool| match is_text {
            true => Cell::from(text),
            false => Cell::from(Text::from(text).right_aligned()),
        };
        let heading = |field: &crate::fields::Field| {
            let style = match *field == self.view.sort {
                true => Style::new().add_modifier(Modifier::UNDERLINED),
                false => Style::new(),
            };
            cell(field.name().to_string(), field.is_text()).style(style)
        };
        let row = |record: &Record| {
            let values = fields.iter().filter_map(|field| Some((record.value(*field)?, field.is_text())));
            Row::new(values.map(|(value, is_text)| cell(value.to_string(), is_text)).collect::<Vec<_>>())
        };
        let widths = self.view.widths(records).into_iter();
        let widths = widths.map(|width| Constraint::Length(u16::try_from(width).unwrap_or(u16::MAX)));
        Table::new(records.iter().map(row).collect::<Vec<_>>(), widths.collect::<Vec<_>>())
            .header(
                Row::new(fields.iter().map(heading).collect::<Vec<_>>())
                    .style(Style::new().add_modifier(Modifier::REVERSED)),
            )
            .row_highlight_style(Style::new().add_modifier(Modifier::BOLD | Modifier::REVERSED))
            .column_spacing(2)
    }
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;
    use crate::records::tests::example;
    use crate::view::tests::view;

    fn screen() -> Screen {
        let mut screen = Screen::new(view("-m tables"));
        for at_ms in [1000, 3000] {
            screen.take(Ok(example(at_ms).0));
        }
        screen
    }

    fn drawn(screen: &mut Screen, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| screen.draw(frame)).unwrap();
        let buffer = terminal.backend().buffer();
        let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_string();
        (0..height).map(line).collect::<Vec<_>>().join("\n")
    }

    fn press(screen: &mut Screen, keys: &str) -> Step {
        let mut step = Step::Draw;
        for c in keys.chars() {
            let code = if c == '\n' { KeyCode::Enter } else { KeyCode::Char(c) };
            step = screen.press(KeyEvent::from(code));
        }
        step
    }

    #[test]
    fn the_screen_has_summary_headings_records_and_keys() {
        let mut screen = screen();
        let text = drawn(&mut screen, 130, 12);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[1], "servers 2 live, 0 dead; regions 3, 0 in transition; average load 1.50");
        assert_eq!(lines[3], "tables by #REQ/S descending");
        assert!(lines[4].starts_with("NAMESPACE  TABLE") && lines[4].contains("#REQ/S"), "{text}");
        assert!(lines[5].starts_with("default    orders     410"), "{text}");
        assert!(lines[6].starts_with("ns         log"), "{text}");
        assert!(lines[11].starts_with("q quit"), "{text}");
        // a terminal may be of any size
        for (width, height) in [(1, 1), (20, 3), (300, 2), (5, 50)] {
            drawn(&mut screen, width, height);
        }
    }

    #[test]
    fn keys_change_the_view() {
        let mut screen = screen();
        press(&mut screen, "fTABLE==log\n");
        let text = drawn(&mut screen, 130, 12);
        assert!(text.contains("descending, TABLE==log") && !text.contains("orders"), "{text}");
        press(&mut screen, "cr");
        let text = drawn(&mut screen, 130, 12);
        assert!(text.find("log") < text.find("orders") && text.contains("ascending"), "{text}");
        press(&mut screen, "rfnonsense\n");
        assert!(drawn(&mut screen, 130, 12).contains("filter \"nonsense\": FIELD OP VALUE is wanted"));
        press(&mut screen, "1");
        assert!(drawn(&mut screen, 130, 12).contains("servers by #REQ/S"));
        press(&mut screen, "\n");
        let text = drawn(&mut screen, 160, 12);
        assert!(
            text.contains("regions by #REQ/S descending, SERVER==b:16020"),
            "the regions of the busiest: {text}"
        );
        assert_eq!(press(&mut screen, " "), Step::Look);
        assert_eq!(press(&mut screen, "fq"), Step::Draw, "a letter of a filter");
        assert_eq!(screen.press(KeyEvent::from(KeyCode::Esc)), Step::Draw, "leaves the filter");
        assert_eq!(press(&mut screen, "q"), Step::Quit);
        let control_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(screen.press(control_c), Step::Quit);
    }

    #[test]
    fn a_failed_look_is_told_and_the_last_state_stays() {
        let mut screen = screen();
        screen.take(Err("the master does not answer: refused".into()));
        let text = drawn(&mut screen, 130, 12);
        assert!(text.contains("the master does not answer") && text.contains("orders"), "{text}");
        screen.take(Ok(example(4000).0));
        assert!(!drawn(&mut screen, 130, 12).contains("does not answer"));
        assert!(drawn(&mut Screen::new(view("")), 80, 10).contains("looking at the cluster"));
    }
}
