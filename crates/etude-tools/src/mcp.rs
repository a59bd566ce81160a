//! MCP servers as a source of tools.
use crate::set::Entry;
/// stub
#[derive(Debug)]
pub struct Servers;
pub(crate) struct Found { pub(crate) tools: Vec<Entry>, pub(crate) problems: Vec<String> }
impl Servers {
    pub(crate) async fn tools(&self, _: impl Fn(&str)->bool) -> Found { Found{tools: vec![], problems: vec![]} }
    pub(crate) async fn find(&self, _: &str) -> Option<Entry> { None }
}
pub(crate) fn tool_name(s: &str, t: &str) -> String { format!("mcp__{s}__{t}") }
