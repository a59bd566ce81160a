//! The vocabulary: conversion between text and tokens, and the data that the grammar needs.

use std::sync::{Arc, LazyLock};

use candle_core::quantized::gguf_file::Value;
use candle_core::quantized::tokenizer::TokenizerFromGguf;
use llguidance::toktrie::{TokEnv, TokRxInfo, TokTrie, TokenId, TokenizerEnv};
use tokenizers::Tokenizer;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::sequence::Sequence;

use crate::gguf::Gguf;
use crate::template::{CALL_END, CALL_START, Piece};

/// The type of control tokens, which end turns and messages and never come from text.
const CONTROL: i64 = 3;
/// The type of unused tokens.
const UNUSED: i64 = 5;

/// The tokens of a model. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Vocabulary {
    tokens: Arc<Tokens>,
    environment: TokEnv,
}

struct Tokens {
    tokenizer: Tokenizer,
    trie: TokTrie,
    /// The tokens of the marks of a tool call, if the model has them.
    marks: Vec<(&'static str, TokenId)>,
    /// The tokens that end a response.
    ends: Vec<TokenId>,
}

impl Vocabulary {
    /// Reads the tokens of `gguf`.
    ///
    /// # Errors
    /// The missing part of the file, as a sentence fragment.
    pub(crate) fn load(gguf: &Gguf) -> Result<Self, String> {
        let mut tokenizer = Tokenizer::from_gguf(gguf.content()).map_err(|error| error.to_string())?;
        spell(&mut tokenizer, gguf.text("tokenizer.ggml.pre").unwrap_or_default());
        // Without this, the text of a user could contain the end of their own turn.
        tokenizer.set_encode_special_tokens(true);
        let names = names(gguf)?;
        let end = gguf.number("tokenizer.ggml.eos_token_id").and_then(|id| u32::try_from(id).ok());
        let end = end.ok_or("it has no end-of-sequence token")?;
        let id = |name: &str| names.iter().position(|(known, _)| known == name).and_then(|id| u32::try_from(id).ok());
        let marks = [CALL_START, CALL_END].into_iter().filter_map(|mark| Some((mark, id(mark)?))).collect();
        let ends = [Some(end), id("<|im_end|>"), id("<|endoftext|>")].into_iter().flatten().collect();
        let words: Vec<Vec<u8>> = names.iter().map(|(name, kind)| bytes_of(name, *kind)).collect();
        let size = u32::try_from(words.len()).map_err(|_| "it has too many tokens".to_owned())?;
        let trie = TokTrie::from(&TokRxInfo::new(size, end), &words);
        Ok(Self::from(Tokens { tokenizer, trie, marks, ends }))
    }

    fn from(tokens: Tokens) -> Self {
        let tokens = Arc::new(tokens);
        Self { environment: Arc::new(Environment(Arc::clone(&tokens))), tokens }
    }

    /// The token environment of the grammar.
    pub(crate) fn environment(&self) -> &TokEnv {
        &self.environment
    }

    /// True if `token` ends a response.
    pub(crate) fn is_end(&self, token: TokenId) -> bool {
        self.tokens.ends.contains(&token)
    }

    /// The tokens of a rendered conversation.
    pub(crate) fn encode(&self, pieces: &[Piece]) -> Vec<TokenId> {
        let mut all = Vec::new();
        for piece in pieces {
            match piece {
                Piece::Text(text) => all.extend(self.tokens.encode(text)),
                Piece::Mark(mark) => match self.tokens.special(mark) {
                    Some(id) => all.push(id),
                    None => all.extend(self.tokens.encode(mark)),
                },
            }
        }
        all
    }

    /// The tokens of a text whose marks of tool calls count as marks.
    pub(crate) fn encode_marked(&self, text: &str) -> Vec<TokenId> {
        self.tokens.encode_marked(text)
    }

    /// The bytes of one token; empty for control tokens.
    pub(crate) fn bytes(&self, token: TokenId) -> &[u8] {
        let bytes = self.tokens.trie.token(token);
        if bytes.first() == Some(&TokTrie::SPECIAL_TOKEN_MARKER) { &[] } else { bytes }
    }
}

impl Tokens {
    fn special(&self, mark: &str) -> Option<TokenId> {
        let known = self.marks.iter().find(|(known, _)| *known == mark);
        known.map(|(_, id)| *id).or_else(|| self.tokenizer.token_to_id(mark))
    }

    fn encode(&self, text: &str) -> Vec<TokenId> {
        // Encoding fails only with a faulty normalizer; encoding byte by byte is correct even then, if slow.
        match self.tokenizer.encode_fast(text, false) {
            Ok(encoding) => encoding.get_ids().to_vec(),
            Err(_) => self.trie.greedy_tokenize(text.as_bytes()),
        }
    }

    fn encode_marked(&self, text: &str) -> Vec<TokenId> {
        let mut all = Vec::new();
        let mut rest = text;
        while let Some((at, mark, id)) =
            self.marks.iter().filter_map(|(mark, id)| Some((rest.find(mark)?, *mark, *id))).min()
        {
            all.extend(self.encode(&rest[..at]));
            all.push(id);
            rest = &rest[at + mark.len()..];
        }
        all.extend(self.encode(rest));
        all
    }
}

/// Corrects the pre-tokenizer if candle does not know its name: otherwise it would put a space before everything, and the grammar
/// would force tokens that begin with a space.
fn spell(tokenizer: &mut Tokenizer, way: &str) {
    let bytes = ByteLevel::new(false, true, true);
    match way {
        "qwen2" | "llama3" | "smaug-bpe" | "lfm2" => {}
        "smollm" => {
            let parts = vec![Digits::new(true).into(), bytes.into()];
            tokenizer.with_pre_tokenizer(Some(Sequence::new(parts)));
        }
        _ => {
            tokenizer.with_pre_tokenizer(Some(bytes));
        }
    }
}

struct Environment(Arc<Tokens>);

impl TokenizerEnv for Environment {
    fn tok_trie(&self) -> &TokTrie {
        &self.0.trie
    }

