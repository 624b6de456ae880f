//! Table of pre-tokenizers by `tokenizer.ggml.pre`.
//!
//! The regexes come from the models' own `tokenizer.json` files where known, and from the converter
//! (llama.cpp) otherwise. Trailing white space (`\s+(?!\S)|\s+`) is handled by `Cut::Words`.

use super::word_splitter::Cut::{self, Isolate, Thousands, Words, WordsAndBlanks};

/// A pre-tokenizer and related settings.
#[derive(Debug)]
pub(crate) struct PreTokenizer {
    /// Cuts, applied one after the other.
    pub(crate) cuts: &'static [Cut],
    /// Whether a word equal to a token becomes the token even where merging would not lead there.
    pub(crate) ignore_merges: bool,
    /// Whether prompts begin with `bos` unless the file decides.
    pub(crate) add_bos: bool,
}

const GPT2_WORDS: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+";
const LLAMA3_WORDS: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+";
const QWEN2_WORDS: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+";
const QWEN35_WORDS: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+";
const O200K_WORDS: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+";
const YOUTU_WORDS: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+";
const TEKKEN_WORDS: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+";
const KIMI_WORDS: &str = r"\p{Han}+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+";
const DEEPSEEK3_WORDS: &str = r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+"##;
const SPARK_WORDS: &str = r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+|[\r\n]"##;
const BAILING_WORDS: &str =
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]";
const SEED_WORDS: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+";
const UFAKZEKA_WORDS: &str = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+";
const EXAONE_MOE_WORDS: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]";
const MINICPM_WORDS: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+";
const BLOOM_WORDS: &str = r" ?[^(\s|.,!?…。，、।۔،)]+";
const DEEPSEEK_LETTERS: &str = r"\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-\x{1F7D}ᾀ-ᾴᾶ-ᾼ\x{1FBE}ῂ-ῄῆ-ῌῐ-\x{1FD3}ῖ-\x{1FDB}ῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤ\x{2126}ℨ\x{212A}-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+";
const DEEPSEEK_CJK: &str = "[一-龥ࠀ-一가-퟿]+";
const CJK_KANA: &str = "[一-龥぀-ゟ゠-ヿ]+";
const ASIAN: &str = "[一-鿿㐀-䶿豈-﫿぀-ゟ゠-ヿ･-ﾟ⼀-⿟เ-๿຀-໿ក-៿က-႟ꩠ-ꩿꧠ-꧿가-힯ᄀ-ᇿ]+";
const YOUTU_SCRIPTS: &str = "[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥぀-ゟ゠-ヿ]+";

const GPT2: &[Cut] = &[Words(GPT2_WORDS)];
const DIGITS_GPT2: &[Cut] = &[Isolate(r"\p{N}"), Words(GPT2_WORDS)];
const DEEPSEEK3: &[Cut] = &[
    Isolate(r"\p{N}{1,3}"),
    Isolate(CJK_KANA),
    Words(DEEPSEEK3_WORDS),
];

/// For unknown names and for files without a name.
pub(crate) const DEFAULT: PreTokenizer = plain(&[
    Isolate(r"[\p{P}\$\+<=>\^~\|]+"),
    Words(GPT2_WORDS),
    Isolate(r"\p{N}+"),
    Isolate("[0-9][0-9][0-9]"),
]);

/// Names whose vocabularies are not byte-level and therefore unsupported.
const NOT_BYTE_LEVEL: &[&str] = &[
    "gemma4",
    "granite-embed-multi-311m",
    "sarvam-moe",
    "whitespace",
];

