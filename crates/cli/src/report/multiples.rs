//! Small multiples: charts of the same figure under several settings, on the same axes. The curve for comparison is
//! drawn faintly behind each curve, and events around a load are shaded spans.

use std::ops::Range;

use maud::{Markup, Render};
use plotters::chart::ChartBuilder;
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};
use plotters::element::Rectangle;
use plotters::prelude::LineSeries;
use plotters::style::{Color, RGBColor};

use super::charts::{
    AROUND, Area, Drawn, FIRST, Field, GHOST, INK, RIGHT, SECOND, SMALL, STALL, WAITED, WIDE, draw_axes, log_ticks,
    number, svg,
};

/// The most ticks of an axis over time, and the possible steps between them, in seconds.
const X_TICKS: f64 = 8.0;
const X_STEPS: [f64; 8] = [0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 60.0, 600.0];

/// Share of a chart's height for the strip that shows only events around the load.
const STRIP: f64 = 0.07;

/// The most ticks of an upward axis.
const Y_TICKS: f64 = 5.0;

/// The library's default number of ticks, for axes that do not set their own.
const TICKS: (usize, usize) = (11, 11);

/// The upward axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Scale {
    /// From 0.
    Linear { top: f64 },
    /// In milliseconds, by powers of ten.
    LogMs { bottom: f64, top: f64 },
}

/// The values of a small chart, second by second.
#[derive(Debug)]
pub(crate) enum Values {
    /// One line.
    Line(Vec<f64>),
    /// Lines with the same look, such as one for each client.
    Lines(Vec<Vec<f64>>),
    /// A bar for the longest wait that ended in a second, and behind it one for the longest that was under way.
    Waits { ended: Vec<f64>, under_way: Vec<f64> },
}

/// A small chart over the seconds of a phase.
pub(crate) struct SmallChart {
    pub(crate) seconds: usize,
    pub(crate) scale: Scale,
    pub(crate) values: Values,
    /// The curve for comparison.
    pub(crate) ghost: Option<Vec<f64>>,
    /// Spans of events around the load, in seconds.
    pub(crate) around: Vec<(f64, f64)>,
    /// Seconds, from 0, in which nothing ended.
    pub(crate) silent: Vec<usize>,
    /// Stall threshold, in ms.
    pub(crate) threshold: Option<f64>,
    pub(crate) upward: String,
    /// Returns the title of a second, given its number from 0.
    pub(crate) title: Box<dyn Fn(usize) -> String>,
}

/// The longest operation under way in each second. `ended_ms` has the longest operation that ended in each second. Each
/// one is extended back over the seconds in which it was certainly under way, whenever in its last second it ended.
pub(crate) fn under_way(ended_ms: &[f64]) -> Vec<f64> {
    under_way_in(ended_ms, 1)
}

/// The same in bins of `seconds_each` seconds.
pub(crate) fn under_way_in(ended_ms: &[f64], seconds_each: u64) -> Vec<f64> {
    let bin_ms = 1e3 * seconds_each as f64;
    let mut longest = ended_ms.to_vec();
    for (last, ms) in ended_ms.iter().enumerate() {
        // The bin of the latest possible begin.
        let first = ((last + 1) as f64 - ms / bin_ms).max(0.0).floor() as usize;
        for of in longest.iter_mut().take(last).skip(first) {
            *of = of.max(*ms);
        }
    }
    longest
}

impl Scale {
    /// A scale for response times from `least` to `most`, in ms; the bottom is a power of ten.
    pub(crate) fn log_ms(least: f64, most: f64) -> Scale {
        let bottom = 10_f64.powf(least.max(0.01).log10().floor());
        Scale::LogMs { bottom, top: (most * 1.3).max(bottom * 20.0) }
    }

    fn of(self, value: f64) -> f64 {
        match self {
            Scale::Linear { top } => value.clamp(0.0, top),
            Scale::LogMs { bottom, top } => value.clamp(bottom, top).log10(),
        }
    }

    fn range(self) -> (f64, f64) {
        match self {
            Scale::Linear { top } => (0.0, top),
            Scale::LogMs { bottom, top } => (bottom.log10(), top.log10()),
        }
    }

    fn ticks(self) -> Vec<f64> {
        match self {
            Scale::Linear { top } => {
                let raw = top / Y_TICKS;
                let power = 10_f64.powf(raw.log10().floor());
                let step = [1.0, 2.0, 5.0, 10.0].map(|of| of * power).into_iter().find(|step| *step >= raw);
                steps(step.unwrap_or(top), top)
            }
            Scale::LogMs { bottom, top } => {
                let powers = log_ticks(bottom, top);
                let is_power = |tick: &f64| (tick.log10() - tick.log10().round()).abs() < 1e-6;
                let whole: Vec<f64> = powers.iter().copied().filter(is_power).collect();
                let shown = if whole.len() > 2 { whole } else { powers };
                shown.into_iter().map(f64::log10).collect()
            }
        }
    }

