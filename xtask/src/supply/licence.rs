//! Decides whether a licence expression can be satisfied with the allowed licences.
//!
//! The grammar is that of SPDX: `OR`, `AND`, `WITH` and parentheses, and the older `/` for `OR`.

/// Whether the expression is satisfied. An expression that cannot be parsed is not.
pub(crate) fn satisfied(expression: &str, allowed: &dyn Fn(&str) -> bool) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut reader = Reader { words: &words, allowed };
    reader.any().is_some_and(|satisfied| satisfied && reader.words.is_empty())
}

struct Reader<'a> {
    words: &'a [&'a str],
    allowed: &'a dyn Fn(&str) -> bool,
}

impl Reader<'_> {
    fn next_is(&mut self, word: &str) -> bool {
        let is = self.words.first() == Some(&word);
        if is {
            self.words = &self.words[1..];
        }
        is
    }

    fn any(&mut self) -> Option<bool> {
        let mut satisfied = self.all()?;
        while self.next_is("OR") {
            satisfied |= self.all()?;
        }
        Some(satisfied)
    }

    fn all(&mut self) -> Option<bool> {
        let mut satisfied = self.one()?;
        while self.next_is("AND") {
            satisfied &= self.one()?;
        }
        Some(satisfied)
    }

    fn one(&mut self) -> Option<bool> {
        if self.next_is("(") {
            let inside = self.any()?;
            return self.next_is(")").then_some(inside);
        }
        let (id, rest) = self.words.split_first()?;
        if ["OR", "AND", "WITH", ")"].contains(id) {
            return None;
        }
        self.words = rest;
        if !self.next_is("WITH") {
            return Some((self.allowed)(id));
        }
        let (exception, rest) = self.words.split_first()?;
        self.words = rest;
        Some((self.allowed)(&format!("{id} WITH {exception}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(expression: &str) -> bool {
        satisfied(expression, &|id| ["MIT", "ISC"].contains(&id))
    }

    #[test]
    fn one_of_several_is_enough_and_all_of_several_are_needed() {
        for good in [
            "MIT",
            "MIT OR GPL-3.0",
            "GPL-3.0/MIT",
            "GPL-3.0 / MIT",
            "MIT AND ISC",
            "(X OR MIT) AND ISC",
        ] {
            assert!(check(good), "{good}");
        }
        for bad in
            ["GPL-3.0", "MIT AND GPL-3.0", "MIT WITH X", "(X OR MIT) AND Y", "X OR MIT AND Y"]
        {
            assert!(!check(bad), "{bad}");
        }
    }

    #[test]
    fn what_cannot_be_parsed_is_not_satisfied() {
        for bad in ["", "MIT MIT", "MIT OR", "OR MIT", "(MIT", "MIT)", "()", "MIT WITH"] {
            assert!(!check(bad), "{bad}");
        }
    }
}
