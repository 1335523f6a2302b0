//! A grid of simulations: one line of JSON a point, in the order of the grid.
//!
//! Lines are only ever appended, whole and in order, by one call at a time. So a file that a killed
//! sweep has left is the beginning of the whole one, but for a last line without its end, and the
//! sweep goes on behind it. Each line has the grid's size and a fingerprint of the system and the
//! grid, so that lines of another sweep, and missing ones, are known.

use super::{Model, SweepArguments, json, system::Simulation};
use crate::{
    environment::Environment,
    failure::{Context, Failure, Result},
    progress::CountBar,
};
use rayon::prelude::*;
use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
};
use serde_json::{Map, Value};
use std::{
    fmt::{self, Write as _},
    fs::{self, File, OpenOptions},
    io::{BufRead as _, BufReader, Read as _, Write, stdout},
    path::{Path, PathBuf},
};

/// Longest file of points that is joined, in bytes.
const MOST_BYTES: u64 = 1 << 30;

/// A key and the values that it takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Axis {
    key: String,
    values: Vec<String>,
}

impl Axis {
    /// Reads `KEY=VALUE,VALUE`.
    ///
    /// # Errors
    ///
    /// The suggestion.
    pub fn parse(text: &str) -> std::result::Result<Self, String> {
        let help = || "write KEY=VALUE,VALUE, like caches.l2_misses=2,4,8".to_owned();
        let (key, values) = text.split_once('=').ok_or_else(help)?;
        let values: Vec<_> = values.split(',').map(|value| value.trim().to_owned()).collect();
        if key.trim().is_empty() || values.iter().any(String::is_empty) {
            return Err(help());
        }
        let mut before = values.iter().enumerate();
        if let Some((_, twice)) = before.find(|(at, value)| values[..*at].contains(value)) {
            return Err(format!("the value {twice} is there twice: leave one of them out"));
        }
        Ok(Self { key: key.trim().to_owned(), values })
    }
}

/// One nth of a grid or of a list: each nth item from a place on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    place: usize,
    count: usize,
}

impl Shard {
    /// Reads `2/8`: the second of eight.
    ///
    /// # Errors
    ///
    /// The suggestion.
    pub fn parse(text: &str) -> std::result::Result<Self, String> {
        let help = || "write I/N, like 2/8, with I from 1 to N".to_owned();
        let (place, count) = text.split_once('/').ok_or_else(help)?;
        let number = |text: &str| text.parse::<usize>().map_err(|_| help());
        let (place, count) = (number(place)?, number(count)?);
        if !(1..=count).contains(&place) {
            return Err(help());
        }
        Ok(Self { place: place - 1, count })
    }

    /// Whether it has the item of this index.
    pub const fn has(self, index: usize) -> bool {
        index % self.count == self.place
    }
}

/// The most points of a grid.
const MOST: usize = 1 << 24;

/// The values of point number `index`; the last axis changes fastest.
fn point(axes: &[Axis], mut index: usize) -> Vec<(String, String)> {
    let mut values = Vec::with_capacity(axes.len());
    for axis in axes.iter().rev() {
        values.push((axis.key.clone(), axis.values[index % axis.values.len()].clone()));
        index /= axis.values.len();
    }
    values.reverse();
    values
}

/// All points of a sweep.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Grid<'a> {
    axes: &'a [Axis],
    total: usize,
    /// Of everything that the points' lines depend on.
    fingerprint: String,
}

/// FNV-1a, 64 bits, over what is written.
struct Fingerprint(u64);

impl fmt::Write for Fingerprint {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        Ok(())
    }
}