/// Names that `by_name` knows.
#[rustfmt::skip]
pub(crate) const NAMES: &[&str] = &[
    "a.x-4.0", "afmoe", "bailingmoe", "bailingmoe2", "bloom", "chameleon", "chatglm-bpe", "codeshell", "cohere2moe",
    "command-r", "dbrx", "deepseek-coder", "deepseek-llm", "deepseek-r1-qwen", "deepseek-v3", "default", "exaone",
    "exaone-moe", "exaone4", "f2llmv2", "falcon", "falcon-h1", "falcon3", "gigachat", "glm4", "glm5", "gpt-2", "gpt-4o",
    "gpt3-finnish", "granite-docling", "granite-embed-multi-97m", "grok-2", "hunyuan", "hunyuan-dense", "hy_v4", "jais",
    "jais-2", "jina-de", "jina-es", "jina-v1-en", "jina-v2-code", "jina-v2-de", "jina-v2-es", "jina-v5-nano",
    "joyai-llm", "kanana2", "kimi-k2", "kormo", "laguna", "lfm2", "llada-moe", "llama-bpe", "llama-v3", "llama3",
    "llama4", "megrez", "mellum", "mellum2", "midm-2.0", "minerva-7b", "minicpm5", "minimax-m2", "modern-bert", "mpt",
    "olmo", "phi-2", "pixtral", "poro-chat", "qwen2", "qwen35", "refact", "roberta-bpe", "seed-coder", "smaug-bpe",
    "smollm", "solar-open", "spark2_5", "stablelm2", "starcoder", "superbpe", "talkie", "tekken", "tiny_aya",
    "trillion", "ufakzeka", "viking", "youtu",
];

/// The pre-tokenizer of this name; `None` for an unknown name.
#[rustfmt::skip]
pub(crate) fn by_name(name: &str) -> Option<PreTokenizer> {
    Some(match name {
        "default" => DEFAULT,
        "llama3" | "llama-v3" | "llama-bpe" | "falcon3" | "falcon-h1" | "pixtral" | "midm-2.0" | "lfm2"
        | "jina-v5-nano" => PreTokenizer { ignore_merges: true, add_bos: true, ..plain(&[Words(LLAMA3_WORDS)]) },
        "dbrx" | "smaug-bpe" | "chatglm-bpe" => plain(&[Words(LLAMA3_WORDS)]),
        "glm4" | "glm5" => whole(&[Words(LLAMA3_WORDS)]),
        "jais-2" => plain(&[WordsAndBlanks(LLAMA3_WORDS)]),
        "minicpm5" => whole(&[Isolate(r"\p{N}{1,3}"), Words(MINICPM_WORDS)]),
        "gpt-2" | "phi-2" | "jina-es" | "jina-de" | "gigachat" | "jina-v2-es" | "jina-v2-de" | "a.x-4.0" | "mellum"
        | "modern-bert" | "jina-v1-en" | "jina-v2-code" | "roberta-bpe" | "mpt" | "olmo" | "jais" | "trillion"
        | "granite-docling" | "exaone4" => plain(GPT2),
        "starcoder" | "refact" | "command-r" | "smollm" | "codeshell" | "exaone" | "minerva-7b" | "mellum2" => plain(DIGITS_GPT2),
        "qwen2" | "deepseek-r1-qwen" | "kormo" | "f2llmv2" | "megrez" | "stablelm2" | "hunyuan" | "solar-open"
        | "grok-2" => plain(&[Words(QWEN2_WORDS)]),
        "qwen35" => plain(&[Words(QWEN35_WORDS)]),
        "laguna" => plain(&[Isolate(r"[^\n]+|\n+"), Words(QWEN2_WORDS)]),
        "ufakzeka" => plain(&[Words(UFAKZEKA_WORDS)]),
        "deepseek-llm" => plain(&[
            Isolate(r"[\r\n]"), Isolate(DEEPSEEK_LETTERS), Isolate(r"\s?[!-/:-~！-／：-～‘-‟　-。]+"), Isolate(r"\s+$"),
            Isolate(DEEPSEEK_CJK), Isolate(r"\p{N}+"),
        ]),
        "deepseek-coder" => plain(&[
            Isolate(r"[\r\n]"), Isolate(r"\s?\p{L}+"), Isolate(r"\s?\p{P}+"), Isolate(DEEPSEEK_CJK), Isolate(r"\p{N}"),
        ]),
        "deepseek-v3" | "hunyuan-dense" | "joyai-llm" | "hy_v4" => plain(DEEPSEEK3),
        "spark2_5" => plain(&[Isolate(r"\p{N}{1,3}"), Isolate(CJK_KANA), Words(SPARK_WORDS), Isolate(r"\p{N}")]),
        "youtu" => whole(&[Isolate(YOUTU_SCRIPTS), Words(YOUTU_WORDS)]),
        "falcon" => plain(&[Isolate(r"[\p{P}\$\+<=>\^~\|`]+"), Words(GPT2_WORDS), Isolate("[0-9][0-9][0-9]")]),
        "poro-chat" | "bloom" | "gpt3-finnish" => plain(&[Isolate(BLOOM_WORDS)]),
        "viking" => plain(&[Isolate(BLOOM_WORDS), Isolate(r"\p{N}")]),
        "tekken" => PreTokenizer { ignore_merges: true, add_bos: true, ..plain(&[Words(TEKKEN_WORDS)]) },
        "chameleon" => PreTokenizer { add_bos: true, ..plain(&[
            Isolate("<sentinel:[0-9]+>"), Isolate("IMGIMG[A-I]{1,4}Z"), Isolate(r"[\t\n]|    |  "), Isolate(r"\p{N}"),
            Isolate(r"[\p{P}!-/:-@\[-`{-~]"), Words(GPT2_WORDS),
        ]) },
        "gpt-4o" | "llama4" | "kanana2" | "talkie" | "minimax-m2" => plain(&[Words(O200K_WORDS)]),
        "granite-embed-multi-97m" => whole(&[Words(O200K_WORDS)]),
        "tiny_aya" | "cohere2moe" => plain(&[Thousands, Words(O200K_WORDS)]),
        "kimi-k2" => plain(&[Words(KIMI_WORDS)]),
        "superbpe" => plain(&[Thousands]),
        "bailingmoe" | "bailingmoe2" | "llada-moe" => plain(&[Words(BAILING_WORDS)]),
        "seed-coder" => plain(&[Words(SEED_WORDS)]),
        "afmoe" => plain(&[Thousands, Isolate(ASIAN), Words(DEEPSEEK3_WORDS)]),
        "exaone-moe" => plain(&[Words(EXAONE_MOE_WORDS)]),
        _ => return None,
    })
}

