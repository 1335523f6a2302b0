//! The picture of a plan.
#![expect(clippy::cast_precision_loss, reason = "a position is of pixels, a ratio of three digits")]

use super::{PlannedClasses, PlannedCore, SystemPlan};
use crate::{
    figure::{Anchor, Figure, LINE, Place, fits},
    units,
};
use std::fmt::Write as _;

/// The height of a bar in pixels.
const BAR: f64 = 26.0;
/// The number of colors of VMs; further VMs share them.
const COLORS: usize = 8;
/// The least width of a piece of memory, in percent.
const LEAST: f64 = 0.8;

impl SystemPlan {
    /// Returns the class of the color of an owner.
    pub(crate) fn color(&self, owner: &str) -> String {
        match self.vms.iter().position(|vm| vm.name == owner) {
            Some(place) => format!("vm{}", place % COLORS),
            None if owner == "weir" => "weir".to_owned(),
            None => "free".to_owned(),
        }
    }

    /// Returns the figures of the plan: cores, memory, flows, devices, and page classes if memory is
    /// divided.
    pub(crate) fn figures(&self) -> Vec<Figure> {
        self.figures_with(self.memory_figure())
    }

    /// Returns the figures that do not depend on the sizes of images, and so not on what is built:
    /// the memory by owner instead of the memory map.
    pub(crate) fn stable_figures(&self) -> Vec<Figure> {
        self.figures_with(self.owner_figure())
    }

    fn figures_with(&self, memory: Figure) -> Vec<Figure> {
        let all = [self.core_figure(), memory, self.flow_figure(), self.device_figure()];
        let classes = self.classes.as_ref().map(|classes| self.class_figure(classes));
        all.into_iter().chain(classes).filter(|figure| !figure.is_empty()).collect()
    }

    /// The RAM of each VM as a part of all.
    fn owner_figure(&self) -> Figure {
        let mut figure = Figure::new("memory", "Memory");
        let all = self.ram_bytes;
        if all == 0 {
            return figure;
        }
        let title = format!("{} of RAM", units::bytes(all));
        figure.text((0.0, 13.0), Anchor::Start, "label", &title);
        let rest = Place { x: 0.0, y: LINE, width: 100.0, height: BAR };
        figure.bar(rest, "free", "", "weir with the images, and free memory");
        let (mut x, mut y) = (0.0, LINE + BAR + 6.0);
        for vm in &self.vms {
            let width = (100.0 * vm.memory_bytes as f64 / all as f64).max(LEAST);
            let width = width.min(100.0 - x);
            let text = format!("{}: {}", vm.name, units::bytes(vm.memory_bytes));
            let place = Place { x, y: LINE, width, height: BAR };
            figure.bar(place, &self.color(&vm.name), &vm.name, &text);
            x += width;
            let swatch = Place { x: 0.0, y: y + 3.0, width: 2.5, height: 11.0 };
            figure.bar(swatch, &self.color(&vm.name), "", &vm.name);
            figure.text((3.5, y + 13.0), Anchor::Start, "", &text);
            let _ = write!(figure.description, "{text}; ");
            y += LINE;
        }
        figure.height = y + 4.0;
        figure
    }

    fn core_figure(&self) -> Figure {
        let mut figure = Figure::new("cores", "Cores");
        let mut y = 0.0;
        for core in &self.cores {
            let what = core.schedule.as_deref().unwrap_or("one VM, all of the time");
            let title = format!("core {}: {what}", core.core);
            y = figure.lines((0.0, y), "label", &title);
            let _ = write!(figure.description, "{title}: ");
            let idle = Place { x: 0.0, y, width: 100.0, height: BAR };
            figure.bar(idle, "free", "", "no VM");
            self.shares(core, y, &mut figure);
            y += BAR + 14.0;
        }
        figure.height = y;
        figure
    }

