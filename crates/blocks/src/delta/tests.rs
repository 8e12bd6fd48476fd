//! Tests of the cost of texts that are constructed to be expensive. Counts are compared with bounds, since
//! times depend on the machine.

use super::{
    MAX_SEGMENTS, Segment,
    encoder::DeltaEncoder,
    matching::Matcher,
    pool::Pool,
    script::{Edit, Origin},
    segments::{ScriptToFold, choose_staying, fold, fold_all},
};

const MIB: usize = 1 << 20;
/// The maximum number of compared bytes for each byte of the text, and for each byte of the longest text.
const MAX_COMPARED_PER_BYTE: u64 = 100;

/// Encodes texts, and compares the number of compared bytes with the bound.
#[track_caller]
fn assert_bounded(texts: &[Vec<u8>]) {
    let mut encoder = DeltaEncoder::new();
    for text in texts {
        let before = encoder.compared();
        let script = encoder.push(0, text, true);
        assert!(script.edits.len() <= MAX_SEGMENTS);
        let longest = texts.iter().map(Vec::len).max().unwrap_or(0) as u64;
        let bound = (2 << 20) + MAX_COMPARED_PER_BYTE * (text.len() as u64 + longest);
        let compared = encoder.compared() - before;
        assert!(compared <= bound, "{compared} bytes were compared, and at most {bound} may be");
    }
}

/// A text of different combinations of letters, up to the size `most`. Nearly every part of the text is
/// similar to another part.
fn combinations(letters: u8, order: usize, most: usize) -> Vec<u8> {
    let mut text = Vec::new();
    let mut word = vec![0; order];
    while text.len() < most {
        text.extend(word.iter().map(|letter| b'a' + letter));
        let Some(place) = word.iter().rposition(|letter| *letter + 1 < letters) else { break };
        word[place] += 1;
        word[place + 1..].fill(0);
    }
    text
}

#[test]
fn one_letter_many_times_is_cheap() {
    let text = |size| vec![b'a'; size];
    // In the first group of texts, the common start and the common end meet. In the second group, something
    // else is between them.
    assert_bounded(&[text(64 * MIB), text(63 * MIB)]);
    let with = |at: usize| {
        let mut text = text(2 * MIB);
        text[at] = b'b';
        text.insert(0, at as u8);
        text.push(at as u8);
        text
    };
    assert_bounded(&[with(1_000), with(MIB), with(77_777)]);
}

#[test]
fn periodic_texts_are_cheap() {
    let period = |unit: &[u8], size: usize| -> Vec<u8> { unit.iter().copied().cycle().take(size).collect() };
    for (one, other) in
        [(&b"ab"[..], &b"ba"[..]), (b"abcdefghi", b"abcdefghj"), (b"0123456789abcdef0", b"0123456789abcdef1")]
    {
        let texts =
            [period(one, MIB), period(other, MIB), [period(one, 500_000), period(other, 500_001)].concat()];
        let framed = texts.map(|text| [&text[..3], b"<", &text, b">", &text[1..5]].concat());
        assert_bounded(&framed);
    }
}

#[test]
fn self_similar_texts_are_cheap() {
    let mut reversed = combinations(2, 17, MIB);
    reversed.reverse();
    assert_bounded(&[
        combinations(2, 17, MIB),
        reversed,
        combinations(3, 11, MIB),
        combinations(2, 9, 4_000),
    ]);
}

#[test]
fn text_of_too_many_pieces_is_stored_whole() {
    // Of every 40 bytes, 36 are bytes of the parent.
    let mut rng = fastrand::Rng::with_seed(1);
    let mut noise = |size: usize| -> Vec<u8> { (0..size).map(|_| rng.u8(..)).collect() };
    let parent = noise(40 * (MAX_SEGMENTS + 10));
    let mut text = Vec::new();
    for piece in parent.chunks(40) {
        text.extend_from_slice(&piece[..36]);
        text.extend(noise(4));
    }
    let mut encoder = DeltaEncoder::new();
    encoder.push(0, &parent, true);
    let script = encoder.push(0, &text, true);
    assert_eq!((script.origin, script.edits.len()), (Origin::Empty, 1));
    assert_eq!(encoder.pool().len(), parent.len() + text.len());
}

#[test]
fn script_moves_back_for_a_large_piece_only() {
    let mut rng = fastrand::Rng::with_seed(1);
    let parent: Vec<u8> = (0..3_000).map(|_| rng.u8(..)).collect();
    let edits = |parent: &[u8], text: &[u8]| Matcher::default().edits(parent, text, &mut Pool::new());
    let again =
        |len: usize| [&b"!"[..], &parent[..2_000], &parent[100..100 + len], &parent[2_000..]].concat();
    assert!(edits(&parent, &again(300)).iter().any(|edit| edit.skip < 0));
    assert!(edits(&parent, &again(30)).iter().all(|edit| edit.skip >= 0));
}

