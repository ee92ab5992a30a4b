//! How often a message may allocate on its way. A change that allocates more fails here, the same day;
//! one that allocates less lowers the number.
#![allow(clippy::expect_used)]

mod work;

use allocation_counter::{AllocationInfo, measure};
use bytes::Bytes;
use work::Link;

#[test]
fn reading_an_envelope_allocates_no_more_however_long_it_is() {
    for bytes in [200, 64 << 10, 1 << 20] {
        let update = work::update(bytes);
        let counted = measure(|| assert!(work::read(&update)));
        // The reader of JSON keeps the depth of what it passes over.
        assert_at_most(&format!("{bytes} bytes"), counted, 1);
    }
}

#[test]
fn an_update_passes_a_step() {
    assert_step("an update", Link::before_update(), 1);
}

#[test]
fn a_prompt_passes_a_step() {
    assert_step("a prompt", Link::before_prompt(), 12);
}

#[test]
fn an_answer_passes_a_step() {
    assert_step("an answer", Link::before_answer(), 2);
}

/// Only what the edge of a piece cuts is copied.
#[test]
fn lines_are_slices_of_their_piece() {
    assert_cut(work::editor_input(), work::cut_lines, 59);
}

/// Only what the edge of a piece cuts is copied.
#[test]
fn events_are_slices_of_their_piece() {
    assert_cut(work::many_events(), work::cut_events, 247);
}

/// Only what the edge of a piece cuts is copied.
#[test]
fn frames_are_slices_of_their_piece() {
    assert_cut(work::many_frames(), work::cut_frames, 219);
}

#[test]
fn the_copy_of_a_large_event_grows_by_doubling() {
    let pieces = work::large_event();
    let counted = measure(|| assert_eq!(work::cut_events(pieces), 1));
    assert_at_most("8 MiB", counted, 13);
    assert!(counted.bytes_max < 3 * (8 << 20), "{counted:?}");
}

fn assert_step(name: &str, link: Link, most: u64) {
    let mut link = Some(link);
    let counted = measure(|| link = link.take().map(Link::step));
    assert_eq!(link.map(|link| link.passed_on()), Some(1), "{name} passes");
    assert_at_most(name, counted, most);
}

fn assert_cut(pieces: Vec<Bytes>, cut: fn(Vec<Bytes>) -> usize, most: u64) {
    let count = pieces.len();
    let counted = measure(|| assert_eq!(cut(pieces), 5_000));
    assert_at_most(&format!("{count} pieces"), counted, most);
}

fn assert_at_most(name: &str, counted: AllocationInfo, most: u64) {
    assert!(counted.count_total <= most, "{name}: {counted:?}");
}