impl<'a> Grid<'a> {
    /// The grid of a call. All else that a point depends on is in the first point's board.
    fn new(arguments: &'a SweepArguments, environment: &Environment) -> Result<Self> {
        let axes = arguments.vary.as_slice();
        for (at, axis) in axes.iter().enumerate() {
            if axes[..at].iter().any(|other| other.key == axis.key) {
                return Err(Failure::call(format!(
                    "--vary {} is there twice: write all its values behind one",
                    axis.key
                )));
            }
        }
        let total = axes.iter().try_fold(1_usize, |all, axis| all.checked_mul(axis.values.len()));
        let total = total
            .filter(|total| *total <= MOST)
            .ok_or_else(|| Failure::call(format!("a grid of more than {MOST} points")))?;
        let simulation = simulation(&arguments.model, environment, &point(axes, 0))?;
        let mut fingerprint = Fingerprint(0xcbf2_9ce4_8422_2325);
        let Model { length, warm_up, seed, .. } = &arguments.model;
        let version = env!("CARGO_PKG_VERSION");
        // Writing there does not fail.
        let _ = write!(fingerprint, "{version} {axes:?} {length:?} {warm_up:?} {seed} ");
        let _ = write!(fingerprint, "{:?}", simulation.board);
        Ok(Self { axes, total, fingerprint: format!("{:016x}", fingerprint.0) })
    }

    /// The beginning of a point's line, by which a line that is there already is known to be this
    /// point's.
    fn head(&self, index: usize) -> Map<String, Value> {
        let values = point(self.axes, index).into_iter();
        let mut head = Map::new();
        head.insert("version".into(), weir_report::JSON_VERSION.into());
        head.insert("index".into(), index.into());
        head.insert("of".into(), self.total.into());
        head.insert("sweep".into(), self.fingerprint.as_str().into());
        let values = values.map(|(key, value)| (key, value.into()));
        head.insert("point".into(), Value::Object(values.collect()));
        head
    }
}

/// Runs the grid.
pub fn run(arguments: &SweepArguments, environment: &Environment) -> Result {
    let grid = Grid::new(arguments, environment)?;
    let Shard { place, count } = arguments.shard.unwrap_or(Shard { place: 0, count: 1 });
    let indices: Vec<usize> = (place..grid.total).step_by(count).collect();
    let (mut out, done): (Box<dyn Write>, usize) = match &arguments.output {
        Some(path) => {
            let (file, done) = resume(path, &indices, &grid)?;
            (Box::new(file), done)
        }
        None => (Box::new(stdout()), 0),
    };
    let bar = CountBar::new("simulating", indices.len() as u64);
    bar.add(done as u64);
    let threads = rayon::current_num_threads();
    for chunk in indices[done..].chunks(threads) {
        let simulate = |&index: &usize| line(&arguments.model, environment, &grid, index);
        let lines = chunk.par_iter().map(simulate).collect::<Result<Vec<_>>>()?;
        for line in lines {
            // A line at a time, so that a kill leaves whole lines and the beginning of one at most.
            out.write_all(line.as_bytes())?;
        }
        out.flush()?;
        bar.add(chunk.len() as u64);
    }
    Ok(())
}

/// The simulation of a point.
fn simulation(
    model: &Model,
    environment: &Environment,
    point: &[(String, String)],
) -> Result<Simulation> {
    let values: Vec<_> = model.values.iter().chain(point).cloned().collect();
    Simulation::new(model, &values, environment)
}

fn line(model: &Model, environment: &Environment, grid: &Grid<'_>, index: usize) -> Result<String> {
    let mut line = grid.head(index);
    let simulation = simulation(model, environment, &point(grid.axes, index))?;
    let result = simulation.together_and_alone()?;
    line.insert("vms".into(), json::brief(&result));
    Ok(format!("{}\n", Value::Object(line)))
}

/// More bytes than a line has: what calls and boards may have in them is far less.
const MOST_OF_A_LINE: u64 = 1 << 24;

