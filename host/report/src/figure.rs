//! Figures as SVG. Positions along a figure are percentages of its width, heights are pixels, so
//! that text has one size in each window.
#![expect(clippy::cast_precision_loss, reason = "a position is of pixels, a ratio of three digits")]

use serde::Serialize;

/// The pixels of a line of text in a figure.
pub(crate) const LINE: f64 = 18.0;
/// The part of the width, in percent, that a character of a label takes at most: in a window of 400
/// pixels.
const CHARACTER: f64 = 1.9;

/// Returns whether a bar of this width, in percent, has room for a label in a window of 400 pixels.
pub(crate) fn fits(label: &str, width: f64) -> bool {
    label.chars().count() as f64 * CHARACTER + 2.0 <= width
}

/// A figure, with its text alternative.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Figure {
    /// The anchor of its title and description, unique in a page.
    pub id: String,
    /// The title.
    pub title: String,
    /// The content in words, for readers who do not see the figure.
    pub description: String,
    /// The facts that a reader needs for the figure; empty without.
    pub caption: String,
    /// The height in pixels.
    pub height: f64,
    items: Vec<Item>,
}

/// The anchor of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Anchor {
    /// The text begins there.
    Start,
    /// The text's middle is there.
    Middle,
    /// The text ends there.
    End,
}

/// A part of a figure.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum Item {
    /// A bar with a label, of which only what fits is shown.
    Bar { x: f64, y: f64, width: f64, height: f64, class: String, label: String, tip: String },
    /// A text, `dx` pixels to the right of `x`.
    Text { x: f64, dx: f64, y: f64, anchor: Anchor, class: String, text: String },
    /// A line.
    Line { x1: f64, x2: f64, y1: f64, y2: f64, class: String },
    /// A line to the right, with a head at its end.
    Arrow { x1: f64, x2: f64, y: f64 },
}

/// A bar: its left end and width in percent, its top and height in pixels.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub x: f64,
    pub y: f64,
    pub width: f64,
    pub height: f64,
}

impl Figure {
    /// Builds an empty figure.
    pub fn new(id: impl Into<String>, title: impl Into<String>) -> Self {
        Self { id: id.into(), title: title.into(), ..Self::default() }
    }

    /// Adds a bar with its description. The label is left out if it does not fit in a window of 400
    /// pixels.
    pub fn bar(&mut self, place: Place, class: &str, label: &str, tip: impl Into<String>) {
        let Place { x, y, width, height } = place;
        let label = if fits(label, width) { label.to_owned() } else { String::new() };
        let (class, tip) = (class.to_owned(), tip.into());
        self.items.push(Item::Bar { x, y, width, height, class, label, tip });
    }

    /// Adds a text with its base line at `y`.
    pub fn text(&mut self, (x, y): (f64, f64), anchor: Anchor, class: &str, text: &str) {
        let dx = match anchor {
            Anchor::Start if x > 0.0 => 4.0,
            Anchor::End if x < 100.0 => -4.0,
            _ => 0.0,
        };
        let (class, text) = (class.to_owned(), text.to_owned());
        self.items.push(Item::Text { x, dx, y, anchor, class, text });
    }

    /// Adds a text on as many lines as a window of 400 pixels needs, below `y`. Returns the end of
    /// the last line.
    pub fn lines(&mut self, (x, mut y): (f64, f64), class: &str, text: &str) -> f64 {
        let has_room = |columns: &u8| x + f64::from(*columns) * CHARACTER <= 98.0;
        let columns = usize::from((1..=100).rev().find(has_room).unwrap_or(1));
        for line in textwrap::wrap(text, columns) {
            self.text((x, y + 13.0), Anchor::Start, class, &line);
            y += LINE;
        }
        y
    }

    /// Adds a text at a position of an axis, within the figure.
    pub fn axis_label(&mut self, (x, y): (f64, f64), class: &str, text: &str) {
        let half = text.chars().count() as f64 * CHARACTER / 2.0;
        let (x, anchor) = match x {
            _ if x < half => (0.0, Anchor::Start),
            _ if x > 100.0 - half => (100.0, Anchor::End),
            _ => (x, Anchor::Middle),
        };
        self.text((x, y), anchor, class, text);
    }

    /// Adds the label of a line at `x`, on the side with more room.
    pub fn line_label(&mut self, (x, y): (f64, f64), class: &str, text: &str) {
        let anchor = if x > 55.0 { Anchor::End } else { Anchor::Start };
        self.text((x, y), anchor, class, text);
    }

    /// Adds a line between two points.
    pub fn line(&mut self, (x1, y1): (f64, f64), (x2, y2): (f64, f64), class: &str) {
        self.items.push(Item::Line { x1, x2, y1, y2, class: class.to_owned() });
    }

    /// Adds an arrow to the right.
    pub fn arrow(&mut self, (x1, x2): (f64, f64), y: f64) {
        self.items.push(Item::Arrow { x1, x2, y });
    }

    /// Returns whether nothing was added.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }
}

/// A logarithmic axis in ns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogAxis {
    from: u32,
    to: u32,
}

impl LogAxis {
    /// Builds the axis of whole decades that contains these values.
    pub fn of(values: impl IntoIterator<Item = u64>) -> Self {
        let values: Vec<u64> = values.into_iter().map(|value| value.max(1)).collect();
        let from = values.iter().min().map_or(0, |least| least.ilog10());
        let to = values.iter().max().map_or(1, |most| (most - 1).max(1).ilog10() + 1);
        Self { from, to: to.max(from + 1) }
    }

    /// Returns the position of a value in percent.
    pub fn at(self, value: u64) -> f64 {
        let value = (value.max(1) as f64).log10() - f64::from(self.from);
        (100.0 * value / f64::from(self.to - self.from)).clamp(0.0, 100.0)
    }

    /// Adds the axis below `y`: a line and a label for each decade.
    pub fn draw(self, figure: &mut Figure, (top, y): (f64, f64)) {
        figure.line((0.0, y), (100.0, y), "axis");
        let decades = self.to - self.from;
        let step = decades.div_ceil(5).max(1);
        for decade in
            (self.from..=self.to).filter(|decade| (decade - self.from).is_multiple_of(step))
        {
            let value = 10u64.saturating_pow(decade);
            let x = self.at(value);
            figure.line((x, top), (x, y + 4.0), "grid");
            figure.axis_label((x, y + LINE), "axis-text", &crate::units::time(value));
        }
    }
}
