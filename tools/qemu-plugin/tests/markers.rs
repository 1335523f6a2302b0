//! The guests' markers and the paths of the report are one table.

use weir_guest::marker::TABLE;
use weir_qemu_plugin::path;

#[test]
fn every_guest_marker_is_named_in_the_report() {
    for &(number, key) in TABLE {
        let number = u8::try_from(number).unwrap();
        let name = if number == path::OTHER { "none".to_owned() } else { path::name(number) };
        assert_eq!(name, key);
    }
}