    /// Adds the shares of a core.
    fn shares(&self, core: &PlannedCore, y: f64, figure: &mut Figure) {
        let mut x = 0.0;
        for share in &core.shares {
            let length = units::time(share.length_ns);
            let (width, text) = if let Some(period) = share.period_ns {
                let width = 100.0 * share.length_ns as f64 / period.max(1) as f64;
                (width, format!("{} {length} in {}", share.vm, units::time(period)))
            } else {
                let frame = core.frame_ns.max(1) as f64;
                x = 100.0 * share.start_ns as f64 / frame;
                let vcpu = self.vms.iter().find(|vm| vm.name == share.vm);
                let vcpu = vcpu.and_then(|vm| vm.cores.iter().position(|id| *id == core.core));
                let text = if core.schedule.is_some() {
                    format!("{} {length}", share.vm)
                } else {
                    format!("{}, vCPU {}", share.vm, vcpu.unwrap_or(0))
                };
                (100.0 * share.length_ns as f64 / frame, text)
            };
            let width = width.min(100.0 - x);
            let place = Place { x, y, width, height: BAR };
            // The name alone fits more often.
            let label = if fits(&text, width) { &text } else { &share.vm };
            figure.bar(place, &self.color(&share.vm), label, &text);
            let _ = write!(figure.description, "{text}; ");
            x += width;
        }
    }

    fn memory_figure(&self) -> Figure {
        let mut figure = Figure::new("memory", "Memory");
        let all: u64 = self.memory.iter().map(|area| area.bytes).sum();
        let Some(first) = self.memory.first().filter(|_| all > 0) else { return figure };
        let (size, from) = (units::bytes(self.ram_bytes), units::address(first.address));
        let title = format!("{size} of RAM from {from}");
        figure.text((0.0, 13.0), Anchor::Start, "label", &title);
        let widths: Vec<f64> = self
            .memory
            .iter()
            .map(|area| (100.0 * area.bytes as f64 / all as f64).max(LEAST))
            .collect();
        let sum: f64 = widths.iter().sum();
        let mut x = 0.0;
        for (area, width) in self.memory.iter().zip(widths) {
            let width = width * 100.0 / sum;
            let owner = area.owner.as_deref().unwrap_or("free");
            let text = format!(
                "{}: {} {} at {}",
                owner,
                units::bytes(area.bytes),
                area.what,
                units::address(area.address)
            );
            let place = Place { x, y: LINE, width, height: BAR };
            figure.bar(place, &self.color(owner), owner, &text);
            x += width;
        }
        let mut y = LINE + BAR + 6.0;
        for area in self.memory.iter().filter(|area| area.owner.is_some()) {
            let owner = area.owner.as_deref().unwrap_or_default();
            let swatch = Place { x: 0.0, y: y + 3.0, width: 2.5, height: 11.0 };
            figure.bar(swatch, &self.color(owner), "", owner);
            let (at, size) = (units::address(area.address), units::bytes(area.bytes));
            figure.text((3.0, y + 13.0), Anchor::Start, "mono", &at);
            figure.text((42.5, y + 13.0), Anchor::End, "", &size);
            let what = format!("{owner}: {}", area.what);
            figure.text((42.5, y + 13.0), Anchor::Start, "", &what);
            let _ = write!(figure.description, "{at}, {size}: {what}; ");
            y += LINE;
        }
        figure.height = y + 4.0;
        figure
    }

    fn flow_figure(&self) -> Figure {
        let mut figure = Figure::new("flows", "Flows");
        let mut y = 0.0;
        for flow in &self.flows {
            let what = format!("{}, to {}", flow.name, flow.address);
            let every = match flow.period_ns {
                Some(period) => {
                    format!("{} every {}", units::bytes(flow.size_bytes), units::time(period))
                }
                None => format!("{}, best effort", units::bytes(flow.size_bytes)),
            };
            let deadline = flow.deadline_ns.map_or_else(String::new, |deadline| {
                format!(", deadline {}", units::time(deadline))
            });
            let every = every + &deadline;
            figure.text((50.0, y + 13.0), Anchor::Middle, "label", &what);
            y += LINE;
            for (x, vm) in [(0.0, &flow.from), (77.0, &flow.to)] {
                let place = Place { x, y, width: 23.0, height: BAR };
                figure.bar(place, &self.color(vm), vm, vm);
            }
            figure.arrow((23.5, 76.5), y + BAR / 2.0);
            y += BAR;
            figure.text((50.0, y + 15.0), Anchor::Middle, "", &every);
            y += LINE + 4.0;
            // A long name stands below its box.
            let ends = [(0.0, Anchor::Start, &flow.from), (100.0, Anchor::End, &flow.to)];
            for (x, anchor, vm) in ends.into_iter().filter(|(.., vm)| !fits(vm, 23.0)) {
                figure.text((x, y + 13.0), anchor, "", vm);
                y += LINE;
            }
            let (from, to) = (&flow.from, &flow.to);
            let _ = write!(figure.description, "{from} to {to}: {what}, {every}; ");
            y += 8.0;
        }
        figure.height = y;
        figure
    }

