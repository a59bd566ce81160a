//! Optional semantic tier: sentence vectors from outside.

/// Source of vectors of meaning for texts. All vectors have one length.
pub trait Embedder {
    /// Vectors of `texts`, in their order.
    fn embed(&self, texts: &[&str]) -> Vec<Vec<f32>>;
}

/// Vectors of all texts, and the mean direction of each route.
#[derive(Debug)]
pub(crate) struct Semantic {
    pub(crate) width: usize,
    pub(crate) texts: Vec<f32>,
    pub(crate) routes: Vec<f32>,
}

impl Semantic {
    /// Normalizes the vectors; `owners` has the route of each. `None` if the vectors cannot be used.
    pub(crate) fn new(routes: usize, owners: &[u32], vectors: &[Vec<f32>]) -> Option<Self> {
        let width = vectors.first()?.len();
        if width == 0 || vectors.len() != owners.len() || vectors.iter().any(|v| v.len() != width) {
            return None;
        }
        let mut texts = Vec::with_capacity(width * vectors.len());
        let mut means = vec![0.0_f32; width * routes];
        for (vector, owner) in vectors.iter().zip(owners) {
            let vector = unit(vector);
            for (sum, value) in means[*owner as usize * width..].iter_mut().zip(&vector) {
                *sum += value;
            }
            texts.extend(vector);
        }
        let routes = means.chunks(width).flat_map(unit).collect();
        Some(Self { width, texts, routes })
    }

    /// Normalized vector of a request; `None` if its length differs.
    pub(crate) fn request(&self, vector: &[f32]) -> Option<Vec<f32>> {
        (vector.len() == self.width).then(|| unit(vector))
    }

    pub(crate) fn text(&self, at: usize) -> &[f32] {
        &self.texts[at * self.width..(at + 1) * self.width]
    }

    pub(crate) fn between(&self, a: usize, b: usize) -> f32 {
        dot(self.text(a), self.text(b))
    }

    pub(crate) fn to_text(&self, vector: &[f32], at: usize) -> f32 {
        dot(vector, self.text(at))
    }

    pub(crate) fn to_route(&self, vector: &[f32], route: usize) -> f32 {
        dot(vector, &self.routes[route * self.width..(route + 1) * self.width])
    }
}

/// Vector of the same direction with length one; zeros if there is none.
fn unit(vector: &[f32]) -> Vec<f32> {
    let length = dot(vector, vector).sqrt();
    if !length.is_finite() || length <= 0.0 {
        return vec![0.0; vector.len()];
    }
    vector.iter().map(|v| v / length).collect()
}

/// Dot product in eight parallel sums, which the compiler turns into vector instructions. The order of addition is fixed.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0.0_f32; 8];
    let (heads, others) = (a.chunks_exact(8), b.chunks_exact(8));
    let rest: f32 = heads.remainder().iter().zip(others.remainder()).map(|(x, y)| x * y).sum();
    for (x, y) in heads.zip(others) {
        for (sum, (x, y)) in sums.iter_mut().zip(x.iter().zip(y)) {
            *sum += x * y;
        }
    }
    sums.iter().sum::<f32>() + rest
}