#[test]
fn scripts_that_double_their_parent_are_bounded() {
    // Each script doubles its parent: it copies all bytes and moves back to the start, so that all bytes are
    // copied once more.
    let text = [Edit { literal: 1 << 10, ..Edit::default() }];
    let doubled: Vec<[Edit; 1]> = (10..60)
        .map(|bits| {
            [Edit {
                copy: 1_u32.wrapping_shl(bits),
                skip: 1_i32.wrapping_shl(bits).wrapping_neg(),
                ..Edit::default()
            }]
        })
        .collect();
    let step = |index: usize| match index {
        0 => Some(ScriptToFold { origin: Origin::Empty, edits: &text, literals_at: 0 }),
        _ => Some(ScriptToFold { origin: Origin::Parent(1), edits: &doubled[index - 1], literals_at: 0 }),
    };
    let limit = 1 << 20;
    assert!(fold_all(10, limit, step).is_some_and(|list| super::segments::length(&list) == limit));
    assert_eq!(fold_all(11, limit, step), None);
    assert_eq!(fold_all(20, usize::MAX, step), None, "the text has too many segments");
}

#[test]
fn scripts_that_copy_from_outside_of_their_parent_are_refused() {
    let parent = [Segment { pool_at: 0, len: 10 }, Segment { pool_at: 100, len: 10 }];
    let edit = |copy, skip| fold(&parent, &[Edit { copy, skip, ..Edit::default() }], 0, 1 << 20);
    assert_eq!(edit(15, 5), Some(vec![parent[0], Segment { pool_at: 100, len: 5 }]));
    assert_eq!(edit(15, -15).map(|list| list.len()), Some(4));
    assert_eq!(edit(21, 0), None);
    assert_eq!(edit(15, 6), None);
    assert_eq!(edit(15, -16), None);
}

#[test]
fn smallest_pieces_are_moved() {
    // A paragraph moves up, or moves down. The text around it stays.
    assert_eq!(choose_staying(&[0..10, 50..60, 10..50, 60..99]), [true, false, true, true]);
    assert_eq!(choose_staying(&[0..10, 20..60, 10..20, 60..99]), [true, true, false, true]);
    // Of a range that is copied twice, one copy stays.
    assert_eq!(choose_staying(&[0..50, 0..50]).iter().filter(|stays| **stays).count(), 1);
}

#[test]
fn script_that_moves_back_in_many_edits_is_folded() {
    for edits in [200, 2_000] {
        let first = [Edit { literal: 10_000, ..Edit::default() }];
        let mut second = vec![Edit { copy: 2, literal: 1, skip: 1, ..Edit::default() }; edits];
        second[edits / 2].skip = -(edits as i32);
        let step = |index: usize| match index {
            0 => Some(ScriptToFold { origin: Origin::Empty, edits: &first, literals_at: 0 }),
            _ => Some(ScriptToFold { origin: Origin::Parent(1), edits: &second, literals_at: 10_000 }),
        };
        let parent = [Segment { pool_at: 0, len: 10_000 }];
        let expected = fold(&parent, &second, 10_000, 1 << 20);
        assert!(expected.is_some(), "the script stays within its parent");
        assert_eq!(fold_all(1, 1 << 20, step), expected);
    }
}

#[test]
fn folding_all_scripts_at_once_equals_folding_each() {
    let mut rng = fastrand::Rng::with_seed(5);
    for _ in 0..20 {
        let mut lists = vec![vec![Segment { pool_at: 0, len: 5_000 }]];
        let mut scripts = vec![vec![Edit { literal: 5_000, ..Edit::default() }]];
        let mut literals = vec![0];
        let mut pool = 5_000;
        for _ in 0..200 {
            let parent = lists.last().expect("there is a list");
            let mut left = super::segments::length(parent) as u32;
            let mut edits = Vec::new();
            let start = pool;
            for _ in 0..rng.u32(1..5) {
                let copy = rng.u32(0..=left);
                let mut skip = rng.u32(0..=(left - copy).min(60)) as i32;
                left -= copy + skip as u32;
                if rng.u8(0..30) == 0 {
                    skip = -(rng.u32(0..=copy) as i32);
                    left += skip.unsigned_abs();
                }
                let literal = rng.u32(0..30);
                pool += literal;
                let pool_at = rng.u32(0..start);
                edits.push(Edit {
                    copy,
                    literal,
                    pool_len: rng.u32(0..20).min(start - pool_at),
                    pool_at,
                    skip,
                });
            }
            lists.push(fold(parent, &edits, start, 1 << 30).expect("the script stays within its parent"));
            scripts.push(edits);
            literals.push(start);
        }
        for (index, list) in lists.iter().enumerate() {
            let step = |index: usize| {
                let origin = if index == 0 { Origin::Empty } else { Origin::Parent(1) };
                Some(ScriptToFold { origin, edits: &scripts[index], literals_at: literals[index] })
            };
            assert_eq!(fold_all(index, 1 << 30, step).as_ref(), Some(list));
        }
    }
}