/// Opens the file for the lines to come, which no other call can do until it is closed, and returns
/// how many of the points it has already. The beginning of the next one's line, without its end, is
/// cut off; nothing else is.
fn resume(path: &Path, indices: &[usize], grid: &Grid<'_>) -> Result<(File, usize)> {
    let file = open(path)?;
    let shown = path.display();
    let reading = || format!("read {shown}");
    let mut reader = BufReader::new(&file);
    let (mut done, mut whole, mut line) = (0, 0, Vec::new());
    loop {
        line.clear();
        let mut next = (&mut reader).take(MOST_OF_A_LINE);
        let length = next.read_until(b'\n', &mut line).context(reading)? as u64;
        let expected = indices.get(done).map(|&index| grid.head(index));
        if length == 0 {
            return Ok((file, done));
        }
        if line.ends_with(b"\n") && expected.as_ref().is_some_and(|head| is_of(&line, head)) {
            done += 1;
            whole += length;
        } else if expected.is_some_and(|head| is_beginning_of(&line, head)) {
            file.set_len(whole).context(|| format!("cut the last line of {shown}"))?;
            return Ok((file, done));
        } else {
            return Err(Failure::call(format!(
                "{shown}:{}: this is no point of this sweep, of this shard, or of the system as it is now: name another file with --output",
                done + 1
            )));
        }
    }
}

/// Opens a regular file for one call's appending, if it is not there as a new one.
fn open(path: &Path) -> Result<File> {
    let shown = path.display();
    // Asked before it is opened: a pipe would wait for its other end, and a device may have no end.
    if fs::metadata(path).is_ok_and(|there| !there.is_file()) {
        return Err(Failure::call(format!(
            "{shown} is no regular file, which a sweep could go on with: name another with --output, or leave it out for lines on standard output"
        )));
    }
    let file = OpenOptions::new().read(true).append(true).create(true).open(path);
    let file = file.context(|| format!("write {shown}"))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        // Some shared file systems have no locks.
        Ok(()) | Err(Errno::NOSYS | Errno::OPNOTSUPP) => Ok(file),
        Err(Errno::WOULDBLOCK) => Err(Failure::call(format!(
            "{shown} is being written by another call: let that end, or name another file with --output"
        ))),
        Err(error) => Err(error).context(|| format!("lock {shown}")),
    }
}

/// Whether a line begins as its point does.
fn is_of(line: &[u8], head: &Map<String, Value>) -> bool {
    let found: Option<Map<String, Value>> = serde_json::from_slice(line).ok();
    found.is_some_and(|found| head.iter().all(|(key, value)| found.get(key) == Some(value)))
}

/// Whether a line without its end is what a killed call has left of this point's.
fn is_beginning_of(line: &[u8], head: Map<String, Value>) -> bool {
    let head = Value::Object(head).to_string();
    // The results follow in the place of the last bracket.
    let head = head.trim_end_matches('}').as_bytes();
    !line.ends_with(b"\n") && (line.starts_with(head) || head.starts_with(line))
}

/// The position in a merged line.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    index: usize,
    of: usize,
    sweep: String,
}

impl Place {
    fn read(line: &str) -> Option<Self> {
        let all: Map<String, Value> = serde_json::from_str(line).ok()?;
        let number = |key| usize::try_from(all.get(key)?.as_u64()?).ok();
        let (index, of) = (number("index")?, number("of")?);
        let sweep = all.get("sweep")?.as_str()?.to_owned();
        (index < of && of <= MOST).then_some(Self { index, of, sweep })
    }
}

