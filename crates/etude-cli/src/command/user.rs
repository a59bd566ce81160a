//! Name of the person who decides.

mod unix;

/// Name of the logged-in user, else that of the account, because containers and scheduled jobs set no `USER`.
pub(crate) fn name() -> String {
    let set = |name: &&str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let of_session = ["USER", "LOGNAME", "USERNAME"].iter().find_map(set);
    of_session.or_else(unix::account).unwrap_or_else(|| "unknown".to_owned())
}