    fn label(self, place: f64) -> String {
        match self {
            Scale::Linear { .. } => number(place),
            Scale::LogMs { .. } => match 10_f64.powf(place) {
                ms if ms < 999.5 => format!("{} ms", number(ms)),
                ms => format!("{} s", number(ms / 1e3)),
            },
        }
    }
}

/// An axis with given ticks: the library's own ticks would not be powers of ten.
struct Axis {
    range: Range<f64>,
    ticks: Vec<f64>,
}

impl Ranged for Axis {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let share = (value - self.range.start) / (self.range.end - self.range.start);
        limit.0 + (share * f64::from(limit.1 - limit.0)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.ticks.clone()
    }

    fn range(&self) -> Range<f64> {
        self.range.clone()
    }
}

fn steps(step: f64, to: f64) -> Vec<f64> {
    (0..=(to / step + 1e-9) as usize).map(|at| at as f64 * step).collect()
}

impl Render for SmallChart {
    fn render(&self) -> Markup {
        svg(&self.upward, SMALL, |area| self.draw(area))
    }
}

impl SmallChart {
    fn draw(&self, area: &Area<'_>) -> Drawn {
        let end = self.seconds.max(1) as f64;
        let (low, high) = self.scale.range();
        let x_step = X_STEPS.into_iter().find(|step| end / step <= X_TICKS).unwrap_or(end);
        let scale = self.scale;
        let mut chart = ChartBuilder::on(area)
            .margin_top(8)
            .margin_right(RIGHT / 2)
            .x_label_area_size(34)
            .y_label_area_size(54)
            .build_cartesian_2d(
                Axis { range: 0.0..end, ticks: steps(x_step, end) },
                Axis { range: low..high, ticks: scale.ticks() },
            )?;
        let block = |from: f64, to: f64, top: f64, colour: RGBColor| {
            Rectangle::new([(from.clamp(0.0, end), low), (to.clamp(0.0, end), top)], colour.filled())
        };
        chart.draw_series(self.around.iter().map(|(from, to)| block(*from, *to, high, AROUND)))?;
        let second = |at: usize, top, colour| block(at as f64, at as f64 + 1.0, top, colour);
        chart.draw_series(self.silent.iter().map(|at| second(*at, high, WAITED)))?;
        draw_axes(&mut chart, TICKS, "seconds of this phase", &|y| scale.label(*y))?;
        if let Values::Waits { ended, under_way } = &self.values {
            let is_stall = |ms: f64| self.threshold.is_some_and(|threshold| ms >= threshold);
            let later = under_way.iter().zip(ended).enumerate().filter(|(_, (longest, ms))| longest > ms);
            chart.draw_series(later.map(|(at, (longest, _))| second(at, scale.of(*longest), WAITED)))?;
            chart.draw_series(ended.iter().enumerate().filter(|(_, ms)| **ms > 0.0).map(|(at, ms)| {
                let middle = at as f64 + 0.5;
                block(middle - 0.4, middle + 0.4, scale.of(*ms), if is_stall(*ms) { STALL } else { FIRST })
            }))?;
        }
        // Drawn again at the top, because bars of waits and silence would hide the span.
        let strip = |(from, to): &(f64, f64)| {
            Rectangle::new([(*from, high - STRIP * (high - low)), (*to, high)], AROUND.filled())
        };
        chart.draw_series(self.around.iter().map(strip))?;
        // A second's value is drawn in the middle of the second.
        let points = |values: &[f64]| {
            let point = |(at, value): (usize, &f64)| (at as f64 + 0.5, scale.of(*value));
            values.iter().enumerate().map(point).collect::<Vec<_>>()
        };
        if let Some(ghost) = &self.ghost {
            chart.draw_series(LineSeries::new(points(ghost), GHOST.stroke_width(1)))?;
        }
        match &self.values {
            Values::Line(line) => {
                chart.draw_series(LineSeries::new(points(line), FIRST.stroke_width(2)))?;
            }
            Values::Lines(lines) => {
                for line in lines {
                    chart.draw_series(LineSeries::new(points(line), FIRST.stroke_width(1)))?;
                }
            }
            Values::Waits { .. } => {}
        }
        if let Some(at) = self.threshold.map(|threshold| scale.of(threshold)).filter(|at| *at > low && *at < high) {
            chart.draw_series(LineSeries::new([(0.0, at), (end, at)], STALL.stroke_width(1)))?;
        }
        let field = |at: usize| Field {
            from: chart.backend_coord(&(at as f64, high)),
            to: chart.backend_coord(&(at as f64 + 1.0, low)),
            title: (self.title)(at),
        };
        Ok((0..self.seconds).map(field).collect())
    }
}

