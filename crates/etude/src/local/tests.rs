use super::*;

fn local(dir: &Path) -> Local {
    Local {
        models_dir: dir.to_owned(),
        runtime_dir: dir.join("run"),
        weights: None,
        context_tokens: None,
        idle: None,
        start: Arc::new(|_| Err(io::Error::other("not here"))),
    }
}

/// missing weights are reported with the command that downloads them and with their size.
#[tokio::test]
async fn missing_weights_are_reported_with_the_command_and_the_size() {
    let dir = tempfile::tempdir().expect("a directory");
    let why = local(dir.path()).start(DEFAULT_MODEL).await.expect_err("no weights");
    assert_eq!(why, "its weights are not downloaded; run `etude model pull` (1.1 GB)");
    let why = local(dir.path()).start("smollm2-135m").await.expect_err("no weights");
    assert!(why.ends_with("`etude model pull smollm2-135m` (98 MB)"), "{why}");
}

/// only chat models can be named.
#[test]
fn an_unknown_name_is_reported_with_the_known_ones() {
    for name in ["gpt-5", EMBEDDING_MODEL] {
        let why = lookup(name).expect_err("unknown");
        assert!(
            why.starts_with(&format!("there is no local model `{name}`; local models are `qwen2.5-coder-1.5b` and"))
        );
    }
}

/// The user's own weights are served under any name of the mapping, with the configured numbers.
#[test]
fn a_file_of_ones_own_needs_no_known_name() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("mine.gguf");
    std::fs::write(&file, "GGUF").expect("written");
    let mut local = local(dir.path());
    local.weights = Some(file.clone());
    local.context_tokens = Some(2048);
    local.idle = Some(Duration::from_secs(1));
    let settings = local.settings("mine").expect("settings");
    assert_eq!((settings.weights, settings.context_tokens), (file, 2048));
    assert_eq!((settings.id.as_str(), settings.idle), ("mine", Duration::from_secs(1)));
    local.weights = Some(dir.path().join("gone.gguf"));
    assert!(local.settings("mine").expect_err("gone").starts_with("there is no weights file `"));
}

#[test]
fn sizes_are_reported_with_two_digits() {
    assert_eq!([size(400_001), size(98_362_432), size(1_117_320_768)], ["401 kB", "98 MB", "1.1 GB"]);
    assert_eq!([size(999_001), size(999_499_999), size(999_500_000)], ["1 MB", "999 MB", "1.0 GB"]);
}
