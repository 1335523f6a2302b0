//! Diagrams of lines.

use plotters::{
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};
use std::path::{Path, PathBuf};
use weir_image::{Failure, Result};

const SIZE: (u32, u32) = (900, 560);
const COLORS: [RGBColor; 6] = [
    RGBColor(31, 119, 180),
    RGBColor(214, 39, 40),
    RGBColor(44, 160, 44),
    RGBColor(148, 103, 189),
    RGBColor(255, 127, 14),
    RGBColor(90, 90, 90),
];

/// The axes and lines of a diagram.
pub struct Picture<'a> {
    /// The label of the horizontal axis.
    pub x: &'a str,
    /// The label of the vertical axis, which begins at 0.
    pub y: &'a str,
    /// Names and points of the lines; a name that begins with `published` is drawn as points.
    pub lines: Vec<(String, Vec<(f64, f64)>)>,
}

impl Picture<'_> {
    /// Writes the diagram to `file` as SVG and returns `file`.
    ///
    /// # Errors
    ///
    /// The environment is at fault if the file cannot be written.
    pub fn write(&self, file: PathBuf) -> Result<PathBuf> {
        self.draw(&file).map_err(|error| {
            Failure::environment(format!("cannot draw {}: {error}", file.display()))
        })?;
        Ok(file)
    }

    fn draw(&self, file: &Path) -> std::result::Result<(), DrawingAreaErrorKind<std::io::Error>> {
        let points = || self.lines.iter().flat_map(|(_, points)| points);
        let far = points().map(|(x, _)| *x).fold(1e-9, f64::max);
        let high = points().map(|(_, y)| *y).fold(1e-9, f64::max);
        let root = SVGBackend::new(file, SIZE).into_drawing_area();
        root.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&root)
            .margin(14)
            .x_label_area_size(40)
            .y_label_area_size(64)
            .build_cartesian_2d(0.0..far * 1.03, 0.0..high * 1.08)?;
        chart.configure_mesh().x_desc(self.x).y_desc(self.y).light_line_style(WHITE).draw()?;
        for ((name, points), color) in self.lines.iter().zip(COLORS.iter().cycle().copied()) {
            if name.starts_with("published") {
                chart
                    .draw_series(points.iter().map(|at| Circle::new(*at, 4, color.filled())))?
                    .label(name)
                    .legend(move |(x, y)| Circle::new((x + 9, y), 4, color.filled()));
            } else {
                chart
                    .draw_series(LineSeries::new(points.iter().copied(), color.stroke_width(2)))?
                    .label(name)
                    .legend(move |(x, y)| {
                        PathElement::new(vec![(x, y), (x + 18, y)], color.stroke_width(2))
                    });
            }
        }
        chart.configure_series_labels().border_style(BLACK).background_style(WHITE).draw()?;
        root.present()
    }
}

/// The width of bars, which a page of 800 pixels has room for.
const WIDTH: u32 = 760;
/// The height of a bar with its name.
const ROW: i32 = 40;
/// The largest ratio that is drawn to scale.
const LARGEST: f64 = 2.0;
/// Characters of the longest name that fits.
const NAME: usize = 90;

/// Bars of ratios to a limit, which is drawn as a line at 1.
///
/// ```
/// use weir_report::Bars;
///
/// let svg = Bars(vec![("flow a<b".to_owned(), 0.25)]).svg().expect("a picture");
/// assert!(svg.starts_with("<svg") && svg.contains("a&lt;b: 0.250"));
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bars(
    /// Names and ratios.
    pub Vec<(String, f64)>,
);

impl Bars {
    /// Returns the picture as SVG, without a background.
    ///
    /// # Errors
    ///
    /// The environment is at fault if the picture cannot be drawn.
    pub fn svg(&self) -> Result<String> {
        let mut svg = String::new();
        self.draw(&mut svg).map_err(|error| {
            Failure::environment(format!("cannot draw the bars of a report: {error}"))
        })?;
        Ok(svg)
    }

    fn draw(
        &self,
        svg: &mut String,
    ) -> std::result::Result<(), DrawingAreaErrorKind<std::io::Error>> {
        let Self(bars) = self;
        let rows = i32::try_from(bars.len()).unwrap_or(i32::MAX / ROW - 1);
        let bottom = rows * ROW;
        let size = (WIDTH, (bottom + ROW).unsigned_abs());
        let root = SVGBackend::with_string(svg, size).into_drawing_area();
        let longest = bars.iter().map(|(_, ratio)| *ratio).fold(1.0, f64::max).min(LARGEST);
        let x = |ratio: f64| (ratio.min(longest) / longest * f64::from(WIDTH - 20)) as i32 + 4;
        let style = ("sans-serif", 16).into_font().color(&BLACK);
        for ((name, ratio), row) in bars.iter().zip(0..) {
            let (top, color) = (row * ROW, COLORS[usize::from(*ratio > 1.0)]);
            let short: String = weir_model::printable(name).chars().take(NAME).collect();
            root.draw(&Text::new(format!("{short}: {ratio:.3}"), (8, top + 2), style.clone()))?;
            let ends = [(4, top + 20), (x(*ratio), top + 34)];
            root.draw(&Rectangle::new(ends, color.filled()))?;
        }
        for (ratio, width) in [(0.0, 1), (1.0, 2)] {
            let line = vec![(x(ratio), 0), (x(ratio), bottom + 6)];
            root.draw(&PathElement::new(line, BLACK.stroke_width(width)))?;
        }
        root.draw(&Text::new("0", (4, bottom + 10), style.clone()))?;
        let style = style.pos(Pos::new(HPos::Right, VPos::Top));
        root.draw(&Text::new("1 = limit", (x(1.0) + 4, bottom + 10), style))?;
        root.present()
    }
}