/// Joins the shards of a sweep, to standard output or a file.
pub fn merge(files: &[PathBuf], out: Option<&Path>) -> Result {
    let mut lines: Vec<(usize, String)> = Vec::new();
    let mut first: Option<(String, Place)> = None;
    for path in files {
        let shown = path.display();
        let text = weir_model::read_text(path, MOST_BYTES)
            .map_err(|error| Failure::call(format!("cannot read {shown}: {error}")))?;
        for (line, number) in text.split_inclusive('\n').zip(1..) {
            let here = format!("{shown}:{number}");
            let place = Place::read(line).filter(|_| line.ends_with('\n')).ok_or_else(|| {
                Failure::system(format!(
                    "{here}: this is no point of a sweep, or only the beginning of one: let the call that writes it end"
                ))
            })?;
            let (there, other) = first.get_or_insert_with(|| (here.clone(), place.clone()));
            if (place.of, &place.sweep) != (other.of, &other.sweep) {
                return Err(Failure::system(format!(
                    "{here} is of another sweep ({}, {} points) than {there} ({}, {} points): name the shards of one, made with the same keys, times and system file",
                    place.sweep, place.of, other.sweep, other.of
                )));
            }
            lines.push((place.index, line.to_owned()));
        }
    }
    lines.sort();
    let Some((_, Place { of, .. })) = first else {
        return Err(Failure::system("the files have no point: let the shards end, and name them"));
    };
    if let Some(pair) = lines.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        let index = pair[0].0;
        return Err(Failure::system(format!("point {index} is there twice: name each shard once")));
    }
    if lines.len() < of {
        let missing = (0..of).zip(&lines).find(|(place, (index, _))| place != index);
        let missing = missing.map_or(lines.len(), |(place, _)| place);
        return Err(Failure::system(format!(
            "of {of} points {} are missing, the first is {missing}; let all shards end, and name them all",
            of - lines.len()
        )));
    }
    let all: String = lines.into_iter().map(|(_, line)| line).collect();
    match out {
        Some(path) => fs::write(path, all).context(|| format!("write {}", path.display())),
        None => Ok(stdout().write_all(all.as_bytes())?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axes() -> Vec<Axis> {
        ["seed=1,2,3", "vm.a.memory_budget.accesses= 10 ,20"]
            .map(|text| Axis::parse(text).unwrap())
            .into()
    }

    #[test]
    fn points_are_all_combinations_the_last_axis_first() {
        let all: Vec<_> = (0..6).map(|index| point(&axes(), index)).collect();
        let short: Vec<_> = all.iter().map(|p| format!("{}-{}", p[0].1, p[1].1)).collect();
        assert_eq!(short, ["1-10", "1-20", "2-10", "2-20", "3-10", "3-20"]);
        for bad in ["seed", "=1", "seed=", "seed=1,,2", "seed=1,2,1", "seed=1, 1"] {
            assert!(Axis::parse(bad).is_err(), "{bad}");
        }
        assert_eq!(Shard::parse("2/8"), Ok(Shard { place: 1, count: 8 }));
        let second = Shard::parse("2/3").expect("a shard");
        assert_eq!((0..8).filter(|index| second.has(*index)).collect::<Vec<_>>(), [1, 4, 7]);
        for bad in ["0/8", "9/8", "1", "a/b", "1/0"] {
            assert!(Shard::parse(bad).is_err(), "{bad}");
        }
    }

    fn grid(axes: &[Axis]) -> Grid<'_> {
        Grid { axes, total: 6, fingerprint: "0123456789abcdef".to_owned() }
    }

    fn line(index: usize) -> String {
        format!("{}\n", Value::Object(grid(&axes()).head(index)))
    }

    #[test]
    fn only_the_same_sweep_is_resumed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("out.jsonl");
        let (axes, indices) = (axes(), [1, 3, 5]);
        let grid = grid(&axes);
        let done = |indices: &[usize]| resume(&path, indices, &grid).map(|(_, done)| done);
        assert_eq!(done(&indices).unwrap(), 0);
        let two = line(1) + &line(3);
        let results = line(5).replace("}}\n", "},\"vms\":[{\"name\"");
        for beginning in [&line(5)[..1], &line(5)[..20], line(5).trim_end(), &results] {
            fs::write(&path, format!("{two}{beginning}")).unwrap();
            assert_eq!(done(&indices).unwrap(), 2, "{beginning}");
            assert_eq!(fs::read_to_string(&path).unwrap(), two);
        }
        assert!(resume(&path, &[0, 1, 2], &grid).is_err());
        assert!(resume(&path, &[1], &grid).is_err());
        let other = vec![Axis::parse("seed=1,2").unwrap(), Axis::parse("x=1,2,3").unwrap()];
        for other in [
            Grid { axes: &other, ..grid.clone() },
            Grid { total: 12, ..grid.clone() },
            Grid { fingerprint: "0".repeat(16), ..grid.clone() },
        ] {
            let refused = resume(&path, &indices, &other).unwrap_err();
            assert!(refused.text.contains(":1: this is no point of this sweep"), "{other:?}");
        }
    }

    #[test]
    fn what_no_killed_sweep_has_left_stays_as_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("out.jsonl");
        let axes = axes();
        let grid = grid(&axes);
        let other = line(3).replace("0123456789abcdef", "fedcba9876543210");
        for (bytes, place) in [
            (b"my notes, without an end".to_vec(), 1),
            (b"\xff\xfe\n".to_vec(), 1),
            (b"\xff\xfe".to_vec(), 1),
            ([line(1).as_bytes(), b"my notes"].concat(), 2),
            ([line(1).as_bytes(), &line(5).as_bytes()[..22]].concat(), 2),
            ([line(1).as_bytes(), other.trim_end().as_bytes()].concat(), 2),
            ((line(1) + &line(3) + "{").into_bytes(), 3),
        ] {
            fs::write(&path, &bytes).unwrap();
            let refused = resume(&path, &[1, 3], &grid).unwrap_err().text;
            let shown = String::from_utf8_lossy(&bytes);
            assert!(refused.contains(&format!(":{place}: this is no point")), "{shown} {refused}");
            assert_eq!(fs::read(&path).unwrap(), bytes, "{shown}");
        }
    }

    #[test]
    fn what_has_no_end_or_is_being_written_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let axes = axes();
        let resume = |path: &Path| resume(path, &[1, 3], &grid(&axes));
        let fifo = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mkfifoat(rustix::fs::CWD, path("fifo"), fifo).unwrap();
        std::os::unix::fs::symlink("fifo", path("link")).unwrap();
        for none in [path("fifo"), path("link"), "/dev/full".into(), directory.path().into()] {
            let refused = resume(&none).unwrap_err();
            assert_eq!(refused.status, crate::failure::CALL);
            assert!(refused.text.contains("is no regular file"), "{}", refused.text);
        }
        let first = resume(&path("out")).unwrap();
        let refused = resume(&path("out")).unwrap_err().text;
        assert!(refused.contains("out is being written by another call"), "{refused}");
        drop(first);
        assert_eq!(resume(&path("out")).unwrap().1, 0);
    }

    #[test]
    fn shards_merge_and_bad_shards_are_named() {
        let directory = tempfile::tempdir().unwrap();
        let name = |name: &str| directory.path().join(name);
        fs::write(name("a"), line(0) + &line(2) + &line(4)).unwrap();
        fs::write(name("b"), line(1) + &line(3) + &line(5)).unwrap();
        merge(&[name("b"), name("a")], Some(&name("all"))).unwrap();
        assert_eq!(fs::read_to_string(name("all")).unwrap(), (0..6).map(line).collect::<String>());
        let failure = |files: &[&str]| {
            merge(&files.iter().map(|file| name(file)).collect::<Vec<_>>(), None).unwrap_err().text
        };
        assert!(
            failure(&["a"]).contains("of 6 points 3 are missing, the first is 1;"),
            "{}",
            failure(&["a"])
        );
        assert!(failure(&["a", "b", "a"]).contains("point 0 is there twice"));
        let other = line(1).replace("0123456789abcdef", "fedcba9876543210");
        for (text, wanted) in [
            // The last points of the grid.
            (line(1), "of 6 points 2 are missing, the first is 3;"),
            (String::new(), "of 6 points 3 are missing, the first is 1;"),
            (
                line(1) + line(3).trim_end(),
                "c:2: this is no point of a sweep, or only the beginning",
            ),
            ("{}\n".to_owned(), "c:1: this is no point"),
            (line(1).replace("\"of\":6", "\"of\":1"), "c:1: this is no point"),
            (line(1).replace("\"of\":6", "\"of\":99999999999"), "c:1: this is no point"),
            (
                line(1).replace("\"of\":6", "\"of\":7"),
                "c:1 is of another sweep (0123456789abcdef, 7 points) than ",
            ),
            (other, "c:1 is of another sweep (fedcba9876543210, 6 points) than "),
        ] {
            fs::write(name("c"), &text).unwrap();
            assert!(failure(&["a", "c"]).contains(wanted), "{text}: {}", failure(&["a", "c"]));
        }
        fs::write(name("c"), "").unwrap();
        assert!(failure(&["c"]).contains("no point"));
    }
}
