//! What a VM runs: its files and arguments.

use super::Checker;
use crate::diagnostics::Code;
use crate::keys::system as raw;
use crate::resolve::{ImageSource, LIKELY_KERNEL, LIKELY_PROGRAM, Role};
use crate::shape::suggestion;
use crate::table::At;
use crate::text::nearest;
use crate::vm::{Image, RamPiece, Spans};
use crate::{files, image};
use std::fs;
use weir_units::Ipa;

/// Longest command line in bytes: arm64's COMMAND_LINE_SIZE less the terminator.
const ARGS_LIMIT: usize = 2047;

/// An image's files.
pub(super) struct Files {
    pub image: Vec<u8>,
    pub initrd: Option<Vec<u8>>,
}

impl Checker<'_> {
    fn args(&mut self, title: &str, args: Option<&At<String>>) -> String {
        let Some(At { value, span }) = args else {
            return String::new();
        };
        if value.len() > ARGS_LIMIT {
            let message = format!(
                "{title}: the arguments have {} bytes (arm64 supports {ARGS_LIMIT})",
                value.len()
            );
            let fault = self.fault(Code::Arguments, span, message).label("too long");
            let more = value.len() - ARGS_LIMIT;
            self.faults.push(fault.help(format!("shorten them by {more} bytes or more")));
        }
        if value.contains('\0') {
            let message = format!("{title}: the arguments have a NUL in them");
            let fault = self.fault(Code::Arguments, span, message).label("this");
            self.faults.push(fault.help("remove it: the guest reads only the text before it"));
        }
        value.clone()
    }

    /// Reports the words of `args` that the guest `name`, one of weir's own, would ignore.
    fn known_arguments(&mut self, title: &str, name: &str, args: &At<String>) {
        let Some(known) = self.catalog.arguments.get(name) else { return };
        for word in args.value.split_ascii_whitespace() {
            let (key, value) = word.split_once('=').map_or((word, None), |(k, v)| (k, Some(v)));
            let is_known = known.iter().any(|known| known == key);
            if is_known && value.is_some() {
                continue;
            }
            // Where the word stands, unless it is written with escapes.
            let written = self.file.inner().get(args.span.clone()).unwrap_or_default();
            let span = written.find(word).map_or(args.span.clone(), |at| {
                let start = args.span.start + at;
                start..start + word.len()
            });
            let (message, help) = if is_known {
                (format!("argument `{key}` has no value"), format!("write `{key}=VALUE`"))
            } else {
                let known = known.iter().map(String::as_str);
                let help = if known.len() == 0 {
                    format!("guest `{name}` takes no arguments; leave it out")
                } else {
                    suggestion(key, known)
                };
                (format!("guest `{name}` has no argument `{key}`"), help)
            };
            let message = format!("{title}: {message}");
            let fault = self.fault(Code::Arguments, &span, message).label("this word");
            self.faults.push(fault.help(help));
        }
    }

    /// The image of the VM `title` and, if all of it is in files, their contents.
    pub(super) fn image(
        &mut self,
        title: &str,
        raw: &At<raw::Image>,
        memory: &[RamPiece],
        spans: &mut Spans,
    ) -> (Image, Option<Files>) {
        match &raw.value {
            raw::Image::Elf(raw::Elf { elf, args }) => {
                spans.image = elf.span.clone();
                if let (ImageSource::Named(name), Some(args)) =
                    (self.catalog.find(Role::Elf, &elf.value, self.directory), args)
                {
                    self.known_arguments(title, &name, args);
                }
                let args = self.args(title, args.as_ref());
                let (file, bytes) = self.source(title, Role::Elf, elf);
                (Image::Elf { file, args }, bytes.map(|image| Files { image, initrd: None }))
            }
            raw::Image::Bin(raw::Bin { bin, load, entry, args }) => {
                spans.image = bin.span.clone();
                let args = self.args(title, args.as_ref());
                let (file, bytes) = self.source(title, Role::Bin, bin);
                let load = load.map_or_else(|| image::default_load(memory), Ipa);
                let entry = entry.map_or(load, Ipa);
                let files = bytes.map(|image| Files { image, initrd: None });
                (Image::Bin { file, load, entry, args }, files)
            }
            raw::Image::Linux(raw::Linux { linux, initrd, cmdline }) => {
                spans.image = linux.span.clone();
                let cmdline = self.args(title, cmdline.as_ref());
                let (kernel, image) = self.source(title, Role::Kernel, linux);
                let disk = initrd.as_ref().map(|initrd| {
                    spans.initrd = initrd.span.clone();
                    self.source(title, Role::Initrd, initrd)
                });
                let files = match &disk {
                    Some((_, bytes)) => image
                        .zip(bytes.clone())
                        .map(|(image, initrd)| Files { image, initrd: Some(initrd) }),
                    None => image.map(|image| Files { image, initrd: None }),
                };
                (Image::Linux { kernel, initrd: disk.map(|(source, _)| source), cmdline }, files)
            }
        }
    }

    /// About how many bytes an image has. That of what weir builds or fetches is a fixed guess, so
    /// that the same file is divided alike, independent of the built files.
    pub(super) fn likely_len(&self, image: &raw::Image) -> u64 {
        let len = |role: Role, name: &At<String>| match self.catalog.find(
            role,
            &name.value,
            self.directory,
        ) {
            ImageSource::File(path) => fs::metadata(path).map_or(0, |file| file.len()),
            ImageSource::Named(_) if role == Role::Kernel => LIKELY_KERNEL.0,
            ImageSource::Named(_) => LIKELY_PROGRAM.0,
        };
        match image {
            raw::Image::Elf(raw::Elf { elf, .. }) => len(Role::Elf, elf),
            raw::Image::Bin(raw::Bin { bin, .. }) => len(Role::Bin, bin),
            raw::Image::Linux(raw::Linux { linux, initrd, .. }) => {
                let initrd = initrd.as_ref().map_or(0, |initrd| len(Role::Initrd, initrd));
                len(Role::Kernel, linux) + initrd
            }
        }
    }

    /// What a name in the image of the VM `title` stands for, and the contents if that is a file.
    fn source(
        &mut self,
        title: &str,
        role: Role,
        name: &At<String>,
    ) -> (ImageSource, Option<Vec<u8>>) {
        let source = self.catalog.find(role, &name.value, self.directory);
        let ImageSource::File(path) = &source else {
            return (source, None);
        };
        let read = files::read_regular(path);
        let bytes = match read {
            Ok(bytes) => Some(bytes),
            Err(error) => {
                let known = self.catalog.names(role);
                let known = known.iter().map(String::as_str);
                let near =
                    nearest(&name.value, known.clone()).map(|near| format!("write \"{near}\""));
                let help = near.unwrap_or_else(|| {
                    let mut help = "give a path relative to the system file".to_owned();
                    let known: Vec<_> = known.map(|known| format!("\"{known}\"")).collect();
                    if !known.is_empty() {
                        help.push_str(", or one of weir's own: ");
                        help.push_str(&known.join(", "));
                    }
                    help
                });
                let message =
                    format!("{title}: cannot read {} = {:?}: {error}", role.key(), name.value);
                let fault = self.fault(Code::ImageMissing, &name.span, message).label("this file");
                self.faults.push(fault.help(help));
                None
            }
        };
        (source, bytes)
    }
}
