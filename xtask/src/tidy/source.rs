//! Splits a Rust file into code, literals and items for tests.
//!
//! This is not a parser: it distinguishes only comments, literals and test items, so that a word in a sentence is
//! never taken for a call.

/// A Rust file split into its parts. Line numbers stay the same.
pub(crate) struct SourceFile {
    code: Vec<char>,
    outside_tests: Vec<char>,
    literals: Vec<Literal>,
    test_modules: Vec<String>,
}

/// The text between the quotes of one literal.
#[derive(Debug, PartialEq)]
pub(crate) struct Literal {
    pub(crate) line: usize,
    pub(crate) text: String,
}

impl SourceFile {
    /// Splits a file.
    pub(crate) fn read(text: &str) -> Self {
        let (code, literals) = blank_words(text);
        let (outside_tests, test_modules) = blank_tests(&code);
        Self { code, outside_tests, literals, test_modules }
    }

    /// The lines with comments and literals blanked, counted from one.
    pub(crate) fn code(&self) -> Vec<(usize, String)> {
        numbered(&self.code)
    }

    /// The lines with test items blanked as well.
    pub(crate) fn outside_tests(&self) -> Vec<(usize, String)> {
        numbered(&self.outside_tests)
    }

    /// Every string literal.
    pub(crate) fn literals(&self) -> &[Literal] {
        &self.literals
    }

    /// The modules that are declared only for tests and whose text is in another file.
    pub(crate) fn test_modules(&self) -> &[String] {
        &self.test_modules
    }
}

/// Whether `word` occurs in `line` on its own, not as part of a longer name.
pub(crate) fn has_word(line: &str, word: &str) -> bool {
    let opens = word.starts_with(is_name);
    let closes = word.ends_with(is_name);
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        !(opens && before.is_some_and(is_name) || closes && after.is_some_and(is_name))
    })
}

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn numbered(chars: &[char]) -> Vec<(usize, String)> {
    let text: String = chars.iter().collect();
    text.lines().enumerate().map(|(index, line)| (index + 1, line.to_owned())).collect()
}

fn blank(chars: &mut [char]) {
    chars.iter_mut().filter(|c| **c != '\n').for_each(|c| *c = ' ');
}

/// Blanks comments and literals, and returns the string literals.
fn blank_words(text: &str) -> (Vec<char>, Vec<Literal>) {
    let mut chars: Vec<char> = text.chars().collect();
    let mut literals = Vec::new();
    let (mut at, mut line) = (0, 1);
    while at < chars.len() {
        let rest = &chars[at..];
        let after_name = at > 0 && is_name(chars[at - 1]);
        let span = match rest {
            ['/', '/', ..] => BlankedSpan::of(line_comment(rest)),
            ['/', '*', ..] => BlankedSpan::of(block_comment(rest)),
            ['"', ..] => BlankedSpan::literal(string(rest), 1, 1),
            ['\'', ..] => BlankedSpan::of(quoted_char(rest)),
            ['r' | 'b' | 'c', ..] if !after_name => raw_string(rest),
            _ => BlankedSpan::of(0),
        };
        let len = span.len.max(1);
        if let Some((open, close)) = span.text {
            let inner = chars[at + open..(at + len).saturating_sub(close).max(at + open)].iter();
            literals.push(Literal { line, text: inner.collect() });
        }
        line += chars[at..at + len].iter().filter(|c| **c == '\n').count();
        if span.len > 0 {
            blank(&mut chars[at..at + len]);
        }
        at += len;
    }
    (chars, literals)
}

/// How many characters to blank, and where the text of a literal is within them.
struct BlankedSpan {
    len: usize,
    text: Option<(usize, usize)>,
}

impl BlankedSpan {
    fn of(len: usize) -> Self {
        Self { len, text: None }
    }

    fn literal(len: usize, open: usize, close: usize) -> Self {
        Self { len, text: Some((open, close)) }
    }
}

fn line_comment(rest: &[char]) -> usize {
    rest.iter().position(|c| *c == '\n').unwrap_or(rest.len())
}

fn block_comment(rest: &[char]) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        match &rest[at..] {
            ['/', '*', ..] => (depth, at) = (depth + 1, at + 2),
            ['*', '/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            return at;
        }
    }
    rest.len()
}

fn string(rest: &[char]) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            '\\' => at += 2,
            '"' => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// The length of a quoted character; 0 for a lifetime.
fn quoted_char(rest: &[char]) -> usize {
    match rest {
        ['\'', '\\', _, more @ ..] => {
            more.iter().position(|c| *c == '\'').map_or(0, |close| close + 4)
        }
        ['\'', _, '\'', ..] => 3,
        _ => 0,
    }
}

/// Matches `r"…"`, `r#"…"#` and the same after `b` or `c`; not a name that begins with these letters.
fn raw_string(rest: &[char]) -> BlankedSpan {
    let prefix = if matches!(rest, ['b' | 'c', 'r', ..]) { 2 } else { 1 };
    if rest[prefix - 1] != 'r' {
        return BlankedSpan::of(0);
    }
    let hashes = rest[prefix..].iter().take_while(|c| **c == '#').count();
    let open = prefix + hashes + 1;
    if rest.get(open - 1) != Some(&'"') {
        return BlankedSpan::of(0);
    }
    let mut close = vec!['"'];
    close.resize(1 + hashes, '#');
    let body = rest[open..].windows(close.len()).position(|window| window == close);
    match body {
        Some(body) => BlankedSpan::literal(open + body + close.len(), open, close.len()),
        None => BlankedSpan::of(rest.len()),
    }
}

