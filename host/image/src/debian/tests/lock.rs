use super::{super::lock::*, package, paragraph};

const NEWEST: &str = "linux-image-6.1.0-9-rt-arm64";

fn lock() -> Vec<Package> {
    vec![package("libc6", "2.36-8", "c8"), package("linux-image-6.1.0-8-rt-arm64", "6.1.8", "k8")]
}

fn newest() -> Vec<Package> {
    vec![package("libc6", "2.36-9", "c9"), package(NEWEST, "6.1.9", "k9")]
}

/// Returns the index of a mirror that has these packages and the newest kernel.
fn index(packages: &[Package]) -> String {
    let depends = format!("Package: linux-image-rt-arm64\nDepends: {NEWEST} (= 6.1.9)\n\n");
    let kernel = paragraph(&newest()[1]);
    packages.iter().map(paragraph).fold(depends + &kernel, |text, paragraph| text + &paragraph)
}

#[test]
fn the_lock_has_one_kernel_and_whole_lines() {
    let lock = listed(LOCK);
    let lines = LOCK.lines().filter(|line| !line.starts_with('#'));
    assert_eq!(lines.count(), lock.len());
    let kernels = lock.iter().filter(|package| package.name.starts_with(KERNEL_PREFIX));
    assert_eq!(kernels.count(), 1);
    let is_sum = |sum: &str| sum.len() == 64 && sum.bytes().all(|byte| byte.is_ascii_hexdigit());
    assert!(lock.iter().all(|package| is_sum(&package.sha256) && is_locked(package)));
    assert!(lock.iter().all(|package| package.path.starts_with("pool/main/")));
}

#[test]
fn locked_versions_win_over_a_newer_kernel() {
    for locking in [Locking::Prefer, Locking::Strict] {
        let chosen = choose(&lock(), &index(&lock()), locking).unwrap();
        assert_eq!(chosen, (lock(), vec![]));
    }
    let chosen = choose(&lock(), &index(&newest()), Locking::Newest).unwrap();
    assert_eq!(chosen, (newest(), vec![]));
}

#[test]
fn missing_versions_are_named_or_refused() {
    let (chosen, others) = choose(&lock(), &index(&newest()), Locking::Prefer).unwrap();
    assert_eq!(chosen, newest());
    assert_eq!(
        others,
        [
            "libc6 2.36-9 instead of libc6 2.36-8",
            "linux-image-6.1.0-9-rt-arm64 6.1.9 instead of linux-image-6.1.0-8-rt-arm64 6.1.8"
        ]
    );
    let error = choose(&lock(), &index(&newest()), Locking::Strict).unwrap_err().text;
    assert!(error.contains(&others[0]) && error.contains("WEIR_DEBIAN_MIRROR"), "{error}");
    let error = choose(&lock(), &index(&[]), Locking::Prefer).unwrap_err().text;
    assert_eq!(error, "the mirror does not have Debian's libc6");
}

#[test]
fn a_locked_version_with_another_check_sum_is_refused() {
    let mut changed = lock();
    changed[0].sha256 = "bad".to_owned();
    for locking in [Locking::Prefer, Locking::Strict, Locking::Newest] {
        let error = choose(&lock(), &index(&changed), locking).unwrap_err().text;
        let expected = "libc6 2.36-8 has another SHA-256 than expected: bad instead of c8";
        assert!(error.contains(expected), "{error}");
    }
}
