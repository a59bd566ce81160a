//! Commands that update etude, by the way it was installed (docs/install.md).

use std::path::Path;

/// Words of other programs for their update.
pub(super) const WORDS: [&str; 5] = ["update", "upgrade", "self-update", "selfupdate", "self"];

/// Hint with the command that updates this program.
pub(super) fn hint() -> String {
    let program = std::env::current_exe().and_then(std::fs::canonicalize).unwrap_or_default();
    let is_of_venv = program.ancestors().nth(2).is_some_and(|dir| dir.join("pyvenv.cfg").is_file());
    format!("etude does not update itself; {}", way(&program, is_of_venv))
}

/// The update of a program at this path. `is_of_venv`: it is in a virtual environment of Python.
fn way(program: &Path, is_of_venv: bool) -> String {
    let names: Vec<&str> = program.iter().filter_map(|name| name.to_str()).collect();
    let is_in = |path: &[&str]| names.windows(path.len()).any(|window| window == path);
    let command = match program.parent().and_then(Path::to_str) {
        _ if is_in(&["_npx"]) => "npx etude@latest",
        _ if is_in(&["node_modules"]) => "npm install --global etude@latest",
        _ if is_in(&["uv", "tools", "etude"]) => "uv tool upgrade etude",
        _ if names.windows(2).any(|pair| pair[0] == "uv" && pair[1].starts_with("archive-")) => "uvx etude@latest",
        _ if is_in(&["pipx", "venvs"]) => "pipx upgrade etude",
        _ if is_of_venv => "pip install --upgrade etude",
        _ if is_in(&["Cellar"]) => {
            return "copy the `etude.rb` of the new release to your tap, then run: brew upgrade etude".to_owned();
        }
        _ if is_in(&[".cargo", "bin"]) => "cargo binstall --git https://github.com/etude-dev/etude etude-cli",
        Some("/usr/bin") => "apt install ./etude_VERSION_amd64.deb, a file of the new release",
        _ => {
            let place = program.display();
            return format!("replace `{place}` with the program of a new release: etude-VERSION-TARGET.tar.gz");
        }
    };
    format!("run: {command}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The command that updates etude is the one of its installation, as docs/install.md has it.
    #[test]
    fn an_update_is_made_as_the_program_was_installed() {
        for (program, is_of_venv, expected) in [
            ("/srv/a/.local/share/uv/tools/etude/bin/etude", true, "run: uv tool upgrade etude"),
            ("/srv/a/.cache/uv/archive-v0/x1/bin/etude", true, "run: uvx etude@latest"),
            ("/srv/a/.local/share/pipx/venvs/etude/bin/etude", true, "run: pipx upgrade etude"),
            ("/srv/a/project/.venv/bin/etude", true, "run: pip install --upgrade etude"),
            ("/usr/lib/node_modules/etude/bin/etude", false, "run: npm install --global etude@latest"),
            ("/srv/a/.npm/_npx/1/node_modules/etude/bin/etude", false, "run: npx etude@latest"),
            ("/usr/bin/etude", false, "run: apt install ./etude_VERSION_amd64.deb, a file of the new release"),
        ] {
            assert_eq!(way(Path::new(program), is_of_venv), expected, "{program}");
        }
        assert!(way(Path::new("/opt/homebrew/Cellar/etude/0.1.0/bin/etude"), false).ends_with("brew upgrade etude"));
        assert!(way(Path::new("/srv/a/.cargo/bin/etude"), false).starts_with("run: cargo binstall "));
        assert!(way(Path::new("/opt/etude"), false).starts_with("replace `/opt/etude` with "));
        assert!(hint().starts_with("etude does not update itself; "));
    }
}
