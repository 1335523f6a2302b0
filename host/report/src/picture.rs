//! Diagrams of lines.

use plotters::prelude::*;
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
    /// Names and points of the lines; a name that begins with `published` is drawn as points, and
    /// one that begins with `spread` is an area around the line behind it, in its color: the points
    /// go around it.
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
        let mut colors = COLORS.iter().cycle().copied().peekable();
        for (name, points) in &self.lines {
            if name.starts_with("spread") {
                let color = colors.peek().copied().unwrap_or(BLACK);
                chart.draw_series([Polygon::new(points.clone(), color.mix(0.2).filled())])?;
                continue;
            }
            let color = colors.next().unwrap_or(BLACK);
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
