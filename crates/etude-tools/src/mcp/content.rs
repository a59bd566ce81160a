//! Conversion of a server's response into text for a model.

use rmcp::model::{CallToolResult, ContentBlock, ResourceContents};

use crate::bound;
use crate::tool::{ToolError, ToolResult};

/// The result of a call, as text of at most `most` bytes. Images and audio are named, not shown.
pub(super) fn result(answer: &CallToolResult, most: usize) -> ToolResult {
    let mut parts: Vec<String> = answer.content.iter().map(block).filter(|part| !part.is_empty()).collect();
    if parts.is_empty()
        && let Some(value) = &answer.structured_content
    {
        parts.push(value.to_string());
    }
    let text = bound::plain(&parts.join("\n"), usize::MAX - 1);
    let text = bound::clip(&text, most, "request less data in one call");
    if answer.is_error == Some(true) {
        let message =
            if text.trim().is_empty() { "the tool failed without a message".to_owned() } else { text.clone() };
        return ToolResult::failed_with(message, ToolError::failed(bound::one_line(&text, 500)));
    }
    ToolResult::ok(if text.is_empty() { "[done, no result]".to_owned() } else { text })
}

fn block(block: &ContentBlock) -> String {
    match block {
        ContentBlock::Text(text) => text.text.clone(),
        ContentBlock::Image(image) => format!("[an image, {}, not shown]", image.mime_type),
        ContentBlock::Audio(audio) => format!("[a sound, {}, not played]", audio.mime_type),
        ContentBlock::Resource(resource) => match &resource.resource {
            ResourceContents::TextResourceContents { uri, text, .. } => format!("[resource {uri}]\n{text}"),
            ResourceContents::BlobResourceContents { uri, mime_type, .. } => {
                format!("[resource {uri}, {}, not shown]", mime_type.as_deref().unwrap_or("binary"))
            }
            _ => "[a resource of an unknown kind]".to_owned(),
        },
        ContentBlock::ResourceLink(link) => format!("[resource {}: {}]", link.uri, link.name),
        _ => "[content of an unknown kind]".to_owned(),
    }
}