/// Blanks every item that exists only for tests, and returns the modules among them that are in other files.
fn blank_tests(code: &[char]) -> (Vec<char>, Vec<String>) {
    let mut chars = code.to_vec();
    let mut modules = Vec::new();
    let mut at = 0;
    while at < chars.len() {
        let inner = matches!(&chars[at..], ['#', '!', '[', ..]);
        if !inner && !matches!(&chars[at..], ['#', '[', ..]) {
            at += 1;
            continue;
        }
        let bracket = at + if inner { 2 } else { 1 };
        let end = bracket + balanced(&chars[bracket..]);
        let attribute: String = chars[bracket..end].iter().filter(|c| !c.is_whitespace()).collect();
        if !for_tests(attribute.trim_start_matches('[').trim_end_matches(']')) {
            at = end;
            continue;
        }
        if inner {
            // The attribute applies to the whole file or module; both mean the rest of the file here.
            blank(&mut chars[at..]);
            break;
        }
        let item_end = end + item(&chars[end..]);
        let text: String = chars[end..item_end].iter().collect();
        if let Some((_, name)) = text.trim_end_matches(';').rsplit_once("mod ")
            && text.ends_with(';')
        {
            modules.push(name.trim().to_owned());
        }
        blank(&mut chars[at..item_end]);
        at = item_end;
    }
    (chars, modules)
}

/// Whether an attribute limits its item to tests.
fn for_tests(attribute: &str) -> bool {
    if attribute == "test" || attribute.ends_with("::test") || attribute == "cfg(test)" {
        return true;
    }
    let Some(all) = attribute.strip_prefix("cfg(all(") else { return false };
    let Some(all) = all.strip_suffix("))") else { return false };
    let mut depth = 0;
    let parts = all.split(|c| {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        depth == 0 && c == ','
    });
    parts.into_iter().any(|part| part == "test")
}

/// The length from an opening bracket to its closing one.
fn balanced(rest: &[char]) -> usize {
    let mut depth = 0;
    for (index, c) in rest.iter().enumerate() {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return index + 1;
        }
    }
    rest.len()
}

/// The length of the item, field, arm or statement that follows an attribute.
fn item(rest: &[char]) -> usize {
    let mut at = 0;
    while at < rest.len() {
        match rest[at] {
            '{' => return at + balanced(&rest[at..]),
            ';' => return at + 1,
            // The end of what encloses a field or an arm.
            '}' | ')' | ']' => return at,
            '(' | '[' => at += balanced(&rest[at..]),
            _ => at += 1,
        }
    }
    rest.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(text: &str) -> String {
        let lines: Vec<String> =
            SourceFile::read(text).code().into_iter().map(|(_, l)| l).collect();
        lines.join("\n")
    }

    fn outside(text: &str) -> String {
        let lines = SourceFile::read(text).outside_tests();
        lines.iter().map(|(_, line)| line.trim()).collect::<Vec<_>>().join("|")
    }

    #[test]
    fn comments_and_literals_are_not_code() {
        assert_eq!(code("a // std\nb").replace(' ', ""), "a\nb");
        assert_eq!(code("a /* x /* std */ y */ b").replace(' ', ""), "ab");
        assert_eq!(code(r#"f("std \" std", 'x', '\'', b"std") + 'a"#).split(' ').count(), 30);
        assert!(!code(r##"f(r#"a " std"#, br"std")"##).contains("std"));
        assert!(!code("f('\\u{41}', '\"', std)").contains("u{41}"));
        assert!(code("fn f<'a>(x: &'a str) { 'l: loop { std } }").contains("std"));
        assert!(code("let r#type = error\"\";").contains("type"));
    }

    #[test]
    fn literals_keep_their_text_and_line() {
        let source = SourceFile::read("a\n(\"one\",\n r#\"two\"#, \"\")");
        let expected = [(2, "one"), (3, "two"), (3, "")]
            .map(|(line, text)| Literal { line, text: text.to_owned() });
        assert_eq!(source.literals(), expected);
    }

    #[test]
    fn test_items_are_left_out_and_the_rest_is_kept() {
        assert_eq!(outside("a;\n#[cfg(test)]\nmod tests { fn f() {} }\nb;"), "a;|||b;");
        assert_eq!(outside("#[cfg(test)]\nextern crate std;\nc;"), "||c;");
        assert_eq!(outside("#[test]\n#[inline]\nfn f() -> [u8; 2] { x }\nd;"), "|||d;");
        assert_eq!(outside("#[cfg(all(test, unix))]\nfn f() {}\ne;"), "||e;");
        assert_eq!(outside("#![cfg(test)]\nfn f() {}"), "|");
    }

    #[test]
    fn items_that_others_have_as_well_are_kept() {
        for attribute in ["cfg(not(test))", "cfg(any(test, unix))", "cfg(mutants)", "derive(Copy)"]
        {
            let text = format!("#[{attribute}] fn f() {{}}");
            assert_eq!(outside(&text), text);
        }
    }

    #[test]
    fn test_modules_in_other_files_are_named() {
        let source =
            SourceFile::read("#[cfg(test)]\npub(crate) mod samples;\n#[cfg(test)] mod t {}");
        assert_eq!(source.test_modules(), ["samples"]);
    }

    #[test]
    fn words_are_whole() {
        assert!(has_word("use std::x", "std") && has_word("(std)", "std"));
        assert!(!has_word("no_std", "std") && !has_word("stdin", "std"));
        assert!(has_word("x.f().g()", "f()") && !has_word("x.ff()", "f()"));
    }
}
