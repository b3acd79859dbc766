//! The live view on a terminal, redrawn at each interval.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::Line as Text;
use ratatui::widgets::{Block, Paragraph, Sparkline, SparklineBar, Wrap};

use super::Watch;
use super::figures::{Figures, Mark, NARROW, STALL_MS};
use super::source::{Awaited, Sample};
use crate::exit::{Answer, Failure};
use crate::output::print;

/// A signal is seen within this time, and so is a key while an answer is awaited.
const SEEN: Duration = Duration::from_millis(50);

/// The most lines of the strip of slowest operations.
const STRIP_LINES: u16 = 8;

/// Restores the terminal when it is dropped.
struct Restored;

impl Drop for Restored {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// The user's action.
enum Deed {
    Leaves,
    /// The terminal has a new size.
    Resizes,
    Nothing,
}

/// Shows the live view until the user leaves or the engine ends.
pub(super) fn run(watch: &mut Watch<'_>, stop: &AtomicBool) -> Result<Answer, Failure> {
    let mut terminal = ratatui::try_init().map_err(failed)?;
    let restored = Restored;
    let mut figures = watch.first();
    let (mut asks_at, mut awaited) = (Instant::now() + watch.interval, None::<Awaited<Sample>>);
    let mut is_drawn = false;
    loop {
        if !is_drawn {
            terminal.draw(|frame| draw(frame, &figures, watch.target)).map_err(failed)?;
            is_drawn = true;
        }
        // Waits for the answer only for a moment at a time, so that an engine that does not answer delays no key.
        let (answer, left) = match &awaited {
            Some(awaited) => (awaited.wait(SEEN), Duration::ZERO),
            None => (None, asks_at.saturating_duration_since(Instant::now())),
        };
        match deed(left.min(SEEN), stop)? {
            Deed::Leaves => return Ok(Answer::Yes),
            Deed::Resizes => is_drawn = false,
            Deed::Nothing => {}
        }
        if let Some(answer) = answer {
            let Some(next) = watch.look(answer)? else {
                drop(restored);
                print(&figures.block(watch.target))?;
                return Ok(watch.tell_end());
            };
            (figures, awaited, is_drawn) = (next, None, false);
            asks_at = Instant::now() + watch.interval;
        } else if awaited.is_none() && Instant::now() >= asks_at {
            awaited = Some(watch.ask()?);
        }
    }
}

fn failed(why: io::Error) -> Failure {
    Failure::message(format!("cannot draw on the terminal: {why}; try --plain"))
}

/// Waits up to `time` for an action of the user.
fn deed(time: Duration, stop: &AtomicBool) -> Result<Deed, Failure> {
    // Relaxed: an independent flag.
    if stop.load(Ordering::Relaxed) {
        return Ok(Deed::Leaves);
    }
    if !event::poll(time).map_err(failed)? {
        return Ok(Deed::Nothing);
    }
    Ok(match event::read().map_err(failed)? {
        Event::Key(key) if leaves(key) => Deed::Leaves,
        Event::Resize(..) => Deed::Resizes,
        _ => Deed::Nothing,
    })
}

/// Whether a key ends the view: q, Esc, or Ctrl-C, which raises no signal in raw mode.
fn leaves(key: KeyEvent) -> bool {
    let interrupts = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
    interrupts || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc)
}

fn draw(frame: &mut Frame<'_>, figures: &Figures, target: &str) {
    let area = frame.area();
    let columns = usize::from(area.width);
    if columns < NARROW {
        // A cut number is worse than none.
        let text = format!("{columns} columns: {NARROW} are needed; q to leave");
        return frame.render_widget(Paragraph::new(text).wrap(Wrap { trim: true }), area);
    }
    let lines: Vec<Text<'_>> =
        figures.lines(columns).into_iter().map(|(line, mark)| Text::styled(line, style(mark))).collect();
    // Two lines are for the head and the foot.
    let room = area.height.saturating_sub(2);
    let body_lines = u16::try_from(lines.len() + 1).unwrap_or(u16::MAX).min(room);
    let strip_lines = STRIP_LINES.min(room - body_lines);
    let parts = [1, body_lines, strip_lines].map(Constraint::Length);
    let [head, body, strip, foot] = Layout::vertical(parts.into_iter().chain([Constraint::Fill(1)])).areas(area);
    frame.render_widget(Text::from(figures.head(target, columns)).bold(), head);
    frame.render_widget(Paragraph::new(lines), body);
    frame.render_widget(Text::from("q to leave").dim(), foot);

    // The newest seconds, one per column.
    let shown = &figures.slowest_ms[figures.slowest_ms.len().saturating_sub(columns)..];
    let chart =
        Sparkline::default().block(Block::new().title(title(shown, columns))).data(shown.iter().copied().map(bar));
    frame.render_widget(chart, strip);
}

