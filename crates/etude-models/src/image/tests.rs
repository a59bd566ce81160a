use std::fs;
use std::os::unix::fs::symlink;
use std::sync::mpsc::TryRecvError;

use super::*;

const PNG: &[u8] = b"\x89PNG of the app";
const SECRET: &[u8] = b"\x89PNG of somebody else";

/// a link that is swapped while an image is read never leads to a file outside the app.
#[test]
fn a_link_that_is_swapped_never_leads_out_of_the_app() {
    let dir = tempfile::tempdir().expect("a directory");
    let app = dir.path().join("app");
    for (folder, bytes) in [("app/inside", PNG), ("outside", SECRET)] {
        fs::create_dir_all(dir.path().join(folder)).expect("made");
        fs::write(dir.path().join(folder).join("image.png"), bytes).expect("written");
    }
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    // The thread swaps until the test ends, in success or failure.
    let (_ends, end) = std::sync::mpsc::channel::<()>();
    let link = app.join("link");
    std::thread::spawn(move || {
        let new = link.with_extension("new");
        for target in ["inside", "../outside"].into_iter().cycle() {
            let swapped = symlink(target, &new).and_then(|()| fs::rename(&new, &link));
            if swapped.is_err() || end.try_recv() == Err(TryRecvError::Disconnected) {
                break;
            }
        }
    });
    let mut sent = 0;
    for _ in 0..2_000 {
        if let Ok(image) = runtime.block_on(read(&app, "link/image.png")) {
            assert_eq!(image.base64, STANDARD.encode(PNG), "a file outside the app was sent");
            sent += 1;
        }
    }
    assert!(sent > 0, "the image was never read");
}
