//! GBNF: texts under random grammars against a matcher written from the definition, and constructs of llama.cpp's
//! grammars.
//!
//! Promise (Structured output): texts under GBNF grammars agree with a matcher written from the definition: 150
//! grammars at random, and the constructs of llama.cpp's examples; errors have line and column.
//! Also held by `text/src/grammar/gbnf/tests.rs`.

use super::{compiler, rng};
use proptest::prelude::Rng;
use proptest::test_runner::TestRng;
use std::collections::BTreeSet;
use text::{GrammarCompiler, GrammarSource};

/// A part of a grammar.
#[derive(Clone, Debug)]
enum Form {
    Text(String),
    OneOf(Vec<char>),
    NoneOf(Vec<char>),
    Rule(usize),
    Then(Vec<Form>),
    Or(Vec<Form>),
    Times(Box<Form>, usize, Option<usize>),
}

impl Form {
    fn write(&self, out: &mut String) {
        match self {
            Self::Text(text) => out.push_str(&format!("{text:?}")),
            Self::OneOf(chars) => out.push_str(&format!("[{}]", String::from_iter(chars))),
            Self::NoneOf(chars) => out.push_str(&format!("[^{}]", String::from_iter(chars))),
            Self::Rule(rule) => out.push_str(&format!("rule-{rule}")),
            Self::Then(parts) => write_all(parts, " ", out),
            Self::Or(parts) => write_all(parts, " | ", out),
            Self::Times(part, min, max) => {
                out.push('(');
                part.write(out);
                out.push_str(&match (min, max) {
                    (0, None) => ")*".to_owned(),
                    (1, None) => ")+".to_owned(),
                    (0, Some(1)) => ")?".to_owned(),
                    (min, None) => format!("){{{min},}}"),
                    (min, Some(max)) if min == max => format!("){{{min}}}"),
                    (min, Some(max)) => format!("){{{min},{max}}}"),
                });
            }
        }
    }

    /// All places where a text of the form that begins at `from` may end.
    fn ends(&self, rules: &[Form], text: &[char], from: usize) -> BTreeSet<usize> {
        let one = |holds: bool| holds.then_some(from + 1).into_iter().collect();
        match self {
            Self::Text(want) => {
                let want: Vec<char> = want.chars().collect();
                let is_here = text[from..].starts_with(&want);
                is_here.then_some(from + want.len()).into_iter().collect()
            }
            Self::OneOf(chars) => one(text.get(from).is_some_and(|char| chars.contains(char))),
            Self::NoneOf(chars) => one(text.get(from).is_some_and(|char| !chars.contains(char))),
            Self::Rule(rule) => rules[*rule].ends(rules, text, from),
            Self::Or(parts) => {
                let ends = parts.iter().flat_map(|part| part.ends(rules, text, from));
                ends.collect()
            }
            Self::Then(parts) => parts.iter().fold(BTreeSet::from([from]), |ends, part| {
                let ends = ends.into_iter().flat_map(|end| part.ends(rules, text, end));
                ends.collect()
            }),
            Self::Times(part, min, max) => {
                let (mut now, mut all) = (BTreeSet::from([from]), BTreeSet::new());
                // More rounds than characters add nothing.
                for round in 0..=max.unwrap_or(min + text.len() + 1) {
                    if round >= *min {
                        all.extend(&now);
                    }
                    let next = now.iter().flat_map(|&end| part.ends(rules, text, end));
                    now = next.collect();
                }
                all
            }
        }
    }
}

fn write_all(parts: &[Form], between: &str, out: &mut String) {
    out.push('(');
    for (i, part) in parts.iter().enumerate() {
        out.push_str(if i == 0 { "" } else { between });
        part.write(out);
    }
    out.push(')');
}

fn below(rng: &mut TestRng, bound: u32) -> usize {
    (rng.next_u32() % bound) as usize
}

fn letters(rng: &mut TestRng, least: usize) -> Vec<char> {
    let count = least + below(rng, 3);
    (0..count).map(|_| ['a', 'b', 'c'][below(rng, 3)]).collect()
}

