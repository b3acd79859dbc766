//! The page's charts, as SVG.
//!
//! The library draws with the colours of the light page. The page's style replaces them by its own, so that charts are
//! light or dark like the page ([`COLOURS`]). Over each point lies an invisible field with a title that the mouse
//! shows. The library cannot make such fields, so they are added to its drawing.

use std::iter;

use maud::{Markup, PreEscaped, Render, html};
use plotters::backend::SVGBackend;
use plotters::chart::{ChartBuilder, ChartContext};
use plotters::coord::Shift;
use plotters::coord::cartesian::Cartesian2d;
use plotters::coord::combinators::BindKeyPoints;
use plotters::coord::ranged1d::{Ranged, ValueFormatter};
use plotters::drawing::{DrawingArea, DrawingAreaErrorKind, IntoDrawingArea};
use plotters::element::{Polygon, Rectangle};
use plotters::prelude::{IntoLogRange, LineSeries};
use plotters::style::{Color, IntoFont, RGBColor, TextStyle};

/// Sizes of charts, in their own units; the page scales them. For a chart of full width, for one of two side by side,
/// and for one among many.
pub(crate) const WIDE: (u32, u32) = (960, 250);
pub(crate) const HALF: (u32, u32) = (520, 190);
pub(crate) const SMALL: (u32, u32) = (340, 150);

/// Room at the right, for the half of the last tick's label.
pub(super) const RIGHT: u32 = 24;

const FONT_SIZE: u32 = 13;

/// The most ticks of the axes.
const X_TICKS: usize = 13;
const Y_TICKS: usize = 6;

/// Up to this many powers of ten, a logarithmic axis also has ticks between the powers.
const DECADES_WITH_STEPS: i32 = 5;

pub(super) const INK: RGBColor = RGBColor(0x4f, 0x4f, 0x4d);
pub(super) const GRID: RGBColor = RGBColor(0xe3, 0xe3, 0xe0);
pub(super) const FIRST: RGBColor = RGBColor(0x1f, 0x6f, 0xb5);
pub(super) const SECOND: RGBColor = RGBColor(0xb8, 0x5c, 0x00);
const BAND: RGBColor = RGBColor(0xbd, 0xd8, 0xee);
/// Colours of a stall, and of seconds in which an operation waits that ends later.
pub(super) const STALL: RGBColor = RGBColor(0xb3, 0x26, 0x1e);
pub(super) const WAITED: RGBColor = RGBColor(0xf1, 0xc4, 0xbf);
/// Colours of events around a load, and of the curve for comparison.
pub(super) const AROUND: RGBColor = RGBColor(0xf0, 0xe8, 0xcf);
pub(super) const GHOST: RGBColor = RGBColor(0x6b, 0x6b, 0x67);

/// The colours in the charts, and the page's names for them.
pub(crate) const COLOURS: [(RGBColor, &str); 9] = [
    (INK, "ink"),
    (GRID, "grid"),
    (FIRST, "first"),
    (SECOND, "second"),
    (BAND, "band"),
    (STALL, "bad"),
    (WAITED, "waited"),
    (AROUND, "around"),
    (GHOST, "ghost"),
];

/// A line of a chart over time.
pub(crate) struct Curve {
    /// One value for each bin; NaN is a gap in the line.
    pub(crate) values: Vec<f64>,
    /// The range from least to most in each bin, if it is known.
    pub(crate) band: Option<Vec<(f64, f64)>>,
}

/// A chart over the time of a run.
pub(crate) struct TimeChart {
    pub(crate) seconds_each: u64,
    /// Length of the run, in seconds.
    pub(crate) seconds: u64,
    /// One or two curves; or one for each client, all with the same look.
    pub(crate) curves: Vec<Curve>,
    /// The end of the upward axis; `None`: a little above the highest value.
    pub(crate) top: Option<f64>,
    /// Label of the upward axis, with its unit.
    pub(crate) upward: &'static str,
    /// Width and height, such as [`WIDE`].
    pub(crate) size: (u32, u32),
    /// Returns the title of a bin, given its number.
    pub(crate) title: Box<dyn Fn(usize) -> String>,
}

/// Draws grid and axes, with at most the given number of ticks for an axis that does not set its own.
pub(super) fn draw_axes<X, Y>(
    chart: &mut ChartContext<'_, SVGBackend<'_>, Cartesian2d<X, Y>>,
    (x_ticks, y_ticks): (usize, usize),
    across: &str,
    upward: &dyn Fn(&f64) -> String,
) -> Result<(), DrawingAreaErrorKind<std::io::Error>>
where
    X: Ranged<ValueType = f64> + ValueFormatter<f64>,
    Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    chart
        .configure_mesh()
        .bold_line_style(GRID)
        .light_line_style(GRID.mix(0.0))
        .axis_style(INK)
        .label_style(text_style())
        .x_labels(x_ticks)
        .y_labels(y_ticks)
        .x_label_formatter(&|x| number(*x))
        .y_label_formatter(upward)
        .x_desc(across)
        .draw()
}

