//! The live view on a terminal, redrawn at each interval.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::Line as Text;
use ratatui::widgets::{Block, Paragraph, Sparkline};

use super::Watch;
use super::figures::{Figures, Mark};
use super::source::{Awaited, Sample};
use crate::exit::{Answer, Failure};
use crate::output::print;

/// How soon a signal is seen, and a key while an answer is awaited.
const SEEN: Duration = Duration::from_millis(50);

/// Lines of the strip of slowest operations.
const STRIP_LINES: u16 = 8;

/// The terminal as it was, when dropped.
struct Restored;

impl Drop for Restored {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// What the user does.
enum Deed {
    Leaves,
    /// He has made the terminal larger or smaller.
    Resizes,
    Nothing,
}

/// Shows it until the user leaves, or there is nobody to watch any more.
pub(super) fn run(watch: &mut Watch<'_>, stop: &AtomicBool) -> Result<Answer, Failure> {
    let mut terminal = ratatui::try_init().map_err(failed)?;
    let restored = Restored;
    let mut figures = watch.first();
    let (mut asks_at, mut awaited) = (Instant::now() + watch.interval, None::<Awaited<Sample>>);
    let mut is_drawn = false;
    loop {
        if !is_drawn {
            terminal.draw(|frame| draw(frame, &figures, watch.who)).map_err(failed)?;
            is_drawn = true;
        }
        // An engine that does not answer keeps no key waiting: its answer is awaited for a moment at a time.
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
                print(&figures.block(watch.who))?;
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

/// Waits for a deed, for so long.
fn deed(time: Duration, stop: &AtomicBool) -> Result<Deed, Failure> {
    // Relaxed: stands for itself.
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

/// Whether a key ends it: q, Esc, Ctrl-C, which is no signal here.
fn leaves(key: KeyEvent) -> bool {
    let interrupts = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
    interrupts || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc)
}

fn draw(frame: &mut Frame<'_>, figures: &Figures, who: &str) {
    let lines: Vec<Text<'_>> =
        figures.lines().into_iter().map(|(line, mark)| Text::styled(line, style(mark))).collect();
    let height = u16::try_from(lines.len() + 1).unwrap_or(u16::MAX);
    let parts =
        [Constraint::Length(1), Constraint::Length(height), Constraint::Length(STRIP_LINES), Constraint::Fill(1)];
    let [head, body, strip, rest] = Layout::vertical(parts).areas(frame.area());
    frame.render_widget(Text::from(figures.head(who)).bold(), head);
    frame.render_widget(Paragraph::new(lines), body);
    frame.render_widget(Text::from("q to leave").dim(), rest);

    let worst = figures.slowest_ms.iter().copied().fold(0.0, f64::max);
    let last = figures.slowest_ms.last().copied().unwrap_or_default();
    let title = format!("slowest operation of each second, the newest at the right: {last:.1} ms; worst {worst:.1} ms");
    // As many as there are columns, the newest ones.
    let columns = usize::from(strip.width);
    let from = figures.slowest_ms.len().saturating_sub(columns);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "times, not negative")]
    let data: Vec<u64> = figures.slowest_ms[from..].iter().map(|ms| (ms * 1e3) as u64).collect();
    let colour = if worst >= super::figures::STALL_MS { Color::Red } else { Color::Reset };
    let chart = Sparkline::default().block(Block::new().title(title)).data(data).style(Style::new().fg(colour));
    frame.render_widget(chart, strip);
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

    #[test]
    fn a_terminal_of_any_size_shows_what_fits() {
        let sample = Sample::parse(TEXT).expect("an engine's");
        let figures = Figures::between(&sample, &sample);
        for (width, height) in [(120, 40), (80, 24), (20, 5), (1, 1)] {
            let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal");
            terminal.draw(|frame| draw(frame, &figures, "sock")).expect("drawn");
            let shown: String = terminal.backend().buffer().content().iter().map(|cell| cell.symbol()).collect();
            if width >= 80 {
                for part in
                    ["millpond at sock", "writes/s", "free frames", "slowest operation of each second", "q to leave"]
                {
                    assert!(shown.contains(part), "no {part} in {width} x {height}: {shown}");
                }
            }
        }
    }

    #[test]
    fn q_and_an_interrupt_leave_and_other_keys_do_not() {
        let key = |code, modifiers| leaves(KeyEvent::new(code, modifiers));
        assert!(key(KeyCode::Char('q'), KeyModifiers::NONE) && key(KeyCode::Char('c'), KeyModifiers::CONTROL));
        assert!(!key(KeyCode::Char('c'), KeyModifiers::NONE) && !key(KeyCode::Enter, KeyModifiers::NONE));
    }
}