    fn tokenize_bytes(&self, bytes: &[u8]) -> Vec<TokenId> {
        self.0.trie.tokenize_with_greedy_fallback(bytes, |text| self.0.encode_marked(text))
    }
}

/// Every token with its type.
fn names(gguf: &Gguf) -> Result<Vec<(String, i64)>, String> {
    let array = |key: &str| match gguf.content().metadata.get(key) {
        Some(Value::Array(values)) => Ok(values),
        _ => Err(format!("`{key}` is missing")),
    };
    let kinds = array("tokenizer.ggml.token_type")?;
    let names = array("tokenizer.ggml.tokens")?;
    let kind = |at: usize| match kinds.get(at) {
        Some(Value::I32(kind)) => i64::from(*kind),
        Some(Value::U32(kind)) => i64::from(*kind),
        _ => 1,
    };
    let name = |value: &Value| value.to_string().cloned().map_err(|_| "a token is not a text".to_owned());
    names.iter().enumerate().map(|(at, value)| Ok((name(value)?, kind(at)))).collect()
}

/// The bytes of a token. Control tokens begin with a marker that no text contains.
fn bytes_of(name: &str, kind: i64) -> Vec<u8> {
    let is_call_mark = [CALL_START, CALL_END].contains(&name);
    if is_call_mark {
        return name.as_bytes().to_vec();
    }
    if (CONTROL..=UNUSED).contains(&kind) {
        return [&[TokTrie::SPECIAL_TOKEN_MARKER], name.as_bytes()].concat();
    }
    match name.chars().map(byte_of).collect::<Option<Vec<u8>>>() {
        Some(bytes) => bytes,
        None => name.as_bytes().to_vec(),
    }
}

/// The byte for a character of the byte-level alphabet: printable bytes map to themselves, the others to characters from U+0100
/// on, in order.
fn byte_of(c: char) -> Option<u8> {
    const fn is_itself(byte: u8) -> bool {
        matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff)
    }
    let code = u32::from(c);
    match u8::try_from(code) {
        Ok(byte) => is_itself(byte).then_some(byte),
        Err(_) => {
            static OTHERS: LazyLock<Vec<u8>> =
                LazyLock::new(|| (0..=u8::MAX).filter(|byte| !is_itself(*byte)).collect());
            OTHERS.get(usize::try_from(code.checked_sub(0x100)?).ok()?).copied()
        }
    }
}

#[cfg(test)]
pub(crate) mod testing {
    use tokenizers::models::bpe::Vocab;

    use super::*;

    /// A vocabulary with one token per byte, and the marks of a conversation.
    pub(crate) fn bytewise() -> Vocabulary {
        let mut words: Vec<Vec<u8>> = (0..=u8::MAX).map(|byte| vec![byte]).collect();
        words.push(CALL_START.into());
        words.push(CALL_END.into());
        words.push(b"\xff<|im_end|>".to_vec());
        let trie = TokTrie::from(&TokRxInfo::new(259, 258), &words);
        let marks = vec![(CALL_START, 256), (CALL_END, 257)];
        let letters = (0..0x200).filter_map(char::from_u32);
        let letters = letters.filter_map(|c| Some((c.to_string(), u32::from(byte_of(c)?))));
        let bpe = tokenizers::models::bpe::BPE::builder().vocab_and_merges(letters.collect::<Vocab>(), vec![]);
        let mut tokenizer = Tokenizer::new(bpe.build().expect("a model"));
        tokenizer.with_pre_tokenizer(Some(ByteLevel::new(false, false, false)));
        Vocabulary::from(Tokens { tokenizer, trie, marks, ends: vec![258] })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_has_exactly_one_character() {
        let mut seen: Vec<u8> = (0..0x200).filter_map(char::from_u32).filter_map(byte_of).collect();
        seen.sort_unstable();
        assert_eq!(seen, (0..=u8::MAX).collect::<Vec<u8>>());
        assert_eq!(byte_of('Ġ'), Some(b' '));
        assert_eq!(byte_of('Ċ'), Some(b'\n'));
    }

    #[test]
    fn nothing_is_put_before_a_text_and_smollm_divides_numbers() {
        let vocabulary = testing::bytewise();
        for way in ["smollm", "gpt-2"] {
            let mut tokenizer = vocabulary.tokens.tokenizer.clone();
            spell(&mut tokenizer, way);
            let ids = tokenizer.encode_fast("a12", false).expect("tokens").get_ids().to_vec();
            assert_eq!(ids, [97, 49, 50], "{way}");
        }
    }

    #[test]
    fn marks_of_calls_are_one_token_where_they_are_meant_and_text_elsewhere() {
        let vocabulary = testing::bytewise();
        assert_eq!(vocabulary.encode_marked("a<tool_call>é</tool_call>"), [97, 256, 0xc3, 0xa9, 257]);
        let pieces = [Piece::Mark(CALL_START), Piece::Text("<tool_call>".into())];
        assert_eq!(vocabulary.encode(&pieces).len(), 1 + CALL_START.len());
    }

    #[test]
    fn control_tokens_cannot_be_written_as_text_but_marks_of_calls_can() {
        assert_eq!(bytes_of("<|im_end|>", CONTROL)[0], TokTrie::SPECIAL_TOKEN_MARKER);
        assert_eq!(bytes_of(CALL_START, 4), CALL_START.as_bytes());
        assert_eq!(bytes_of("Ġthe", 1), b" the");
    }
}