/// A random form; rules before `rules` may be in it, so that no rule contains itself.
fn form(rng: &mut TestRng, depth: usize, rules: usize) -> Form {
    let kinds = if depth == 0 { 4 } else { 7 };
    match below(rng, kinds) {
        0 => Form::Text(String::from_iter(letters(rng, 1))),
        1 => Form::OneOf(letters(rng, 1)),
        2 => Form::NoneOf(letters(rng, 1)),
        3 if rules > 0 => Form::Rule(below(rng, rules as u32)),
        3 => Form::Text("ab".to_owned()),
        4 => Form::Then(
            (0..=below(rng, 3))
                .map(|_| form(rng, depth - 1, rules))
                .collect(),
        ),
        5 => Form::Or(
            (0..=below(rng, 3))
                .map(|_| form(rng, depth - 1, rules))
                .collect(),
        ),
        _ => {
            let min = below(rng, 3);
            let max = (below(rng, 2) == 0).then(|| min + below(rng, 3));
            Form::Times(Box::new(form(rng, depth - 1, rules)), min, max)
        }
    }
}

/// Whether a text is an answer under a grammar; `None`: the grammar allows no answer.
fn accepts(compiler: &GrammarCompiler, grammar: &str, texts: &[Vec<char>]) -> Option<Vec<bool>> {
    let compiled = compiler.compile(&GrammarSource::Lark(grammar.to_owned()));
    let grammar = match compiled {
        Ok(compiled) => compiled,
        Err(error) if error.why.contains("allows no answer") => return None,
        Err(error) => panic!("{grammar}\n{error}"),
    };
    let accepts = |text: &Vec<char>| {
        let mut matcher = grammar.matcher();
        let bytes = String::from_iter(text).into_bytes();
        bytes
            .iter()
            .all(|&byte| matcher.accept(byte.into()).is_ok())
            && matcher.is_accepting()
    };
    Some(texts.iter().map(accepts).collect())
}

#[test]
fn texts_under_random_grammars_agree_with_the_definition() {
    let ((_, compiler), mut rng) = (compiler(), rng(7));
    let (mut accepted, mut rejected) = (0, 0);
    for round in 0..150 {
        let rules: Vec<Form> = (0..4).map(|rule| form(&mut rng, 3, rule)).collect();
        let mut grammar = String::from("root ::= rule-3\n");
        for (number, rule) in rules.iter().enumerate() {
            grammar.push_str(&format!("rule-{number} ::= "));
            rule.write(&mut grammar);
            grammar.push_str(" # comment\n");
        }
        let texts: Vec<Vec<char>> = (0..40)
            .map(|_| {
                let length = 1 + below(&mut rng, 7);
                (0..length)
                    .map(|_| ['a', 'b', 'c', 'ä'][below(&mut rng, 4).min(3)])
                    .collect()
            })
            .collect();
        let Some(found) = accepts(&compiler, &grammar, &texts) else {
            continue;
        };
        for (text, found) in texts.iter().zip(found) {
            let want = rules[3].ends(&rules, text, 0).contains(&text.len());
            assert_eq!(found, want, "round {round}: {text:?} under\n{grammar}");
            *(if want { &mut accepted } else { &mut rejected }) += 1;
        }
    }
    assert!(
        accepted > 300 && rejected > 300,
        "{accepted} and {rejected}"
    );
}

