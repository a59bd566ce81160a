use super::*;

#[test]
fn ids_of_other_providers_are_made_acceptable_and_stay_distinct() {
    assert_eq!(plain_id("toolu_01-a"), "toolu_01-a");
    for odd in ["call_0~sig+/=", "", &"x".repeat(65)] {
        let plain = plain_id(odd);
        assert!(plain.len() <= 64 && plain.starts_with("call_") && !plain.contains('~'), "{plain}");
    }
    assert_ne!(plain_id("call_0~a"), plain_id("call_0~b"));
    assert_eq!(plain_id("call_0~a"), plain_id("call_0~a"), "a result must find its call");
}

#[test]
fn arguments_that_are_no_object_are_kept_as_text() {
    for (written, expected) in [
        (r#"{"a":1}"#, json!({ "a": 1 })),
        ("", json!({})),
        ("[1]", json!({ "arguments": "[1]" })),
        ("{broken", json!({ "arguments": "{broken" })),
    ] {
        assert_eq!(arguments_object(written), expected);
    }
}

#[test]
fn the_key_of_a_prompt_cache_follows_what_does_not_change() {
    let key = |system: &str, text: &str| {
        let messages = vec![Message::user(text)];
        prompt_cache_key(&Request { system: Some(system.into()), messages, cache_prompt: true, ..Request::default() })
    };
    assert_eq!(key("s", "a"), key("s", "b"));
    assert_ne!(key("s", "a"), key("t", "a"));
    assert_eq!(prompt_cache_key(&Request::default()), None);
}
