//! Where everything lies. Systems without colors lie where they lay before there were any.
//!
//! `SNAPSHOTS=overwrite cargo test` writes the maps in `placement/` anew.

use crate::checkout;
use crate::checkout::guests;
use snapbox::{Data, assert_data_eq};
use std::{fs, path::Path};
use weir_model::{Catalog, check_file, place};

fn catalog() -> Catalog {
    let initrds = vec!["busybox".to_owned(), "debian-rt".to_owned()];
    Catalog { guests: guests(), initrds, ..Catalog::default() }
}

#[test]
fn systems_lie_where_they_lay() {
    let maps = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/placement");
    let mut names: Vec<_> = fs::read_dir(&maps)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "map"))
        .collect();
    names.sort();
    assert!(names.len() >= 14, "{} maps", names.len());
    for map in names {
        let name = map.file_stem().unwrap().to_str().unwrap();
        let system = check_file(&checkout::system(name), &catalog());
        let system = system.unwrap_or_else(|faults| panic!("{name}: {faults}"));
        let placed = place(&system, 45_678_901).unwrap_or_else(|faults| panic!("{name}: {faults}"));
        let rows = placed.table().map(|row| row.join("  ") + "\n");
        let text = placed.header().0.join("  ") + "\n" + &rows.collect::<String>();
        assert_data_eq!(text, Data::read_from(&map, None).raw());
    }
}
