//! Validity of the examples in the documentation.

use std::fs;
use std::path::{Path, PathBuf};

use etude_spec::source::SourceFile;

/// Every page that shows configuration.
fn pages() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut pages = vec![root.join("README.md"), root.join("SECURITY.md")];
    for dir in ["docs", "docs/design"] {
        let entries = fs::read_dir(root.join(dir)).expect("a directory").flatten().map(|entry| entry.path());
        pages.extend(entries.filter(|path| path.extension().is_some_and(|kind| kind == "md")));
    }
    pages
}

/// cli, configuration: every `etude.yaml` on a page is valid, with existing fields.
#[test]
fn configurations_in_the_documentation_are_valid() {
    let mut shown = 0;
    for page in pages() {
        let text = fs::read_to_string(&page).expect("a page");
        for block in text.split("```yaml\n").skip(1) {
            let block = block.split("\n```").next().unwrap_or_default();
            if !block.starts_with("# etude.yaml") {
                continue;
            }
            shown += 1;
            let (_, found) = etude_spec::config::read(&SourceFile::new("etude.yaml", block));
            let found: Vec<String> = found.iter().map(|fault| fault.message.clone()).collect();
            assert_eq!(found, Vec::<String>::new(), "{}:\n{block}", page.display());
        }
    }
    assert!(shown > 0, "no page shows a configuration");
}