/// Grammars with the constructs of llama.cpp's examples, each with texts that are answers and texts that are none.
const EXAMPLES: &[(&str, &[&str], &[&str])] = &[
    (
        // Recursion, escapes in classes, counted digits, optional parts over several lines.
        "root   ::= object\n\
         value  ::= object | array | string | number | (\"true\" | \"false\" | \"null\") ws\n\
         object ::=\n  \"{\" ws (\n            string \":\" ws value\n    (\",\" ws string \":\" ws value)*\n  )? \"}\" ws\n\
         array  ::=\n  \"[\" ws (\n            value\n    (\",\" ws value)*\n  )? \"]\" ws\n\
         string ::=\n  \"\\\"\" (\n    [^\"\\\\\\x7F\\x00-\\x1F] |\n    \"\\\\\" ([\"\\\\bfnrt] | \"u\" [0-9a-fA-F]{4})\n  )* \"\\\"\" ws\n\
         number ::= (\"-\"? ([0-9] | [1-9] [0-9]{0,15})) (\".\" [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws\n\
         # Optional space: by convention, applied after literals\n\
         ws ::= | \" \" | \"\\n\" [ \\t]{0,20}\n",
        &[
            "{}",
            "{\"a\": 1}",
            "{ \"k\\\"ä\\u00e4\":[1,-2.5e+1,true , null],\"o\":{}}",
            "{\"n\":\n\t\t 0}",
        ],
        &[
            "",
            "{",
            "[]",
            "{\"a\"}",
            "{\"a\": 01x}",
            "{\"a\":  1}",
            "{\"a\":\"\t\"}",
        ],
    ),
    (
        "root  ::= (expr \"=\" ws term \"\\n\")+\n\
         expr  ::= term ([-+*/] term)*\n\
         term  ::= ident | num | \"(\" ws expr \")\" ws\n\
         ident ::= [a-z] [a-z0-9_]* ws\n\
         num   ::= [0-9]+ ws\n\
         ws    ::= [ \\t\\n]*\n",
        &["a+1= b\n", "(x_1*(2))=3\n\n", "a=b\nc=d\n"],
        &["a+=b\n", "a=b", "1a=b\n", "A=b\n"],
    ),
    (
        "root ::= item+\nitem ::= \"- \" [^\\r\\n\\x0b\\x0c\\x85\\u2028\\u2029]+ \"\\n\"\n",
        &["- milk\n", "- a\n- \u{20ac}\n"],
        &["- \n", "- a", "-a\n", "- a\u{2028}\n"],
    ),
    (
        "root ::= \"1. \" move \" \" move \"\\n\" ([1-9] [0-9]? \". \" move \" \" move \"\\n\")+\n\
         move ::= (pawn | nonpawn | castle) [+#]?\n\
         nonpawn ::= [NBKQR] [a-h]? [1-8]? \"x\"? [a-h] [1-8]\n\
         pawn ::= ([a-h] \"x\")? [a-h] [1-8] (\"=\" [NBKQR])?\n\
         castle ::= \"O-O\" \"-O\"?\n",
        &["1. e4 e5\n2. Nf3 Nc6\n", "1. exd5 O-O-O+\n12. Nbd7 a8=Q#\n"],
        &[
            "1. e4 e5\n",
            "1. e9 e5\n2. a1 a2\n",
            "1. O-O-O-O e5\n2. a1 a2\n",
        ],
    ),
    (
        "root ::= jp-char+ ([ \\t\\n] jp-char+)*\njp-char ::= hiragana | katakana | [\u{4e00}-\u{9fff}]\n\
         hiragana ::= [\u{3041}-\u{309f}]\nkatakana ::= [\\u30A1-\\U000030FF]\n",
        &["\u{3042}", "\u{65e5}\u{672c} \u{30a2}"],
        &["a", "\u{3042}  \u{3042}", " "],
    ),
    (
        "root ::= a | b.\na ::= \"x\" a \"y\" | \"\"\nb ::= \"z\"{2,3}\n",
        &["xxyy", "xy", "zz\u{e4}", "zzzz"],
        &["xxy", "zz", "zzzzz"],
    ),
];

#[test]
fn constructs_of_llama_cpp_are_understood() {
    let (_, compiler) = compiler();
    for (grammar, good, bad) in EXAMPLES {
        for (texts, want) in [(good, true), (bad, false)] {
            let chars: Vec<Vec<char>> = texts.iter().map(|text| text.chars().collect()).collect();
            let found = accepts(&compiler, grammar, &chars).expect("a grammar");
            for (text, found) in texts.iter().zip(found) {
                assert_eq!(found, want, "{text:?} under\n{grammar}");
            }
        }
    }
}