    fn device_figure(&self) -> Figure {
        let mut figure = Figure::new("devices", "Devices");
        let mut y = 0.0;
        for device in &self.devices {
            let place = Place { x: 0.0, y, width: 23.0, height: BAR };
            figure.bar(place, &self.color(&device.vm), &device.vm, &device.vm);
            figure.line((23.0, y + BAR / 2.0), (29.0, y + BAR / 2.0), "axis");
            let end = figure.lines((30.0, y + 4.0), "", &device.device);
            let _ = write!(figure.description, "{}: {}; ", device.vm, device.device);
            y = end.max(y + BAR) + 6.0;
        }
        figure.height = y;
        figure
    }

    /// A column for each color and a row for each group of banks. A place without a page class on
    /// the board is left out.
    fn class_figure(&self, classes: &PlannedClasses) -> Figure {
        const CLASS: f64 = 22.0;
        let mut figure = Figure::new("page-classes", "Page classes");
        let left = 14.0;
        let width = (100.0 - left) / f64::from(classes.colors.max(1));
        let rows = match classes.banks_in_group {
            1 => "bank".to_owned(),
            banks => format!("{banks} banks"),
        };
        figure.text((left, 13.0), Anchor::Start, "axis-text", "cache color");
        for color in (0..classes.colors).step_by(usize::from(classes.colors.div_ceil(16).max(1))) {
            let x = left + width * (f64::from(color) + 0.5);
            let place = (x, LINE + 13.0);
            figure.text(place, Anchor::Middle, "axis-text", &color.to_string());
        }
        for bank in 0..classes.bank_groups {
            let y = 2.0 * LINE + CLASS * f64::from(bank) + 15.0;
            figure.text((0.0, y), Anchor::Start, "axis-text", &format!("{rows} {bank}"));
        }
        for class in &classes.classes {
            let x = left + width * f64::from(class.color);
            let y = 2.0 * LINE + CLASS * f64::from(class.bank);
            let none = ["free".to_owned()];
            let owners = if class.owners.is_empty() { &none[..] } else { &class.owners };
            let each = width / owners.len() as f64;
            let tip =
                format!("color {}, {rows} {}: {}", class.color, class.bank, owners.join(", "));
            for (place, owner) in owners.iter().enumerate() {
                let x = x + each * place as f64;
                let place = Place { x, y: y + 1.0, width: each, height: CLASS - 2.0 };
                figure.bar(place, &self.color(owner), "", &tip);
            }
        }
        let mut y = 2.0 * LINE + CLASS * f64::from(classes.bank_groups) + 6.0;
        let names = self.vms.iter().map(|vm| vm.name.as_str());
        for owner in ["weir"].into_iter().chain(names) {
            let has = |class: &&super::PlannedClass| class.owners.iter().any(|one| one == owner);
            let count = classes.classes.iter().filter(has).count();
            let swatch = Place { x: 0.0, y: y + 3.0, width: 2.5, height: 11.0 };
            figure.bar(swatch, &self.color(owner), "", owner);
            let text = format!("{owner}: {count} of {} page classes", classes.classes.len());
            figure.text((3.5, y + 13.0), Anchor::Start, "", &text);
            let _ = write!(figure.description, "{text}; ");
            y += LINE;
        }
        figure.height = y + 4.0;
        figure
    }
}
