use std::io::{Read, Write};

use super::*;

#[test]
fn dictionaries_fit_the_content_and_never_exceed_the_declaration() {
    assert_eq!(dictionary(1 << 30, 1 << 20), 1 << 20);
    assert_eq!(dictionary(1 << 20, 1 << 30), 1 << 20);
    assert_eq!(dictionary(1 << 20, 0), 4096);
    assert_eq!(lzma([0x5d, 0, 0, 0, 0x40], 1 << 20), ([0x5d, 0, 0, 0x10, 0], 1 << 20));
    assert_eq!(lzma([0x5d, 0xff, 0xff, 0xff, 0xff], u64::MAX).1, u64::from(u32::MAX));
    assert_eq!(lzma2(40, 0), (0, 4096));
    assert_eq!(lzma2(40, 6144), (1, 6144));
    assert_eq!(lzma2(40, 6145), (2, 8192));
    assert_eq!(lzma2(3, u64::MAX), (3, 12288));
    assert_eq!(lzma2(40, u64::MAX), (40, 1 << 32));
}

#[test]
fn models_fit_the_content_and_never_exceed_the_declaration() {
    assert!((2048..4096).contains(&ppmd(254 << 20, 6, 0)));
    assert!(ppmd(254 << 20, 6, 1000) < 500_000);
    assert_eq!(ppmd(254 << 20, 64, u64::MAX), 254 << 20);
    assert_eq!(ppmd(u32::MAX, 64, u64::MAX), u32::MAX);
    assert_eq!(ppmd(5, 6, 1 << 20), 5);
}

fn pack(content: &[u8], order: u32, model: u32) -> Vec<u8> {
    let mut encoder = ppmd_rust::Ppmd7Encoder::new(Vec::new(), order, model).unwrap();
    encoder.write_all(content).unwrap();
    encoder.finish(false).unwrap()
}

fn unpack(packed: &[u8], order: u32, model: u32, size: usize) -> Vec<u8> {
    let decoder = ppmd_rust::Ppmd7Decoder::new(packed, order, model).unwrap();
    let mut content = Vec::new();
    let _ = decoder.take(size as u64).read_to_end(&mut content);
    content
}

/// Contents that make models large in different ways.
fn contents() -> Vec<(&'static str, Vec<u8>)> {
    let mut state = 7_u64;
    let mut random = move |bound: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) % bound) as u8
    };
    let noise: Vec<u8> = (0..10_000).map(|_| random(256)).collect();
    let letters: Vec<u8> = (0..12_000).map(|_| b'a' + random(4)).collect();
    let changing: Vec<u8> = (0..20_000_u64).map(|at| random(2 + (at / 200) % 200)).collect();
    let mut rare = vec![b'x'; 20_000];
    rare.iter_mut().step_by(97).for_each(|byte| *byte = random(256));
    vec![
        ("zeros", vec![0; 50_000]),
        ("noise", noise.clone()),
        ("noise again and again", noise[..2000].repeat(8)),
        ("letters", letters),
        ("alphabets that change", changing),
        ("rare letters", rare),
        ("every byte in turn", (0..=255).collect::<Vec<u8>>().repeat(60)),
        ("nothing", Vec::new()),
        ("a byte", vec![b'a']),
    ]
}

#[test]
fn smaller_model_gives_the_same_bytes_as_the_declared_one() {
    for order in [2, 6, 16, 64] {
        for (name, content) in contents() {
            let declared = 64 << 20;
            let packed = pack(&content, order, declared);
            let used = ppmd(declared, order, content.len() as u64);
            assert!(
                unpack(&packed, order, used, content.len()) == content,
                "{name}, order {order}, {used} bytes"
            );
            let most = ppmd_unpacked(packed.len() as u64);
            assert!(content.len() as u64 <= most, "{name}, order {order}: {} of {most}", content.len());
        }
    }
}

#[test]
fn exhausted_model_gives_other_bytes() {
    // This shows that the test above detects a bound that is too low.
    let (_, content) = &contents()[1];
    let packed = pack(content, 16, 64 << 20);
    assert!(unpack(&packed, 16, 1 << 16, content.len()) != *content);
}