/// Whether the name belongs to vocabularies that are not byte-level.
pub(crate) fn is_not_byte_level(name: &str) -> bool {
    NOT_BYTE_LEVEL.contains(&name)
}

const fn plain(cuts: &'static [Cut]) -> PreTokenizer {
    PreTokenizer {
        cuts,
        ignore_merges: false,
        add_bos: false,
    }
}

const fn whole(cuts: &'static [Cut]) -> PreTokenizer {
    PreTokenizer {
        cuts,
        ignore_merges: true,
        add_bos: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokenizer::word_splitter::Splitter;

    #[test]
    fn all_pretokenizer_regexes_compile() {
        for name in NAMES {
            let known = by_name(name).unwrap_or_else(|| panic!("{name} is listed but not known"));
            Splitter::new(known.cuts);
            assert!(!is_not_byte_level(name));
        }
        assert!(
            NAMES.is_sorted(),
            "kept sorted, for the message that lists them"
        );
        assert!(by_name("no-such-name").is_none());
    }

    #[test]
    fn pretokenizer_flags_are_set_by_name() {
        let names = |asks: fn(&PreTokenizer) -> bool| {
            NAMES
                .iter()
                .copied()
                .filter(|name| by_name(name).is_some_and(|known| asks(&known)))
                .collect::<Vec<_>>()
                .join(" ")
        };
        assert_eq!(
            names(|known| known.add_bos),
            "chameleon falcon-h1 falcon3 jina-v5-nano lfm2 llama-bpe llama-v3 llama3 midm-2.0 pixtral tekken"
        );
        assert_eq!(
            names(|known| known.ignore_merges && !known.add_bos),
            "glm4 glm5 granite-embed-multi-97m minicpm5 youtu"
        );
    }
}
