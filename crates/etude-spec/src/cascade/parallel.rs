//! Parallel work on many items, with several threads if there are enough items.

/// Runs `work` on parts of `items` and joins the results in order. Fewer than `least` items are not worth a thread.
pub(super) fn parts<T: Sync, R: Send>(items: &[T], least: usize, work: impl Fn(&[T]) -> Vec<R> + Sync) -> Vec<R> {
    let most = items.len() / least.max(1) + 1;
    // Called only for many items, because the answer is looked up in half a dozen files.
    let available = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let threads = if most < 2 { 1 } else { available().min(most) };
    if threads < 2 {
        return work(items);
    }
    let work = &work;
    std::thread::scope(|scope| {
        let mut parts = items.chunks(items.len().div_ceil(threads));
        let first = parts.next().unwrap_or_default();
        let others: Vec<_> = parts.map(|part| scope.spawn(move || work(part))).collect();
        let mut all = work(first);
        for other in others {
            // A panic of a thread continues here.
            all.extend(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        all
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_is_made_keeps_the_order() {
        let items: Vec<usize> = (0..1_000).collect();
        let doubled = |part: &[usize]| part.iter().map(|n| n * 2).collect();
        for least in [1, 64, 10_000] {
            assert_eq!(super::parts(&items, least, doubled), doubled(&items));
        }
        assert_eq!(super::parts(&[], 1, doubled), [0; 0]);
    }
}
