//! The prompt of a program: a conversation as one text.

use etude_core::model::{Message, Part, Request, Role};

/// Formats the whole conversation. A single message has no heading; several have one each.
pub(super) fn write(request: &Request) -> String {
    let mut blocks = Vec::new();
    blocks.extend(request.system.as_deref().filter(|system| !system.is_empty()).map(ToOwned::to_owned));
    match request.messages.as_slice() {
        [only] => blocks.push(text(only)),
        many => blocks.extend(many.iter().map(|message| format!("## {}\n\n{}", heading(message.role), text(message)))),
    }
    blocks.join("\n\n")
}

fn heading(role: Role) -> &'static str {
    match role {
        Role::User => "User",
        Role::Assistant => "Assistant",
        Role::Tool => "Tool results",
    }
}

fn text(message: &Message) -> String {
    let parts = message.parts.iter().filter_map(|part| match part {
        Part::Text(text) => Some(text.clone()),
        Part::Image { path } => Some(format!("[image file: {path}]")),
        Part::ToolCall { name, arguments, .. } => Some(format!("[call of tool {name}: {arguments}]")),
        Part::ToolResult { content, .. } => Some(content.clone()),
        Part::Reasoning(_) => None,
    });
    parts.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_message_stands_alone_and_several_have_headings() {
        let mut request =
            Request { system: Some("Be brief.".into()), messages: vec![Message::user("hi")], ..Request::default() };
        assert_eq!(write(&request), "Be brief.\n\nhi");
        request.messages.push(Message::assistant("{}"));
        request.messages.push(Message::user("wrong"));
        assert_eq!(write(&request), "Be brief.\n\n## User\n\nhi\n\n## Assistant\n\n{}\n\n## User\n\nwrong");
    }
}
