//! Routers that are stored as bytes and read back.

use etude_route::{Embedder, Route, Router};

use crate::table::routes;

/// Vectors of the texts' first letters, as simple vectors.
struct Letters;

impl Embedder for Letters {
    fn embed(&self, texts: &[&str]) -> Vec<Vec<f32>> {
        let vector = |text: &&str| {
            let mut vector = vec![0.1; 8];
            text.bytes().take(6).for_each(|byte| vector[usize::from(byte % 8)] += 1.0);
            vector
        };
        texts.iter().map(vector).collect()
    }
}

const REQUESTS: [&str; 6] = [
    "review my code",
    "please chekc the data quality of this table",
    "部署到生产环境吧",
    "is it live yet",
    "order a pizza",
    "",
];

/// a stored router decides as the original does, to the last bit.
#[test]
fn a_stored_router_decides_the_same() {
    for built in [Router::new(&routes()), Router::with_embeddings(&routes(), &Letters)] {
        let stored = Router::from_bytes(&built.to_bytes()).expect("a router");
        for request in REQUESTS {
            assert_eq!(stored.decide(request), built.decide(request), "{request}");
            assert_eq!(stored.decide_with(request, &Letters), built.decide_with(request, &Letters), "{request}");
        }
        assert_eq!(stored.to_bytes(), built.to_bytes());
    }
}

#[test]
fn an_empty_table_can_be_stored() {
    let stored = Router::from_bytes(&Router::new(&[]).to_bytes()).expect("a router");
    assert_eq!(stored.decide("hello").best, None);
}

/// No bytes in a cache may make a decision panic.
#[test]
fn bytes_that_are_no_router_are_refused_or_harmless() {
    let bytes = Router::with_embeddings(&routes()[..3], &Letters).to_bytes();
    for end in (0..bytes.len()).step_by(97) {
        assert!(Router::from_bytes(&bytes[..end]).is_none(), "cut at {end}");
    }
    for at in (0..bytes.len()).step_by(11) {
        for flip in [0x01, 0x80, 0xff] {
            let mut bytes = bytes.clone();
            bytes[at] ^= flip;
            if let Some(router) = Router::from_bytes(&bytes) {
                REQUESTS.iter().for_each(|request| drop(router.decide_with(request, &Letters)));
            }
        }
    }
    let mut longer = bytes;
    longer.push(0);
    assert!(Router::from_bytes(&longer).is_none());
}

/// A table that is trained on several threads equals the one that is trained on one: the routes are many enough here.
#[test]
fn a_large_table_is_the_same_every_time() {
    let routes: Vec<Route> = (0..300)
        .map(|at| Route {
            name: format!("r{at}"),
            description: format!("does thing {} with {}", at % 17, at % 23),
            triggers: vec![format!("please do {} now", at % 29)],
        })
        .collect();
    assert_eq!(Router::new(&routes).to_bytes(), Router::new(&routes).to_bytes());
}

/// If this fails, the computation of a router has changed: raise `FORMAT`, so that no old cache decides, and write the new
/// numbers here.
#[test]
fn the_format_is_raised_with_every_change() {
    let router = Router::new(&routes());
    let fits = REQUESTS.map(|request| format!("{:.3}", router.decide(request).signals.fit));
    assert_eq!((etude_route::FORMAT, fits.join(" ").as_str()), (2, "2.000 0.081 0.389 -0.962 -0.954 -1.000"));
}
