//! Prompts: the skills of the apps.

use serde_json::{Value, json};

use crate::api::Skill;
use crate::service::Service;
use crate::wire::{Params, RpcError};

/// The skills by name, each name once.
async fn skills(service: &Service) -> Vec<Skill> {
    let mut skills = service.api.skills().await;
    skills.sort_by(|a, b| (&a.name, &a.app).cmp(&(&b.name, &b.app)));
    skills.dedup_by(|a, b| a.name == b.name);
    skills
}

/// `prompts/list`.
pub(crate) async fn list(service: &Service) -> Value {
    let document = |skill: &Skill| json!({"name": skill.name, "description": skill.description});
    skills(service).await.iter().map(document).collect()
}

/// `prompts/get`: the text of a skill.
pub(crate) async fn get(service: &Service, params: &Params) -> Result<Value, RpcError> {
    let name = params.text("name")?;
    let unknown = || RpcError::params(format!("there is no prompt `{name}`"));
    let skill = skills(service).await.into_iter().find(|skill| skill.name == name).ok_or_else(unknown)?;
    let text = service.api.skill(&skill).await.ok_or_else(unknown)?;
    let message = json!({"role": "user", "content": {"type": "text", "text": text}});
    Ok(json!({"description": skill.description, "messages": [message]}))
}
