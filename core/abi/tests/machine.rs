//! What EL2 reads of the machine's device tree.

use proptest::prelude::*;
use weir_abi::machine::{HEADER_LEN, MachineFacts, read, tree_len};

const BASE: u64 = 0x4000_0000;

/// A device tree under construction.
#[derive(Default)]
struct Tree {
    structure: Vec<u8>,
    strings: Vec<u8>,
}

impl Tree {
    fn word(mut self, word: u32) -> Self {
        self.structure.extend(word.to_be_bytes());
        self
    }

    fn padded(mut self, bytes: &[u8]) -> Self {
        self.structure.extend(bytes);
        self.structure.resize(self.structure.len().next_multiple_of(4), 0);
        self
    }

    fn node(self, name: &str) -> Self {
        self.word(1).padded(format!("{name}\0").as_bytes())
    }

    fn end(self) -> Self {
        self.word(2)
    }

    fn property(mut self, name: &str, value: &[u8]) -> Self {
        let at = self.strings.len();
        self.strings.extend(format!("{name}\0").bytes());
        self.word(3).word(value.len() as u32).word(at as u32).padded(value)
    }

    fn cells(self, name: &str, words: &[u32]) -> Self {
        let value: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
        self.property(name, &value)
    }

    fn built(self) -> Vec<u8> {
        let Self { structure, strings } = self.word(9);
        let at = HEADER_LEN as u32 + structure.len() as u32;
        let total = at + strings.len() as u32;
        let header = [
            0xd00d_feed,
            total,
            HEADER_LEN as u32,
            at,
            0,
            17,
            16,
            0,
            strings.len() as u32,
            structure.len() as u32,
        ];
        let header = header.iter().flat_map(|word| word.to_be_bytes());
        header.chain(structure).chain(strings).collect()
    }
}

fn root() -> Tree {
    Tree::default().node("").cells("#address-cells", &[2]).cells("#size-cells", &[2])
}

/// A board with an SMMU behind its RAM.
fn board() -> Vec<u8> {
    root()
        .node("cpus")
        .node("memory@9")
        .cells("reg", &[9, 9])
        .end()
        .end()
        .node("memory@40000000")
        .cells("reg", &[0, 0x4000_0000, 1, 0])
        .property("device_type", b"memory\0")
        .end()
        .node("smmuv3@9050000")
        .property("compatible", b"arm,smmu-v3\0")
        .end()
        .end()
        .built()
}

#[test]
fn the_size_of_ram_and_the_smmu_are_read() {
    let tree = board();
    assert_eq!(tree_len(&tree), Some(tree.len() as u32));
    let ram = 1 << 32;
    assert_eq!(read(&tree, BASE, false), Some(MachineFacts { ram, has_smmu: false }));
    assert_eq!(read(&tree, BASE, true), Some(MachineFacts { ram, has_smmu: true }));
    let without = root().node("memory").cells("reg", &[0, 0, 0, 1 << 31]).end().end().built();
    let expected = MachineFacts { ram: (1 << 31) - BASE, has_smmu: false };
    assert_eq!(read(&without, BASE, true), Some(expected));
}

#[test]
fn the_pieces_of_ram_from_the_base_on_add_up() {
    let reg = [8, 0, 0, 0x8000_0000, 0, 0x3000_0000, 0, 0x3000_0000];
    let tree = root().node("memory").cells("reg", &reg).end().end().built();
    assert_eq!(read(&tree, BASE, false).map(|it| it.ram), Some(0xa000_0000));
    let below = [0, 0x1000_0000, 0, 0x3000_0000];
    let tree = root().node("memory").cells("reg", &below).end().end().built();
    assert_eq!(read(&tree, BASE, false), None);
}

#[test]
fn cells_of_one_word_are_read() {
    let root = Tree::default().node("").cells("#address-cells", &[1]).cells("#size-cells", &[1]);
    let tree = root.node("memory").cells("reg", &[0x4000_0000, 0x1000]).end().end().built();
    assert_eq!(read(&tree, BASE, false).map(|it| it.ram), Some(0x1000));
}

#[test]
fn a_cut_tree_is_refused() {
    let tree = board();
    for len in 0..tree.len() {
        let _ = read(&tree[..len], BASE, true);
    }
    assert_eq!(read(&tree[..HEADER_LEN], BASE, true), None);
    assert_eq!(read(&[0; 64], BASE, true), None);
}

proptest! {
    /// Firmware's bytes, however damaged, neither panic nor loop.
    #[test]
    fn no_bytes_stop_el2(changes in prop::collection::vec((any::<prop::sample::Index>(),
                                                           any::<u8>()), 0..12)) {
        let mut tree = board();
        for (at, byte) in changes {
            let at = at.index(tree.len());
            tree[at] = byte;
        }
        let _ = read(&tree, BASE, true);
        let _ = tree_len(&tree);
    }
}
