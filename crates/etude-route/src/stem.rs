//! Light stem for English words. Words of other languages pass almost unchanged.

/// Words that reveal little about the task. They have a low weight.
const STOP: &[&str] = &[
    "a", "about", "again", "all", "also", "am", "an", "and", "any", "are", "as", "at", "be", "been", "but", "by",
    "can", "cant", "could", "did", "do", "does", "dont", "for", "from", "get", "give", "go", "got", "had", "has",
    "have", "hello", "help", "hey", "hi", "how", "hows", "i", "id", "if", "ill", "im", "in", "into", "is", "isnt",
    "it", "its", "ive", "just", "know", "let", "lets", "like", "me", "more", "much", "my", "need", "now", "of", "off",
    "on", "one", "or", "our", "out", "over", "please", "should", "so", "some", "tell", "than", "thank", "thanks",
    "that", "thats", "the", "them", "then", "there", "these", "they", "this", "those", "to", "too", "up", "us", "use",
    "want", "was", "we", "were", "what", "whats", "when", "where", "wheres", "which", "who", "whos", "why", "will",
    "with", "would", "you", "your", "的", "了", "吗", "呢", "吧", "我", "你", "请", "是", "在", "把", "给", "一", "下",
    "这", "那", "个", "么", "什", "の", "を", "は", "が", "に", "で", "て", "と", "も",
];

/// True if a folded word is on the short stop list.
pub(crate) fn is_stop(word: &str) -> bool {
    STOP.contains(&word)
}

/// Stem of a folded word, without plural, `-ing`, `-ed`, `-ly` and a final `e`.
pub(crate) fn stem(word: &str) -> String {
    if word.len() < 4 || !word.bytes().all(|b| b.is_ascii_lowercase()) {
        return word.to_owned();
    }
    let mut out = plural(word);
    for ending in ["ing", "ed", "ly", "er"] {
        if let Some(rest) = out.strip_suffix(ending)
            && rest.len() >= 3
            && rest.bytes().any(|b| b"aeiouy".contains(&b))
        {
            out = undoubled(rest);
            break;
        }
    }
    if out.len() > 3 && out.ends_with('e') {
        out.pop();
    }
    if out.len() > 3 && out.ends_with('y') {
        out.pop();
        out.push('i');
    }
    out
}

fn plural(word: &str) -> String {
    if let Some(rest) = word.strip_suffix("ies") {
        return format!("{rest}y");
    }
    for ending in ["sses", "shes", "ches", "xes"] {
        if word.ends_with(ending) {
            return word[..word.len() - 2].to_owned();
        }
    }
    if word.ends_with('s') && !word.ends_with("ss") && !word.ends_with("us") && !word.ends_with("is") {
        return word[..word.len() - 1].to_owned();
    }
    word.to_owned()
}

fn undoubled(word: &str) -> String {
    let bytes = word.as_bytes();
    let n = bytes.len();
    if n > 3 && bytes[n - 1] == bytes[n - 2] && !b"lsz".contains(&bytes[n - 1]) {
        return word[..n - 1].to_owned();
    }
    word.to_owned()
}