/// The title of the strip: numbers first, then words if there is room.
fn title(shown_ms: &[f64], columns: usize) -> String {
    let worst = shown_ms.iter().copied().fold(0.0, f64::max);
    let last = shown_ms.last().copied().unwrap_or_default();
    let numbers = format!("last {last:.1} ms, highest bar {worst:.1} ms");
    let words = format!("{numbers}: slowest operation of each second");
    if words.len() <= columns { words } else { numbers }
}

fn bar(ms: f64) -> SparklineBar {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a time, not negative")]
    let bar = SparklineBar::from((ms * 1e3) as u64);
    bar.style((ms >= STALL_MS).then(|| style(Mark::Broken)))
}

fn style(mark: Mark) -> Style {
    match mark {
        Mark::Calm => Style::new(),
        Mark::Near => Style::new().fg(Color::Yellow),
        Mark::Broken => Style::new().fg(Color::Red),
    }
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::super::source::Sample;
    use super::super::source::tests::TEXT;
    use super::*;

    fn figures(text: &str) -> Figures {
        let before = Sample::parse(TEXT).expect("an engine's");
        let mut now = Sample::parse(text).expect("an engine's");
        now.at = before.at + Duration::from_secs(1);
        Figures::between(&before, &now)
    }

    fn drawn(figures: &Figures, width: u16, height: u16) -> (Vec<String>, Vec<Color>) {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal");
        terminal.draw(|frame| draw(frame, figures, "/tmp/sock")).expect("drawn");
        let cells = terminal.backend().buffer().content();
        let lines = cells.chunks(usize::from(width)).map(|line| line.iter().map(|cell| cell.symbol()).collect());
        (lines.collect(), cells.iter().map(|cell| cell.fg).collect())
    }

    #[test]
    fn a_terminal_of_any_size_shows_whole_values_or_none() {
        let figures = figures(&TEXT.replace("} 2500", "} 220000"));
        for (width, height) in [(120, 40), (80, 24), (79, 24), (60, 40), (43, 40), (42, 9), (20, 5), (43, 3), (1, 1)] {
            let (lines, _) = drawn(&figures, width, height);
            let has = |part: &str| lines.iter().any(|line| line.contains(part));
            if height >= 24 {
                for part in ["millpond at /tmp/sock", "over 1.0 s", "writers' limit                none", "q to leave"]
                {
                    assert!(has(part), "no {part} in {width} x {height}: {lines:#?}");
                }
                assert!(has("last 220.0 ms, highest bar 220.0 ms"), "{width}: {lines:#?}");
            }
            assert_eq!(has("slowest operation of each second"), width >= 79, "{width}: {lines:#?}");
            assert_eq!(has("0 % of 64"), width >= 43 && height >= 24, "{width} x {height}: {lines:#?}");
        }
    }

    #[test]
    fn a_bar_is_red_that_is_a_stall_and_no_other() {
        let slow = TEXT.replace("} 2500\n", "} 90000\nmillpond_operation_slowest_us{ago=\"2\"} 220000\n");
        let (_, colours) = drawn(&figures(&slow), 80, 40);
        let reds = colours.iter().enumerate().filter(|(_, colour)| **colour == Color::Red);
        let columns: Vec<usize> = reds.map(|(at, _)| at % 80).collect();
        assert!(!columns.is_empty() && columns.iter().all(|column| *column == 0), "{columns:?}");
    }

    #[test]
    fn q_and_an_interrupt_leave_and_other_keys_do_not() {
        let key = |code, modifiers| leaves(KeyEvent::new(code, modifiers));
        assert!(key(KeyCode::Char('q'), KeyModifiers::NONE) && key(KeyCode::Char('c'), KeyModifiers::CONTROL));
        assert!(!key(KeyCode::Char('c'), KeyModifiers::NONE) && !key(KeyCode::Enter, KeyModifiers::NONE));
    }
}
