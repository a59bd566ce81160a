//! The kernels for AVX2. pulp gives safe access to the instructions once it has checked that the processor has them.

use std::arch::x86_64::{__m128i, __m256, __m256i};

use pulp::x86::V3;
use pulp::{NullaryFnOnce, cast};

use super::{BLOCK, Format, InputBlock, TILE};

/// Proof that the processor has AVX2 and FMA.
#[derive(Clone, Copy)]
pub(super) struct Simd(V3);

impl Simd {
    /// `None` also if candle has faster kernels, with instructions that multiply and add bytes.
    pub(super) fn new() -> Option<Self> {
        if is_x86_feature_detected!("avx512vnni") || is_x86_feature_detected!("avxvnni") {
            return None;
        }
        V3::try_new().map(Self)
    }

    pub(super) fn quantize(self, block: &[f32; BLOCK]) -> InputBlock {
        self.0.vectorize(Quantize(block))
    }

    /// The products of one row of weights with the rows of `tile`.
    pub(super) fn tile(self, format: Format, weights: &[u8], tile: &[&[InputBlock]], products: &mut [f32]) {
        self.0.vectorize(Tile { simd: self.0, format, weights, tile, products });
    }
}

/// These are types instead of closures, because only then all of their code is inlined into a function that may use the
/// instructions.
struct Quantize<'a>(&'a [f32; BLOCK]);

impl NullaryFnOnce for Quantize<'_> {
    type Output = InputBlock;

    #[inline(always)]
    fn call(self) -> InputBlock {
        quantize(self.0)
    }
}

struct Tile<'a> {
    simd: V3,
    format: Format,
    weights: &'a [u8],
    tile: &'a [&'a [InputBlock]],
    products: &'a mut [f32],
}

impl NullaryFnOnce for Tile<'_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let Self { simd, format, weights, tile, products } = self;
        let mut done = 0;
        while done < tile.len() {
            let (rest, products) = (&tile[done..], &mut products[done..]);
            done += match rest.len() {
                TILE.. => some::<TILE>(simd, format, weights, rest, products),
                4.. => some::<4>(simd, format, weights, rest, products),
                2.. => some::<2>(simd, format, weights, rest, products),
                _ => some::<1>(simd, format, weights, rest, products),
            };
        }
    }
}

#[inline(always)]
fn quantize(block: &[f32; BLOCK]) -> InputBlock {
    let largest = block.iter().fold(0.0_f32, |largest, value| largest.max(value.abs()));
    let mut input = InputBlock { values: [0; BLOCK], sums: [0; 16], scale: largest / 127.0 };
    if largest > 0.0 {
        let factor = 127.0 / largest;
        for (value, given) in input.values.iter_mut().zip(block) {
            *value = (given * factor).round_ties_even() as i8;
        }
    }
    for (sum, values) in input.sums.iter_mut().zip(input.values.as_chunks::<16>().0) {
        *sum = values.iter().map(|value| i16::from(*value)).sum();
    }
    input
}

/// Computes the products of the first `M` rows; returns `M`.
#[inline(always)]
fn some<const M: usize>(
    simd: V3,
    format: Format,
    weights: &[u8],
    tile: &[&[InputBlock]],
    products: &mut [f32],
) -> usize {
    let Some(rows) = tile.first_chunk::<M>() else { return tile.len().max(1) };
    let sums = match format {
        Format::Q4K => q4k(simd, weights, rows),
        Format::Q6K => q6k(simd, weights, rows),
    };
    for (product, sum) in products.iter_mut().zip(sums) {
        *product = total(sum);
    }
    M
}

/// Products with Q4_K weights. A block has two scales of 16 bits, 8 scales and 8 minima of 6 bits, and 256 values of 4 bits.
#[inline(always)]
fn q4k<const M: usize>(simd: V3, weights: &[u8], rows: &[&[InputBlock]; M]) -> [__m256; M] {
    let (avx, avx2, fma) = (simd.avx, simd.avx2, simd.fma);
    let low = avx._mm256_set1_epi8(15);
    let mut sums = [avx._mm256_setzero_ps(); M];
    for (at, block) in weights.as_chunks::<144>().0.iter().enumerate() {
        let Some(inputs) = inputs_at(rows, at) else { break };
        let (scales, minima) = scales_of_q4k(block);
        let values = block[16..].as_chunks::<32>().0;
        let mut whole = [avx._mm256_setzero_si256(); M];
        for part in 0..4 {
            let packed: __m256i = cast(values[part]);
            let first = avx2._mm256_and_si256(packed, low);
            let second = avx2._mm256_and_si256(avx2._mm256_srli_epi16::<4>(packed), low);
            let first_scale = avx._mm256_set1_epi16(i16::from(scales[2 * part]));
            let second_scale = avx._mm256_set1_epi16(i16::from(scales[2 * part + 1]));
            for row in 0..M {
                let given = inputs[row].values.as_chunks::<32>().0;
                let one = avx2._mm256_maddubs_epi16(first, cast(given[2 * part]));
                let other = avx2._mm256_maddubs_epi16(second, cast(given[2 * part + 1]));
                let one = avx2._mm256_madd_epi16(first_scale, one);
                let other = avx2._mm256_madd_epi16(second_scale, other);
                whole[row] = avx2._mm256_add_epi32(whole[row], avx2._mm256_add_epi32(one, other));
            }
        }
        let scale = half(block[0], block[1]);
        let least = half(block[2], block[3]);
        // Each minimum counts for two sums of 16.
        let minima: __m256i = cast(minima);
        for row in 0..M {
            let input = inputs[row];
            let below = avx2._mm256_madd_epi16(minima, cast(input.sums));
            let by = avx._mm256_set1_ps(scale * input.scale);
            sums[row] = fma._mm256_fmadd_ps(avx._mm256_cvtepi32_ps(whole[row]), by, sums[row]);
            let by = avx._mm256_set1_ps(-least * input.scale);
            sums[row] = fma._mm256_fmadd_ps(avx._mm256_cvtepi32_ps(below), by, sums[row]);
        }
    }
    sums
}