/// The lines of a [`QuietChart`]: class of the key on the page, and colour.
const LINES: [(&str, RGBColor); 3] = [("first", FIRST), ("second", SECOND), ("ink", INK)];

/// Waits over the quiet time before them: a line for each setting, and the predicted curve.
pub(crate) struct QuietChart {
    /// Seconds of quiet, and ms; the first line is the default's.
    pub(crate) lines: Vec<Vec<(f64, f64)>>,
    /// The predicted wait in ms, given the seconds of quiet.
    pub(crate) told: fn(f64) -> f64,
    pub(crate) upward: &'static str,
}

impl QuietChart {
    /// The class of the key of a line, by its index; lines after the second look the same.
    pub(crate) fn key(line: usize) -> &'static str {
        LINES[line.min(LINES.len() - 1)].0
    }
}

impl Render for QuietChart {
    fn render(&self) -> Markup {
        svg(self.upward, WIDE, |area| self.draw(area))
    }
}

impl QuietChart {
    fn draw(&self, area: &Area<'_>) -> Drawn {
        let points = || self.lines.iter().flatten();
        let end = points().map(|(quiet_s, _)| *quiet_s).fold(1.0, f64::max) * 1.04;
        let top = points().map(|(_, ms)| *ms).fold((self.told)(end), f64::max) * 1.08;
        let mut chart = ChartBuilder::on(area)
            .margin_top(10)
            .margin_right(RIGHT)
            .x_label_area_size(38)
            .y_label_area_size(64)
            .build_cartesian_2d(0.0..end, 0.0..top)?;
        draw_axes(&mut chart, TICKS, "seconds of quiet before", &|y| number(*y))?;
        let curve = (0..=200).map(|at| f64::from(at) * end / 200.0).map(|quiet_s| (quiet_s, (self.told)(quiet_s)));
        chart.draw_series(LineSeries::new(curve, GHOST.stroke_width(1)))?;
        // The default's line is drawn last, over the others.
        for (at, line) in self.lines.iter().enumerate().rev() {
            let colour = LINES[at.min(LINES.len() - 1)].1;
            let series = LineSeries::new(line.iter().copied(), colour.filled().stroke_width(2));
            chart.draw_series(series.point_size(4))?;
        }
        let field = |(quiet_s, ms): &(f64, f64)| {
            let (x, y) = chart.backend_coord(&(*quiet_s, *ms));
            let title =
                format!("after {} s: {} ms; told {} ms", number(*quiet_s), number(*ms), number((self.told)(*quiet_s)));
            Field { from: (x - 8, y - 8), to: (x + 8, y + 8), title }
        };
        Ok(points().map(field).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_is_drawn_back_over_the_seconds_that_it_took() {
        let ended = [4.0, 3.0, 0.0, 0.0, 0.0, 0.0, 0.0, 5_748.0, 2.0];
        let longest = under_way(&ended);
        assert_eq!(longest, [4.0, 3.0, 5_748.0, 5_748.0, 5_748.0, 5_748.0, 5_748.0, 5_748.0, 2.0]);
        // The operation may have begun in the second in which it ended, so the second before stays unchanged.
        assert_eq!(under_way(&[1.0, 999.0]), [1.0, 999.0]);
        assert_eq!(under_way(&[1.0, 1_001.0]), [1_001.0, 1_001.0]);
        assert_eq!(under_way(&[9_000.0, 1.0]), [9_000.0, 1.0], "it began before the phase");
        assert_eq!(under_way_in(&[1.0, 2.0, 13_000.0], 12), [1.0, 13_000.0, 13_000.0]);
    }

    #[test]
    fn scales_have_few_round_ticks_and_keep_outliers_at_the_edge() {
        let labels = |scale: Scale| scale.ticks().into_iter().map(|tick| scale.label(tick)).collect::<Vec<_>>();
        assert_eq!(labels(Scale::Linear { top: 1_080.0 }), ["0", "500", "1,000"]);
        assert_eq!(labels(Scale::Linear { top: 99_000.0 }), ["0", "20,000", "40,000", "60,000", "80,000"]);
        assert_eq!(labels(Scale::log_ms(3.2, 5_748.0)), ["1 ms", "10 ms", "100 ms", "1 s"]);
        assert_eq!(labels(Scale::log_ms(3.2, 9.0)), ["1 ms", "2 ms", "5 ms", "10 ms", "20 ms"]);
        let scale = Scale::log_ms(3.2, 5_748.0);
        assert_eq!(scale.of(0.0), 0.0);
        assert_eq!(scale.of(1e9), scale.range().1);
    }
}
