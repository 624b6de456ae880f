//! Reasoning in families with other delimiters than `<think>`: opened by the prompt, never closed, partial
//! delimiters.

use super::labelled::{Case, Row, rows};

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = rows(OPENED_BY_THE_PROMPT, true);
    cases.extend(rows(BY_ITSELF, false));
    cases
}

#[rustfmt::skip]
const OPENED_BY_THE_PROMPT: &[Row] = &[
    ("opened by the prompt", "magistral", "Hm.\n[/THINK]\n\nYes.", "think \"Hm.\" text \"Yes.\""),
    ("opened by the prompt, never closed", "magistral", "\nHm. And so on", "think \"Hm. And so on\""),
    ("opened twice", "magistral", "[THINK]Hm.[/THINK]Yes.", "think \"Hm.\" text \"Yes.\""),
    ("no thought at all", "magistral", "[/THINK]Yes.", "text \"Yes.\""),
    ("a call ends what the prompt opened", "magistral", "Look.[TOOL_CALLS]now[ARGS]{}", "think \"Look.\" now({})"),
    ("opened by the prompt", "granite", "Hm.\n\nHere is my response: Yes.", "think \"Hm.\" text \"Yes.\""),
    ("opened by the prompt, never closed", "granite", " Hm. Here is my", "think \"Hm. Here is my\""),
    ("opened by the prompt, between tags", "granite", "\nHm.\n</think>\n<response>Yes.</response>", "think \"Hm.\" text \"Yes.\""),
    ("opened by the prompt", "gemma 4", "\nHm.\n<channel|>Yes.", "think \"Hm.\" text \"Yes.\""),
    ("opened by the prompt, never closed", "gemma 4", "\nHm. And so on", "think \"Hm. And so on\""),
    ("opened by the prompt", "kimi-vl", "Hm.◁/think▷Yes.", "think \"Hm.\" text \"Yes.\""),
    ("opened by the prompt, never closed", "kimi-vl", "Hm. ◁/thin", "think \"Hm. ◁/thin\""),
];

#[rustfmt::skip]
const BY_ITSELF: &[Row] = &[
    ("never closed", "magistral", "[THINK]Hm. And so on", "think \"Hm. And so on\""),
    ("cut short in the mark that closes it", "magistral", "[THINK]Hm.[/THI", "think \"Hm.[/THI\""),
    ("half a mark", "magistral", "[THI and so on", "text \"[THI and so on\""),
    ("a mark right after half of one", "magistral", "[THINK]Hm.[/TH[/THINK]Yes.", "think \"Hm.[/TH\" text \"Yes.\""),
    ("a thought in the middle is text", "magistral", "The [THINK] tag", "text \"The [THINK] tag\""),
    ("another family's marks are text", "magistral", "<think>Hm.</think>", "text \"<think>Hm.</think>\""),
    ("a call ends what was not closed", "magistral", "[THINK]Look.\n[TOOL_CALLS]now[ARGS]{}", "think \"Look.\" now({})"),
    ("the other words for it", "granite", "Here's my thought process: Hm.\n\nHere's my response: Yes.", "think \"Hm.\" text \"Yes.\""),
    ("never closed", "granite", "Here is my thought process: Hm.", "think \"Hm.\""),
    ("cut short in the words that open it", "granite", "Here is my thought proc", "text \"Here is my thought proc\""),
    ("cut short in the words that close it", "granite", "<think>Hm. Here is my resp", "think \"Hm. Here is my resp\""),
    ("thought between tags, and a call", "granite", "<think>\nHm.\n</think>\n<|tool_call|>[{\"name\": \"now\", \"arguments\": {}}]", "think \"Hm.\" now({})"),
    ("never closed", "gemma 4", "<|channel>thought\nHm.", "think \"Hm.\""),
    ("nothing thought", "gemma 4", "<|channel>thought\n<channel|>Yes.", "text \"Yes.\""),
    ("half of what opens it", "gemma 4", "<|channel>though", "text \"<|channel>though\""),
    ("half of what closes it", "gemma 4", "<|channel>thought\nHm. <channel| so", "think \"Hm. <channel| so\""),
    ("another channel is text", "gemma 4", "<|channel>final\nYes.", "text \"<|channel>final\\nYes.\""),
    ("never closed", "kimi-vl", "◁think▷Hm.", "think \"Hm.\""),
    ("half a mark", "kimi-vl", "◁thi and ◁/think▷", "text \"◁thi and ◁/think▷\""),
    ("a thought in the middle is text", "kimi-vl", "The ◁think▷ tag", "text \"The ◁think▷ tag\""),
];