pub(super) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
pub(super) type Drawn = Result<Vec<Field>, DrawingAreaErrorKind<std::io::Error>>;

/// A field that has a title.
pub(super) struct Field {
    pub(super) from: (i32, i32),
    pub(super) to: (i32, i32),
    pub(super) title: String,
}

/// Seconds, minutes or hours: the unit in which a time has few digits, and the seconds per unit.
fn time_unit(seconds: u64) -> (&'static str, f64) {
    match seconds {
        0..=600 => ("seconds", 1.0),
        601..=14_400 => ("minutes", 60.0),
        _ => ("hours", 3_600.0),
    }
}

/// The seconds of a bin, in words.
pub(crate) fn bin_name(bin: usize, seconds_each: u64, seconds: u64) -> String {
    let first = bin as u64 * seconds_each + 1;
    let last = (first + seconds_each - 1).min(seconds.max(first));
    if first == last { format!("second {first}") } else { format!("seconds {first} to {last}") }
}

impl Render for TimeChart {
    fn render(&self) -> Markup {
        svg(self.upward, self.size, |area| self.draw(area))
    }
}

impl TimeChart {
    fn draw(&self, area: &Area<'_>) -> Drawn {
        let (unit, unit_s) = time_unit(self.seconds);
        let end = self.seconds.max(1) as f64 / unit_s;
        let highest = |curve: &Curve| {
            let band = curve.band.iter().flatten().map(|(_, most)| *most);
            curve.values.iter().copied().chain(band).fold(0.0, f64::max)
        };
        let top = self.top.unwrap_or_else(|| self.curves.iter().map(highest).fold(0.0, f64::max) * 1.08).max(1e-3);
        let mut chart = ChartBuilder::on(area)
            .margin_top(10)
            .margin_right(RIGHT)
            .x_label_area_size(38)
            .y_label_area_size(64)
            .build_cartesian_2d(0.0..end, 0.0..top)?;
        let across = format!("{unit} since the run began");
        draw_axes(&mut chart, (X_TICKS, Y_TICKS), &across, &|y| number(*y))?;
        // A bin's value is drawn in the middle of its time.
        let middle = |bin: usize| ((bin as f64 + 0.5) * self.seconds_each as f64 / unit_s).min(end);
        let (second, width) = if self.curves.len() > 2 { (FIRST, 1) } else { (SECOND, 2) };
        for (curve, colour) in self.curves.iter().zip(iter::once(FIRST).chain(iter::repeat(second))) {
            if let Some(band) = &curve.band {
                let up = band.iter().enumerate().map(|(bin, (_, most))| (middle(bin), *most));
                let back = band.iter().enumerate().rev().map(|(bin, (least, _))| (middle(bin), *least));
                chart.draw_series([Polygon::new(up.chain(back).collect::<Vec<_>>(), BAND)])?;
            }
            for run in runs(&curve.values) {
                let points = run.iter().map(|(bin, value)| (middle(*bin), *value));
                // A single point makes no line, so it is drawn as a dot.
                let size = if run.len() == 1 { 3 } else { 0 };
                chart.draw_series(LineSeries::new(points, colour.stroke_width(width)).point_size(size))?;
            }
        }
        let bins = self.curves.first().map_or(0, |curve| curve.values.len());
        let edge = |bin: usize| (bin as f64 * self.seconds_each as f64 / unit_s).min(end);
        let field = |bin: usize| Field {
            from: chart.backend_coord(&(edge(bin), top)),
            to: chart.backend_coord(&(edge(bin + 1), 0.0)),
            title: (self.title)(bin),
        };
        Ok((0..bins).map(field).collect())
    }
}

/// The parts of a line without gaps: bins and values.
fn runs(values: &[f64]) -> Vec<Vec<(usize, f64)>> {
    let numbered: Vec<(usize, f64)> = values.iter().copied().enumerate().collect();
    let parts = numbered.split(|(_, value)| value.is_nan());
    parts.filter(|part| !part.is_empty()).map(<[(usize, f64)]>::to_vec).collect()
}

/// A histogram of latencies: for each bar its ends in ms, and its count.
pub(crate) struct HistogramChart {
    pub(crate) bars: Vec<(f64, f64, u64)>,
}

impl Render for HistogramChart {
    fn render(&self) -> Markup {
        self.of_size(WIDE)
    }
}

impl HistogramChart {
    /// The chart in this size.
    pub(crate) fn of_size(&self, size: (u32, u32)) -> Markup {
        svg("transactions", size, |area| self.draw(area))
    }

