//! Positions and lengths of functions.

use super::{is_word, line_of, occurrences};

/// A function with a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function {
    /// Identifier after `fn`.
    pub name: String,
    /// Line of its `fn`, from 1.
    pub line: usize,
    /// Number of lines from there to its closing brace.
    pub lines: usize,
}

/// All functions with a body in `code`, whose comments and strings are already blanked.
pub fn functions(code: &str) -> Vec<Function> {
    occurrences(code, "fn").filter_map(|at| function(code, at)).collect()
}

fn function(code: &str, at: usize) -> Option<Function> {
    let after = code[at + 2..].trim_start();
    let name: String = after.bytes().take_while(|byte| is_word(*byte)).map(char::from).collect();
    if name.is_empty() {
        // The type of a function pointer.
        return None;
    }
    let end = body_end(code.as_bytes(), at)?;
    let line = line_of(code, at);
    Some(Function { name, line, lines: line_of(code, end) - line + 1 })
}

/// Offset of the body's closing brace; `None` if there is no body.
fn body_end(code: &[u8], start: usize) -> Option<usize> {
    let (mut nesting, mut braces) = (0_isize, 0_usize);
    for (at, byte) in code.iter().enumerate().skip(start) {
        match byte {
            b'(' | b'[' => nesting += 1,
            b')' | b']' => nesting -= 1,
            b';' if nesting == 0 && braces == 0 => return None,
            // A brace inside parentheses or brackets of the signature is a constant expression.
            b'{' if nesting == 0 || braces > 0 => braces += 1,
            b'}' if braces == 1 => return Some(at),
            b'}' if braces > 1 => braces -= 1,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_are_measured_and_signatures_without_one_are_not() {
        let code = "trait T {\n    fn a(&self) -> [u8; 2];\n    fn b() {\n        if x { y() }\n    }\n}\ntype F = fn(u8);\nfn c<T>(f: impl Fn() -> T)\nwhere\n    T: Copy,\n{\n}\n";
        let found: Vec<(String, usize, usize)> =
            functions(code).into_iter().map(|f| (f.name, f.line, f.lines)).collect();
        assert_eq!(found, [("b".to_owned(), 3, 3), ("c".to_owned(), 8, 5)]);
    }
}
