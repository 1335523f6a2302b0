//! The random bytes that guests find in their device trees.
//!
//! They follow from a secret of the checkout or of the user, so that a system has the same image each time that it
//! is built there: `weir run --serial` compares the board's image with the one that it builds. A
//! guest cannot compute another's from its own.

use crate::{
    environment::Environment,
    failure::{Context, Result},
};
use sha2::{Digest, Sha256};
use std::{fs, io::ErrorKind, io::Read as _};
use weir_model::Seed;

/// Where random bytes come from.
const SOURCE: &str = "/dev/urandom";

/// The secret of a checkout, or of the user of an installation.
type Secret = [u8; 32];

/// Returns the secret, the file `seed` in [`Environment::state`], which the first build makes.
pub(crate) fn secret(environment: &Environment) -> Result<Secret> {
    let directory = environment.state();
    let path = directory.join("seed");
    loop {
        match fs::read(&path) {
            Ok(bytes) => {
                // A file of another length is the user's, who wants other seeds.
                return Ok(Sha256::digest(bytes).into());
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error).context(|| format!("read {}", path.display())),
        }
        let mut bytes = Secret::default();
        let read = fs::File::open(SOURCE).and_then(|mut source| source.read_exact(&mut bytes));
        read.context(|| format!("read {SOURCE}"))?;
        fs::create_dir_all(&directory).context(|| format!("create {}", directory.display()))?;
        // Whole or not at all, and never in place of another build's at the same time.
        let new = tempfile::NamedTempFile::new_in(&directory);
        let new = new.context(|| format!("write to {}", directory.display()))?;
        fs::write(&new, bytes).context(|| format!("write {}", new.path().display()))?;
        match new.persist_noclobber(&path) {
            Ok(_) => {}
            Err(error) if error.error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => {
                return Err(error.error).context(|| format!("write {}", path.display()));
            }
        }
    }
}

/// Returns the random bytes of the VM of this name.
pub(crate) fn of(secret: &Secret, vm: &str) -> Seed {
    let mut bytes = [0; Seed::LEN];
    for (part, number) in bytes.chunks_mut(size_of::<Secret>()).zip(0_u8..) {
        let hash = Sha256::new().chain_update(secret).chain_update([number]).chain_update(vm);
        let hash: Secret = hash.finalize().into();
        part.copy_from_slice(&hash[..part.len()]);
    }
    Seed(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_differ_by_secret_and_vm_and_repeat() {
        let all = [([1; 32], "a"), ([1; 32], "b"), ([2; 32], "a")];
        let seeds = all.map(|(secret, vm)| of(&secret, vm).0);
        assert_eq!(seeds, all.map(|(secret, vm)| of(&secret, vm).0));
        for (place, seed) in seeds.iter().enumerate() {
            let others = seeds[..place].iter().flat_map(|other| other.chunks(8));
            assert!(seed.chunks(8).all(|part| others.clone().all(|other| other != part)));
            assert_ne!(seed[..8], seed[32..], "its parts differ");
        }
    }
}