/// The scales of 8 parts, and their minima, each of them twice.
#[inline(always)]
fn scales_of_q4k(block: &[u8; 144]) -> ([u8; 8], [i16; 16]) {
    let packed = &block[4..16];
    let (mut scales, mut minima) = ([0; 8], [0; 16]);
    for part in 0..4 {
        scales[part] = packed[part] & 63;
        scales[part + 4] = (packed[part + 8] & 15) | ((packed[part] >> 6) << 4);
        let early = i16::from(packed[part + 4] & 63);
        let late = i16::from((packed[part + 8] >> 4) | ((packed[part + 4] >> 6) << 4));
        (minima[2 * part], minima[2 * part + 1]) = (early, early);
        (minima[2 * part + 8], minima[2 * part + 9]) = (late, late);
    }
    (scales, minima)
}

/// Products with Q6_K weights. A block has 256 values of 4 bits, their upper 2 bits, 16 scales of 8 bits, and a scale of 16 bits.
/// Values count from -32.
#[inline(always)]
fn q6k<const M: usize>(simd: V3, weights: &[u8], rows: &[&[InputBlock]; M]) -> [__m256; M] {
    let (avx, avx2, fma) = (simd.avx, simd.avx2, simd.fma);
    let low = avx._mm256_set1_epi8(15);
    let upper = avx._mm256_set1_epi8(0x30);
    let mut sums = [avx._mm256_setzero_ps(); M];
    for (at, block) in weights.as_chunks::<210>().0.iter().enumerate() {
        let Some(inputs) = inputs_at(rows, at) else { break };
        let (lower, highs) = (block[..128].as_chunks::<32>().0, block[128..192].as_chunks::<32>().0);
        let mut scales = [0_i16; 16];
        for (scale, byte) in scales.iter_mut().zip(&block[192..208]) {
            *scale = i16::from(byte.cast_signed());
        }
        let mut whole = [avx._mm256_setzero_si256(); M];
        for half in 0..2 {
            let high: __m256i = cast(highs[half]);
            let quarters: [__m256i; 2] = [cast(lower[2 * half]), cast(lower[2 * half + 1])];
            for part in 0..4 {
                let quarter = quarters[part % 2];
                let bits = if part < 2 { quarter } else { avx2._mm256_srli_epi16::<4>(quarter) };
                let high = match part {
                    0 => avx2._mm256_slli_epi16::<4>(high),
                    1 => avx2._mm256_slli_epi16::<2>(high),
                    2 => high,
                    _ => avx2._mm256_srli_epi16::<2>(high),
                };
                let values = avx2._mm256_or_si256(avx2._mm256_and_si256(bits, low), avx2._mm256_and_si256(high, upper));
                let scale = 8 * half + 2 * part;
                let (one, other): (__m128i, __m128i) = (cast([scales[scale]; 8]), cast([scales[scale + 1]; 8]));
                let scale = avx._mm256_set_m128i(other, one);
                for row in 0..M {
                    let given = inputs[row].values.as_chunks::<32>().0;
                    let product = avx2._mm256_maddubs_epi16(values, cast(given[4 * half + part]));
                    whole[row] = avx2._mm256_add_epi32(whole[row], avx2._mm256_madd_epi16(scale, product));
                }
            }
        }
        let by = self::half(block[208], block[209]);
        let scales: __m256i = cast(scales);
        for row in 0..M {
            let input = inputs[row];
            let below = avx2._mm256_slli_epi32::<5>(avx2._mm256_madd_epi16(scales, cast(input.sums)));
            let exact = avx._mm256_cvtepi32_ps(avx2._mm256_sub_epi32(whole[row], below));
            sums[row] = fma._mm256_fmadd_ps(exact, avx._mm256_set1_ps(by * input.scale), sums[row]);
        }
    }
    sums
}

/// The blocks at index `at` of all rows.
#[inline(always)]
fn inputs_at<'a, const M: usize>(rows: &[&'a [InputBlock]; M], at: usize) -> Option<[&'a InputBlock; M]> {
    let mut inputs = [rows[0].get(at)?; M];
    for row in 1..M {
        inputs[row] = rows[row].get(at)?;
    }
    Some(inputs)
}

#[inline(always)]
fn half(low: u8, high: u8) -> f32 {
    half::f16::from_le_bytes([low, high]).to_f32_const()
}

#[inline(always)]
fn total(sum: __m256) -> f32 {
    cast::<__m256, [f32; 8]>(sum).iter().sum()
}
