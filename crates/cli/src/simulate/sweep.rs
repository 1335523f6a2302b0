//! A grid of simulations: one line of JSON a point, in the order of the grid.
//!
//! Lines are only ever appended, whole and in order. So a file that a killed sweep has left is the beginning of the whole one, but for a
//! last line without its end, and the sweep goes on behind it.

use super::{
    Arguments,
    system::{self, Simulation},
};
use crate::{
    environment::Environment,
    failure::{Context, Failure, Result},
    progress::Bar,
};
use rayon::prelude::*;
use serde_json::{Map, Value};
use std::{
    fs::{self, File, OpenOptions},
    io::{Write, stdout},
    path::{Path, PathBuf},
};

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
    /// What to write instead.
    pub fn parse(text: &str) -> std::result::Result<Self, String> {
        let help = || "write KEY=VALUE,VALUE, like caches.l2_misses=2,4,8".to_owned();
        let (key, values) = text.split_once('=').ok_or_else(help)?;
        let values: Vec<_> = values.split(',').map(|value| value.trim().to_owned()).collect();
        if key.trim().is_empty() || values.iter().any(String::is_empty) {
            return Err(help());
        }
        Ok(Self { key: key.trim().to_owned(), values })
    }
}

/// One nth of a grid: each nth point from a place on.
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
    /// What to write instead.
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

/// The beginning of a point's line, by which a line that is there already is known to be this point's.
fn head(index: usize, values: &[(String, String)]) -> Map<String, Value> {
    let values = values.iter().map(|(key, value)| (key.clone(), value.as_str().into()));
    let mut head = Map::new();
    head.insert("index".into(), index.into());
    head.insert("point".into(), Value::Object(values.collect()));
    head
}