    fn draw(&self, area: &Area<'_>) -> Drawn {
        let (Some(first), Some(last)) = (self.bars.first(), self.bars.last()) else { return Ok(Vec::new()) };
        let most = self.bars.iter().map(|(_, _, count)| *count).max().unwrap_or(1);
        // Below 1, so that a single transaction has a visible bar.
        let bottom = 0.5;
        let top = most as f64 * 2.0;
        let mut chart = ChartBuilder::on(area)
            .margin_top(10)
            .margin_right(RIGHT)
            .x_label_area_size(38)
            .y_label_area_size(64)
            .build_cartesian_2d(
                (first.0..last.1).log_scale().with_key_points(log_ticks(first.0, last.1)),
                (bottom..top).log_scale().with_key_points(log_ticks(bottom, top)),
            )?;
        chart
            .configure_mesh()
            .bold_line_style(GRID)
            .light_line_style(GRID.mix(0.0))
            .axis_style(INK)
            .label_style(text_style())
            .x_label_formatter(&|x| number(*x))
            .y_label_formatter(&|y| number(*y))
            .x_desc("response time, ms (both axes logarithmic)")
            .draw()?;
        let corners = |&(from, to, count): &(f64, f64, u64)| [(from, bottom), (to, (count as f64).max(bottom))];
        chart.draw_series(
            self.bars.iter().filter(|(_, _, count)| *count > 0).map(|bar| Rectangle::new(corners(bar), FIRST.filled())),
        )?;
        let field = |bar: &(f64, f64, u64)| Field {
            from: chart.backend_coord(&(bar.0, top)),
            to: chart.backend_coord(&(bar.1, bottom)),
            title: format!("{} to {} ms: {} transactions", number(bar.0), number(bar.1), grouped(bar.2)),
        };
        Ok(self.bars.iter().map(field).collect())
    }
}

pub(super) fn text_style() -> TextStyle<'static> {
    ("sans-serif", FONT_SIZE).into_font().color(&INK)
}

/// The drawing of `draw`, with the titles that it returns laid over it.
pub(super) fn svg(upward: &str, size: (u32, u32), draw: impl FnOnce(&Area<'_>) -> Drawn) -> Markup {
    let mut text = String::new();
    let area = SVGBackend::with_string(&mut text, size).into_drawing_area();
    let fields = draw(&area).and_then(|fields| area.present().map(|()| fields));
    drop(area);
    let fields = fields.expect("drawing into a string has nothing that can fail");
    let drawn = text.trim_end().strip_suffix("</svg>").unwrap_or_default();
    html! {
        p.upward { (upward) }
        div.chart {
            (PreEscaped(drawn))
            @for Field { from, to, title } in &fields {
                rect.field x=(from.0) y=(from.1) width=((to.0 - from.0).max(1)) height=((to.1 - from.1).max(1)) {
                    title { (title) }
                }
            }
            (PreEscaped("</svg>"))
        }
    }
}

/// Ticks of a logarithmic axis: at 1, 2 and 5 of each power of ten, or at the powers alone if there are many.
pub(super) fn log_ticks(from: f64, to: f64) -> Vec<f64> {
    let (first, last) = (from.log10().floor() as i32, to.log10().ceil() as i32);
    let steps: &[f64] = if last - first > DECADES_WITH_STEPS { &[1.0] } else { &[1.0, 2.0, 5.0] };
    let ticks = (first..=last).flat_map(|power| steps.iter().map(move |step| step * 10_f64.powi(power)));
    ticks.filter(|tick| (from..=to).contains(tick)).collect()
}

/// A number with its useful digits, and with thousands separators.
pub(crate) fn number(value: f64) -> String {
    let decimals = match value.abs() {
        0.0 => 0,
        large if large >= 100.0 => 0,
        middle if middle >= 1.0 => 2,
        _ => 4,
    };
    let text = format!("{value:.decimals$}");
    if !text.contains('.') {
        return grouped(value.round() as u64);
    }
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A whole number with thousands separators.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_few_digits_and_thousands_apart() {
        for (value, text) in [
            (0.0, "0"),
            (0.05, "0.05"),
            (0.000_04, "0"),
            (1.5, "1.5"),
            (20.0, "20"),
            (34_836.5, "34,837"),
            (1_234_567.0, "1,234,567"),
            (999.4, "999"),
        ] {
            assert_eq!(number(value), text);
        }
        assert_eq!(grouped(1_000), "1,000");
    }

    #[test]
    fn logarithmic_ticks_are_round_and_few() {
        let shown = |from, to| log_ticks(from, to).into_iter().map(number).collect::<Vec<_>>();
        assert_eq!(shown(0.07, 12.0), ["0.1", "0.2", "0.5", "1", "2", "5", "10"]);
        assert_eq!(shown(0.5, 4.0), ["0.5", "1", "2"]);
        assert_eq!(shown(0.5, 2e6), ["1", "10", "100", "1,000", "10,000", "100,000", "1,000,000"]);
    }

    #[test]
    fn bins_are_named_by_their_seconds() {
        assert_eq!(bin_name(16, 1, 60), "second 17");
        assert_eq!(bin_name(1, 12, 3_600), "seconds 13 to 24");
        assert_eq!(bin_name(150, 2, 301), "second 301");
    }
}
