//! Eight pipelines with descriptions and triggers as users write them.

use etude_route::{Decision, Route, Router};

const TABLE: [(&str, &str, &[&str]); 8] = [
    (
        "code-review",
        "Review the diff of a branch or pull request for bugs, security problems and style, and list the findings by severity",
        &[
            "review my code",
            "check this pull request",
            "look over my changes before I merge",
            "代码审查",
            "帮我看看这个 PR",
        ],
    ),
    (
        "release-notes",
        "Write release notes from the commits since the last tag, grouped by kind of change",
        &["write the release notes", "generate a changelog", "what changed since the last release", "生成发布说明"],
    ),
    (
        "csv-audit",
        "Check a CSV file for missing values, duplicate rows, wrong types and outliers",
        &[
            "audit this csv",
            "check the data quality of a spreadsheet",
            "find duplicates in my table",
            "检查表格数据质量",
        ],
    ),
    (
        "doc-index",
        "Build a searchable index of the documentation in a folder",
        &["index the docs", "make the documentation searchable", "rebuild the search index", "为文档建立索引"],
    ),
    (
        "incident-summary",
        "Summarise an incident from logs and chat into a timeline with causes and follow-ups",
        &["summarise the outage", "write a postmortem", "what happened during the incident", "总结一下故障"],
    ),
    (
        "translate-strings",
        "Translate user interface strings into other languages and keep the placeholders",
        &["translate the app into German", "localise these strings", "add a French translation", "把界面翻译成英文"],
    ),
    (
        "deploy-service",
        "Deploy a service to staging or production and watch its health checks",
        &["deploy to production", "ship the new version", "roll out the service to staging", "部署到生产环境"],
    ),
    (
        "expense-report",
        "Collect receipts and produce a monthly expense report with totals per category",
        &["make my expense report", "add up my receipts", "how much did I spend this month", "生成报销单"],
    ),
];

pub(crate) fn routes() -> Vec<Route> {
    TABLE
        .iter()
        .map(|(name, description, triggers)| Route {
            name: (*name).to_owned(),
            description: (*description).to_owned(),
            triggers: triggers.iter().map(|t| (*t).to_owned()).collect(),
        })
        .collect()
}

pub(crate) fn router() -> Router {
    Router::new(&routes())
}

/// The name of the first candidate, also of a rejected request.
pub(crate) fn first(decision: &Decision) -> &str {
    decision.candidates.first().map_or("", |candidate| candidate.name.as_str())
}