/// Runs the grid.
pub fn run(file: &Path, arguments: &Arguments, environment: &Environment) -> Result {
    let axes = &arguments.sweep;
    let total = axes.iter().try_fold(1_usize, |all, axis| all.checked_mul(axis.values.len()));
    let total = total
        .filter(|total| *total <= MOST)
        .ok_or_else(|| Failure::call(format!("a grid of more than {MOST} points")))?;
    let Shard { place, count } = arguments.shard.unwrap_or(Shard { place: 0, count: 1 });
    let indices: Vec<usize> = (place..total).step_by(count).collect();
    let (mut out, done): (Box<dyn Write>, usize) = match &arguments.out {
        Some(path) => {
            let done = resume(path, &indices, axes)?;
            let file = OpenOptions::new().append(true).create(true).open(path);
            (Box::new(file.context(|| format!("write {}", path.display()))?), done)
        }
        None => (Box::new(stdout()), 0),
    };
    let bar = Bar::new("simulating", indices.len() as u64);
    bar.add(done as u64);
    let threads = rayon::current_num_threads();
    for chunk in indices[done..].chunks(threads) {
        let simulate = |&index: &usize| line(file, arguments, environment, index);
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

fn line(
    file: &Path,
    arguments: &Arguments,
    environment: &Environment,
    index: usize,
) -> Result<String> {
    let point = point(&arguments.sweep, index);
    let mut line = head(index, &point);
    let values: Vec<_> = arguments.values.iter().cloned().chain(point).collect();
    let simulation = Simulation::new(file, arguments, &values, environment)?;
    let result = simulation.together_and_alone()?;
    line.insert("vms".into(), system::brief(&result));
    Ok(format!("{}\n", Value::Object(line)))
}

/// How many of the points a file has already; a last line without its end is cut off.
fn resume(path: &Path, indices: &[usize], axes: &[Axis]) -> Result<usize> {
    let shown = path.display();
    let Ok(text) = fs::read_to_string(path) else { return Ok(0) };
    let whole = text.rfind('\n').map_or(0, |end| end + 1);
    let mut done = 0;
    for line in text[..whole].lines() {
        let expected = indices.get(done).map(|&index| head(index, &point(axes, index)));
        let found: Option<Map<String, Value>> = serde_json::from_str(line).ok();
        let same = found.zip(expected).is_some_and(|(found, expected)| {
            expected.iter().all(|(key, value)| found.get(key) == Some(value))
        });
        if !same {
            return Err(Failure::call(format!(
                "{shown}:{}: this is no point of this sweep: name another file with --out",
                done + 1
            )));
        }
        done += 1;
    }
    if whole < text.len() {
        let file = OpenOptions::new().write(true).open(path);
        let cut = file.and_then(|file: File| file.set_len(whole as u64));
        cut.context(|| format!("cut the last line of {shown}"))?;
    }
    Ok(done)
}

/// Joins the shards of a sweep, to standard output or a file.
pub fn merge(files: &[PathBuf], out: Option<&Path>) -> Result {
    let mut lines: Vec<(u64, String)> = Vec::new();
    for path in files {
        let shown = path.display();
        let text = fs::read_to_string(path)
            .map_err(|error| Failure::call(format!("cannot read {shown}: {error}")))?;
        for (line, number) in text.lines().zip(1..) {
            let index = serde_json::from_str::<Value>(line).ok().and_then(|v| v["index"].as_u64());
            let index = index.ok_or_else(|| {
                Failure::system(format!("{shown}:{number}: this is no point of a sweep"))
            })?;
            lines.push((index, format!("{line}\n")));
        }
    }
    lines.sort();
    for (expected, (index, _)) in (0..).zip(&lines) {
        if *index != expected {
            let (what, help) = if *index < expected {
                (format!("point {index} is there twice"), "name each shard once")
            } else {
                (format!("point {expected} is missing"), "let all shards finish, and name them all")
            };
            return Err(Failure::system(format!("{what}: {help}")));
        }
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
        ["seed=1,2,3", "vm.a.bandwidth.budget= 10 ,20"]
            .map(|text| Axis::parse(text).unwrap())
            .into()
    }

    #[test]
    fn points_are_all_combinations_the_last_axis_first() {
        let all: Vec<_> = (0..6).map(|index| point(&axes(), index)).collect();
        let short: Vec<_> = all.iter().map(|p| format!("{}-{}", p[0].1, p[1].1)).collect();
        assert_eq!(short, ["1-10", "1-20", "2-10", "2-20", "3-10", "3-20"]);
        for bad in ["seed", "=1", "seed=", "seed=1,,2"] {
            assert!(Axis::parse(bad).is_err(), "{bad}");
        }
        assert_eq!(Shard::parse("2/8"), Ok(Shard { place: 1, count: 8 }));
        for bad in ["0/8", "9/8", "1", "a/b", "1/0"] {
            assert!(Shard::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_file_of_a_killed_sweep_is_gone_on_with_and_one_of_another_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("out.jsonl");
        let indices = [1, 3, 5];
        assert_eq!(resume(&path, &indices, &axes()).unwrap(), 0);
        let line = |index| format!("{}\n", Value::Object(head(index, &point(&axes(), index))));
        let two = line(1) + &line(3);
        fs::write(&path, format!("{two}{}", &line(5)[..20])).unwrap();
        assert_eq!(resume(&path, &indices, &axes()).unwrap(), 2);
        assert_eq!(fs::read_to_string(&path).unwrap(), two);
        assert!(resume(&path, &[0, 1, 2], &axes()).is_err());
        assert!(resume(&path, &[1], &axes()).is_err());
        let other = vec![Axis::parse("seed=1,2").unwrap(), Axis::parse("x=1,2,3").unwrap()];
        assert!(resume(&path, &indices, &other).unwrap_err().text.contains(":1: this is no point"));
    }

    #[test]
    fn shards_join_to_the_whole_and_gaps_are_named() {
        let directory = tempfile::tempdir().unwrap();
        let name = |name: &str| directory.path().join(name);
        let line = |index| format!("{}\n", Value::Object(head(index, &point(&axes(), index))));
        fs::write(name("a"), line(0) + &line(2)).unwrap();
        fs::write(name("b"), line(1)).unwrap();
        merge(&[name("b"), name("a")], Some(&name("all"))).unwrap();
        assert_eq!(fs::read_to_string(name("all")).unwrap(), line(0) + &line(1) + &line(2));
        assert!(merge(&[name("a")], None).unwrap_err().text.contains("point 1 is missing"));
        let twice = merge(&[name("a"), name("b"), name("a")], None).unwrap_err();
        assert!(twice.text.contains("point 0 is there twice"), "{}", twice.text);
        fs::write(name("b"), "{}\n").unwrap();
        assert!(merge(&[name("b")], None).unwrap_err().text.contains("b:1: this is no point"));
    }
}
