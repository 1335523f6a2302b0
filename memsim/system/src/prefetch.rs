//! A core's prefetcher: it follows streams of lines and asks for those ahead of them.

use std::ops::Range;

/// Streams that are followed at once.
const STREAMS: usize = 4;
const LINES_OF_A_PAGE: u64 = 64;

#[derive(Clone, Copy, Debug, Default)]
struct Stream {
    /// The line that it is expected to access next.
    next: u64,
    /// Lines below this one were asked for.
    until: u64,
}

/// Follows a core's accesses. It knows physical lines, so it stays within a page.
#[derive(Clone, Debug, Default)]
pub(crate) struct Prefetcher {
    /// The latest stream first.
    streams: [Stream; STREAMS],
    ahead: u64,
}

impl Prefetcher {
    /// One that asks for so many lines ahead.
    pub fn new(ahead: u64) -> Self {
        Self { ahead, ..Self::default() }
    }

    /// A line is accessed, which `missed` the first level or did not: gives the lines to ask for.
    pub fn accessed(&mut self, line: u64, missed: bool) -> Range<u64> {
        let next = line + 1;
        if self.ahead == 0 || (self.streams[0].next == next && !missed) {
            return next..next;
        }
        let Some(at) = self.streams.iter().position(|stream| stream.next == line) else {
            if missed {
                self.streams.rotate_right(1);
                self.streams[0] = Stream { next, until: next };
            }
            return next..next;
        };
        self.streams[..=at].rotate_right(1);
        let end = (line / LINES_OF_A_PAGE + 1) * LINES_OF_A_PAGE;
        let stream = &mut self.streams[0];
        let ask = stream.until.max(next)..(next + self.ahead).min(end);
        *stream = Stream { next, until: ask.end.max(stream.until) };
        ask
    }

    /// Of the lines to ask for those from this one on could not be.
    pub const fn refused(&mut self, line: u64) {
        self.streams[0].until = line;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_prefetches_from_its_second_access() {
        let mut prefetcher = Prefetcher::new(3);
        assert!(prefetcher.accessed(70, true).is_empty());
        assert!(prefetcher.accessed(900, true).is_empty());
        assert_eq!(prefetcher.accessed(71, true), 72..75);
        assert_eq!(prefetcher.accessed(901, true), 902..905);
        assert_eq!(prefetcher.accessed(72, false), 75..76);
        // The same line again, and one of no stream.
        assert!(prefetcher.accessed(72, false).is_empty());
        assert!(prefetcher.accessed(5, true).is_empty());
        prefetcher.accessed(73, false);
        prefetcher.refused(76);
        assert_eq!(prefetcher.accessed(74, false), 76..78);
    }

    #[test]
    fn it_stays_in_the_page_and_can_be_off() {
        assert!(Prefetcher::new(0).accessed(71, true).is_empty());
        let mut prefetcher = Prefetcher::new(3);
        prefetcher.accessed(125, true);
        assert_eq!(prefetcher.accessed(126, true), 127..128);
        assert!(prefetcher.accessed(127, true).is_empty());
    }
}
