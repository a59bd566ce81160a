//! A tool together with its implementation.

use std::sync::Arc;

use serde_json::Value;

use crate::bound;
use crate::tool::{CallContext, MAX_CONTENT, Run, Tool, ToolError, ToolResult};

/// A tool that was found, and can be called.
#[derive(Debug, Clone)]
pub struct Found {
    /// Name, description and schema, in the form for models.
    pub tool: Arc<Tool>,
    run: Arc<dyn Run>,
}

impl Found {
    pub(crate) fn new(tool: Tool, run: impl Run + 'static) -> Self {
        Self { tool: Arc::new(tool), run: Arc::new(run) }
    }

    /// Calls the tool. Checks nothing and asks no one: the caller must have checked the arguments, the lists that narrow the
    /// set, and the policy. Every failure is a result.
    pub async fn call(&self, args: Arc<Value>, cx: CallContext) -> ToolResult {
        if cx.cancel.is_cancelled() {
            return ToolError::cancelled().into();
        }
        let result = self.run.run(args, cx).await;
        ToolResult { content: bound::clip(&result.content, MAX_CONTENT, ""), ..result }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::tool::Boxed;

    #[derive(Debug)]
    struct Long(ToolResult);

    impl Run for Long {
        fn run(&self, _: Arc<Value>, _: CallContext) -> Boxed<ToolResult> {
            Box::pin(std::future::ready(self.0.clone()))
        }
    }

    #[tokio::test]
    async fn a_result_is_never_longer_than_its_limit() {
        let long = "é".repeat(MAX_CONTENT);
        for result in [ToolResult::ok(long.clone()), ToolError::failed(long).into()] {
            let found = Found::new(Tool::named("t", Vec::new(), json!({})), Long(result));
            let result = found.call(Arc::new(json!({})), CallContext::default()).await;
            assert!(result.content.len() <= MAX_CONTENT && result.content.contains("left out"));
        }
    }
}
