//! Account of this process, on Unix.

use std::path::Path;

/// Maximum size of the list of accounts, in bytes.
const MAX_ACCOUNTS: u64 = 1 << 20;

/// Name of the account, or its number if the system has no name for it.
pub(super) fn account() -> Option<String> {
    let uid = rustix::process::getuid().as_raw();
    let accounts = etude_files::regular::read_text(Path::new("/etc/passwd"), MAX_ACCOUNTS).unwrap_or_default();
    Some(name_in(&accounts, uid).map_or_else(|| format!("uid {uid}"), str::to_owned))
}

/// Name of the number `uid` in a list of accounts, one a line: `name:password:uid:…`.
fn name_in(accounts: &str, uid: u32) -> Option<&str> {
    let name = |line| {
        let mut fields = str::split(line, ':');
        let name = fields.next().filter(|name| !name.is_empty())?;
        (fields.nth(1)?.parse() == Ok(uid)).then_some(name)
    };
    accounts.lines().find_map(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_has_the_name_of_its_number() {
        let accounts =
            "root:x:0:0:root:/root:/bin/sh\n# a remark\nbroken\nada:x:1000:1000::/srv/ada:/bin/sh\n:x:7:7:::\n";
        assert_eq!(name_in(accounts, 1000), Some("ada"));
        assert_eq!(name_in(accounts, 0), Some("root"));
        assert_eq!((name_in(accounts, 7), name_in(accounts, 10), name_in("", 0)), (None, None, None));
        assert!(account().is_some_and(|name| !name.is_empty()));
    }
}
