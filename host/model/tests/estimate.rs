//! What is known of a system's image before all of it is there.

use crate::images;
use std::fmt::Write as _;
use weir_model::Catalog;
use weir_model::HypervisorSize;
use weir_model::ImageFile;
use weir_model::ImageFiles;
use weir_model::ImageSource;
use weir_model::MapOwner;
use weir_model::Payload;
use weir_model::Placement;
use weir_model::System;
use weir_model::check_text;
use weir_model::estimate;
use weir_model::pack;
use weir_units::Bytes;

const HYPERVISOR: HypervisorSize = HypervisorSize { file: 0x2_d000, memory: 0x9_1000 };

/// VMs of weir's own guest and of Debian's kernel, neither of which is there, with this RAM each.
fn system(memories: &[&str]) -> System {
    let mut text = "platform = \"qemu-virt\"\n".to_owned();
    for (core, memory) in memories.iter().enumerate() {
        writeln!(
            text,
            "[[vm]]\nname = \"vm{core}\"\ncpus = [{core}]\nmemory = \"{memory}\"\n\
             image = {{ linux = \"debian-rt\", initrd = \"busybox\" }}"
        )
        .unwrap();
    }
    let path = images::directory("estimate").join("system.toml");
    check_text(&path, &text, &Catalog::default()).unwrap_or_else(|faults| panic!("{faults}"))
}

/// How long the image is, as it is loaded.
fn image(placement: &Placement) -> u64 {
    let image = placement.rows.iter().find(|row| row.owner == MapOwner::Hypervisor);
    image.expect("an image").size.0
}

#[test]
fn what_is_not_there_is_taken_for_likely_once() {
    let system = system(&["64MiB", "64MiB", "16MiB"]);
    let [kernel, disk] = ["debian-rt", "busybox"].map(|name| ImageSource::Named(name.to_owned()));
    let files = ImageFiles {
        image: ImageFile::Estimated(&kernel, Bytes(40 << 20)),
        initrd: Some(ImageFile::Estimated(&disk, Bytes(4 << 20))),
    };
    let placement = estimate(&system, &[files; 3], HYPERVISOR).unwrap();
    // The third's is not taken to be longer than its RAM.
    let guests = (40 + 4 + 16) << 20;
    // A page of tables, and a device tree each, with seeds of its own.
    assert_eq!(image(&placement), HYPERVISOR.memory + 4 * 4096 + guests);
}

#[test]
fn what_is_there_is_refused_as_it_will_be() {
    let system = system(&["16MiB"]);
    let disk = vec![1; 3 << 20];
    let long = ImageSource::Named("busybox".to_owned());
    for (kernel, fits_alone) in
        [(images::linux(4096, 20 << 20, 0), false), (images::linux(4096, 11 << 20, 0), true)]
    {
        let there =
            ImageFiles { image: ImageFile::Known(&kernel), initrd: Some(ImageFile::Known(&disk)) };
        let payload = Payload { image: &kernel, initrd: Some(&disk) };
        let packed = pack(&system, &[payload], HYPERVISOR).unwrap_err().to_string();
        assert_eq!(estimate(&system, &[there], HYPERVISOR).unwrap_err().to_string(), packed);
        let guessed =
            ImageFiles { initrd: Some(ImageFile::Estimated(&long, Bytes(4 << 20))), ..there };
        assert_eq!(estimate(&system, &[guessed], HYPERVISOR).is_ok(), fits_alone);
    }
}
