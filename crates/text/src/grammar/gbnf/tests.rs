//! Errors of the syntax, and which texts become terminals.

use super::*;

/// Terminals of a translation, single characters left out.
fn terminals(text: &str) -> Vec<String> {
    let lark = to_lark(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    let regexes = lark.lines().filter(|line| line.starts_with('T'));
    let regexes = regexes.map(|line| line.split_once(": ").expect("a terminal").1.to_owned());
    let is_class = |regex: &String| {
        regex.starts_with("/[") && regex.matches('[').count() == 1 && regex.ends_with("]/")
    };
    regexes.filter(|regex| !is_class(regex)).collect()
}

#[test]
fn language_is_recognized_by_its_first_rule() {
    for (text, want) in [
        ("root ::= \"a\"", true),
        ("# comment\n\n  root  ::= x\nx ::= \"\"", true),
        ("start: \"::=\"", false),
        ("// root ::= \"a\"\nstart: \"a\"", false),
        ("", false),
        ("::= \"a\"", false),
    ] {
        assert_eq!(is_gbnf(text), want, "{text}");
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of errors")]
fn error_has_line_and_column() {
    let deep = format!("root ::= {}\"a\"", "(".repeat(GBNF_DEPTH_MAX + 1));
    let rules: String = (0..=GBNF_RULES_MAX)
        .map(|i| format!("r{i} ::= \"a\"\n"))
        .collect();
    for (text, want) in [
        (
            "root ::= \"a",
            "line 1, column 10: the literal has no closing",
        ),
        (
            "root ::= \"a\nb\"",
            "line 1, column 10: the literal has no closing",
        ),
        ("root ::= [a", "line 1, column 10: the class has no closing"),
        (
            "root ::= []",
            "line 1, column 10: the class has no character",
        ),
        (
            "root ::= [z-a]",
            "line 1, column 11: the range 'z' to 'a' is empty",
        ),
        (
            "root ::= (\"a\"",
            "line 1, column 14: expected \")\", found the end",
        ),
        (
            "root ::= \"a\")",
            "line 1, column 13: expected the end of the line, found ')'",
        ),
        ("root := \"a\"", "line 1, column 7: expected \"::=\""),
        (
            "root ::= \"a\"\n\n= x",
            "line 3, column 1: expected a rule's name, found '='",
        ),
        ("root ::= \"\\q\"", "line 1, column 11: unknown escape \\q"),
        (
            "root ::= \"\\x4\"",
            "line 1, column 11: \\x needs 2 hexadecimal digits",
        ),
        (
            "root ::= \"\\uD800\"",
            "line 1, column 11: \\u needs 4 hexadecimal digits",
        ),
        (
            "root ::= \"a\"{",
            "line 1, column 14: expected a number of repetitions",
        ),
        ("root ::= \"a\"{3,2}", "maximum is less than its minimum"),
        (
            "root ::= \"a\"{2001}",
            "line 1, column 14: 2001 repetitions; at most 2000 (GBNF_REPEAT_MAX)",
        ),
        (
            "root ::= \"a\"{2",
            "line 1, column 15: expected \"}\", found the end",
        ),
        (
            "root ::= x\n",
            "line 1, column 10: rule \"x\" is not defined",
        ),
        (
            "root ::= \"a\"\nroot ::= \"b\"",
            "line 2, column 1: rule \"root\" is defined twice",
        ),
        ("x ::= \"a\"", "has no rule \"root\""),
        ("root ::= <think>", "token references"),
        (&deep, "nested more than 128 (GBNF_DEPTH_MAX)"),
        (&rules, "more than 1024 (GBNF_RULES_MAX) rules"),
    ] {
        let error = to_lark(text).expect_err(want);
        assert!(error.why.contains(want), "{text}: {error}");
    }
}

#[test]
fn left_recursion_is_rejected_with_the_rule() {
    for (text, rule) in [
        ("root ::= root \"a\" | \"b\"", "root"),
        ("root ::= x\nx ::= y \"a\"\ny ::= x | \"b\"", "x"),
        ("root ::= ws root | \"a\"\nws ::= \" \"*", "root"),
        ("root ::= (\"a\"? root)+", "root"),
    ] {
        let error = to_lark(text).expect_err(rule);
        let want = format!("rule {rule:?} is left-recursive");
        assert!(error.why.contains(&want), "{text}: {error}");
    }
    to_lark("root ::= \"a\" root | \"b\"").expect("right recursion is fine");
}

#[test]
fn repetitions_and_literals_are_terminals_where_the_longest_match_is_right() {
    for (label, text, want) in [
        ("a literal", "root ::= \"abc\"", 1),
        (
            "literals with different ends",
            "root ::= \"true\" | \"false\" | \"tree\"",
            3,
        ),
        (
            "the beginning of another one, and the rest",
            "root ::= (\"ab\" | \"abc\") \"c\"",
            0,
        ),
        (
            "the beginning of another one, and something else",
            "root ::= (\"ab\" | \"abc\") \"d\"",
            2,
        ),
        ("a string", "root ::= \"\\\"\" [^\"\\\\]* \"\\\"\"", 1),
        ("letters before a letter", "root ::= [a-z]* \"z\"", 0),
        ("letters before a digit", "root ::= [a-z]+ [0-9]", 1),
        (
            "a rule in a repetition",
            "root ::= \"\\\"\" char* \"\\\"\"\nchar ::= [^\"\\\\] | \"\\\\\" [nt]",
            1,
        ),
        (
            "a recursive rule in a repetition",
            "root ::= (\"[[\" root \"]\")*",
            1,
        ),
    ] {
        assert_eq!(
            terminals(text).len(),
            want,
            "{label}: {:?}",
            terminals(text)
        );
    }
}

#[test]
fn work_for_a_grammar_is_bounded() {
    let choices: Vec<String> = (0..900)
        .map(|i| format!("\"k{i:03}\"* [x-z]{{0,200}}"))
        .collect();
    let text = format!("root ::= {}", choices.join(" | "));
    let error = to_lark(&text).expect_err("too much");
    assert!(error.why.contains("_MAX"), "{error}");
    let long = format!("root ::= \"{}\"", "a".repeat(5000));
    let error = to_lark(&long).expect_err("too long");
    assert!(error.why.contains("GBNF_TERMINALS_MAX"), "{error}");
}
